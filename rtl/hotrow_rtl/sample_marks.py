"""Sample marks: which samples of a batch are cold, and the two lists that this makes."""

from functools import reduce
from itertools import pairwise
from operator import or_

from amaranth import Cat, Module, Mux, ResetInserter, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from .bank_layouts import lane_results
from .config import Config, log2
from .ram import ClearedRam
from .sample_lists import SampleLists, batch_samples, counted_samples
from .skid import Skid

PARITIES = HALVES = range(2)


def marked_beat(config: Config) -> data.StructLayout:
    """Samples of the lookups of one cycle; those whose bit of `marks` is set are cold."""
    return data.StructLayout({
        "samples": data.ArrayLayout(log2(config.batch_samples), config.lanes),
        "marks": config.lanes,
        "last": 1,
    })


def row_width(config: Config) -> int:
    """Bits of the row of a mark word: words of `lanes` marks lie in two memories in turn."""
    return log2(config.batch_samples) - log2(config.lanes) - 1


def mark_round(config: Config) -> data.StructLayout:
    """Marks for up to one even and one odd word: `members` are the lanes that set a bit of it, each
    at its `places`. `last` ends the batch."""
    return data.StructLayout({
        "rows": data.ArrayLayout(row_width(config), 2),
        "members": data.ArrayLayout(config.lanes, 2),
        "places": data.ArrayLayout(log2(config.lanes), config.lanes),
        "last": 1,
    })


class MarkRounds(wiring.Component):
    """Cut each beat into rounds that touch one even and one odd mark word at most.

    The first lane that marks a word leads the others that mark the same; a round serves the first
    leader left of either kind.

    Members
    -------
    beats : In(stream(marked_beat(config)))
    rounds : Out(stream(mark_round(config)))
        At least one per beat.
    restart : In(1)

    Timing
    ------
    A round a cycle, the first 3 cycles after its beat.
    """

    latency = 3  # take, compare, lead

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "beats": In(stream.Signature(marked_beat(config))),
            "rounds": Out(stream.Signature(mark_round(config))),
            "restart": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        c, out = self.config, self.rounds
        m.submodules.taken = taken = ResetInserter(self.restart)(
            Skid(marked_beat(c).size, rigid=True))
        m.d.comb += [
            taken.i.valid.eq(self.beats.valid),
            taken.i.p.eq(self.beats.p.as_value()),
            self.beats.ready.eq(taken.i.ready),
        ]
        given = data.View(marked_beat(c), taken.o.p)
        lanes, low = range(c.lanes), log2(c.lanes)

        # Compare the word of every lane with those of the lanes before.
        compared, led, free, done = (Signal(name=name) for name in (
            "compared", "led", "free", "done"))
        samples = [Signal(log2(c.batch_samples), name=f"sample{lane}", reset_less=True)
                   for lane in lanes]
        marks, last = Signal(c.lanes, reset_less=True), Signal(reset_less=True)
        same = [Signal(max(1, lane), name=f"same{lane}", reset_less=True) for lane in lanes]
        m.d.comb += [
            free.eq(~led | out.ready & done),
            taken.o.ready.eq(free),
        ]
        with m.If(free):
            m.d.sync += [
                compared.eq(taken.o.valid),
                [here.eq(sample) for here, sample in zip(samples, given.samples)],
                marks.eq(given.marks),
                last.eq(given.last),
                [same[lane].eq(Cat(given.marks[lane] & given.marks[other]
                                   & (given.samples[lane][low:] == given.samples[other][low:])
                                   for other in range(lane))) for lane in lanes],
            ]

        # Find the leaders, then let them go, the lowest first.
        led_samples = [Signal(log2(c.batch_samples), name=f"led{lane}", reset_less=True)
                       for lane in lanes]
        led_last = Signal(reset_less=True)
        leaders = [Signal(c.lanes, name=name, reset_less=True) for name in ("even", "odd")]
        follow = [Signal(c.lanes, name=f"follow{lane}", reset_less=True) for lane in lanes]
        with m.If(free):
            m.d.sync += [
                led.eq(compared),
                [after.eq(before) for after, before in zip(led_samples, samples)],
                led_last.eq(last),
                [leaders[parity].eq(Cat(
                    marks[lane] & ~same[lane].any() & (samples[lane][low] == parity)
                    for lane in lanes)) for parity in PARITIES],
                [follow[lane].eq(Cat(same[lane][:lane], marks[lane], *(
                    same[other][lane] for other in range(lane + 1, c.lanes)))) for lane in lanes],
            ]
        rests = []
        for parity, left in zip(PARITIES, leaders):
            lowest, rest = (Signal(c.lanes, name=f"{name}{parity}") for name in ("lowest", "rest"))
            m.d.comb += [
                lowest.eq(Cat(left[lane] & ~left[:lane].any() for lane in lanes)),
                rest.eq(Cat(left[lane] & left[:lane].any() for lane in lanes)),
                out.p.rows[parity].eq(reduce(or_, (
                    Mux(here, sample[low + 1:], 0) for here, sample in zip(lowest, led_samples)))),
                out.p.members[parity].eq(Cat((lowest & follow[lane]).any() for lane in lanes)),
            ]
            rests.append(rest)
            with m.If(led & out.ready & ~done):
                m.d.sync += left.eq(rest)
        m.d.comb += [
            out.valid.eq(led),
            done.eq(~Cat(rests).any()),
            [place.eq(sample[:low]) for place, sample in zip(out.p.places, led_samples)],
            out.p.last.eq(led_last & done),
        ]
        with m.If(self.restart):
            m.d.sync += [compared.eq(0), led.eq(0)]
        return m


class WordMarker(wiring.Component):
    """Set marks in words of one parity: read, hold, merge and write.

    What the two rounds before write is not yet in what is read; marks are only ever added, so
    theirs are merged into those read.

    Members
    -------
    mark : In(1)
        Add those of `members`, each at its part of `places`, to the word in `row` of `half`.
    half, row, members, places : In
    read, read_half, read_row : Out
        Read that word.
    read_data : In
        The words of either half, from the cycle after.
    write, write_half, write_row, write_data : Out
    restart : In(1)

    Timing
    ------
    One word a cycle; it is written `latency` cycles later.
    """

    latency = 3

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "mark": In(1),
            "half": In(1),
            "row": In(row_width(config)),
            "members": In(config.lanes),
            "places": In(config.lanes * log2(config.lanes)),
            "read": Out(1),
            "read_half": Out(1),
            "read_row": Out(row_width(config)),
            "read_data": In(2 * config.lanes),
            "write": Out(1),
            "write_half": Out(1),
            "write_row": Out(row_width(config)),
            "write_data": Out(config.lanes),
            "restart": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        c, place_width = self.config, log2(self.config.lanes)
        stages = ("read", "held", "merged", "written")
        at = [Signal(row_width(c) + 1, name=f"{name}_at", reset_less=True) for name in stages]
        valid = Signal(len(stages))
        members, places = Signal.like(self.members), Signal.like(self.places)
        added, merging, found, merged = (Signal(c.lanes, name=name, reset_less=True) for name in (
            "added", "merging", "found", "merged"))
        written = [Signal(c.lanes, name=f"written{back}", reset_less=True) for back in range(2)]
        again = Signal(2)
        m.d.sync += [
            valid.eq(Cat(self.mark, valid)),
            at[0].eq(Cat(self.row, self.half)),
            [after.eq(before) for before, after in pairwise(at)],
            members.eq(self.members),
            places.eq(self.places),
            added.eq(Cat(Cat(
                members[lane] & (places.word_select(lane, place_width) == place)
                for lane in range(c.lanes)).any() for place in range(c.lanes))),
            found.eq(self.read_data.word_select(at[1][-1], c.lanes)),
            merging.eq(added),
            again.eq(Cat(valid[back] & (at[1] == at[back]) for back in (2, 3))),
            written[0].eq(merged),
            written[1].eq(written[0]),
        ]
        m.d.comb += [
            merged.eq(merging | Mux(again[0], written[0], Mux(again[1], written[1], found))),
            self.read.eq(valid[0]),
            Cat(self.read_row, self.read_half).eq(at[0]),
            self.write.eq(valid[2]),
            Cat(self.write_row, self.write_half).eq(at[2]),
            self.write_data.eq(merged),
        ]
        with m.If(self.restart):
            m.d.sync += valid.eq(0)
        return m


class SampleMarks(wiring.Component):
    """Mark the cold samples of a batch in any order, then list the popular and the other ones.

    A mark may come at any time during the batch, so that a sample that looks popular until the
    last table of a feature-major batch can still turn cold. While one batch is listed, the next is
    marked in memories of its own; a third waits.

    Parameters
    ----------
    config : Config

    Members
    -------
    batches : In(stream(batch_samples(config)))
        One per batch, in order; `UNDER_WAY` of them wait here for their last beat.
    beats : In(stream(marked_beat(config)))
        A batch has at least one.
    popular, nonpopular, counted
        As of `SampleLists`.
    restart : In(1)
        A pulse forgets everything.
    ready : Out(1)
        Low while the memories are being cleared; beats then wait.

    Timing
    ------
    One beat a cycle if its marks lie in one even and one odd word of `lanes` samples, as those of
    any `lanes` consecutive samples do; otherwise as many cycles as it has even, or odd, words. The
    lists end ceil(samples / lanes) + `latency` cycles after the batch's last beat if that takes
    one cycle and the lists before have ended. The batch after the next may wait up to 4 cycles for
    their memory. Clearing takes `batch_samples` / (2 * `lanes`) cycles.
    """

    latency = MarkRounds.latency + WordMarker.latency + SampleLists.latency

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "batches": In(stream.Signature(batch_samples(config))),
            "beats": In(stream.Signature(marked_beat(config))),
            "popular": Out(stream.Signature(lane_results(config, 32))),
            "nonpopular": Out(stream.Signature(lane_results(config, 32))),
            "counted": Out(stream.Signature(counted_samples())),
            "restart": In(1),
            "ready": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        c = self.config
        m.submodules.cutter = cutter = MarkRounds(c)
        m.submodules.lists = lists = SampleLists(c)
        rams = [[ClearedRam(c.lanes, 1 << row_width(c)) for _ in PARITIES] for _ in HALVES]
        for half in HALVES:
            for parity, name in zip(PARITIES, ("even", "odd")):
                m.submodules[f"{name}{half}"] = rams[half][parity]
                m.d.comb += rams[half][parity].clear.eq(self.restart)
        connect(m, flipped(self.beats), cutter.beats)
        for name in ("batches", "popular", "nonpopular", "counted"):
            port, own = getattr(lists, name), flipped(getattr(self, name))
            connect(m, *((own, port) if name == "batches" else (port, own)))
        m.d.comb += [
            cutter.restart.eq(self.restart),
            lists.restart.eq(self.restart),
            self.ready.eq(Cat(ram.ready for pair in rams for ram in pair).all()),
        ]

        # Batches take the halves in turn, and have them until they are listed.
        taken, half, round_ = Signal(range(3)), Signal(), cutter.rounds.p
        has_half, enters, closes = Signal(), Signal(), Signal()
        m.d.comb += [
            cutter.rounds.ready.eq(has_half),
            enters.eq(cutter.rounds.valid & cutter.rounds.ready),
            closes.eq(enters & round_.last),
        ]
        m.d.sync += [
            half.eq(half ^ closes),
            taken.eq(taken + closes - lists.over),
            has_half.eq(self.ready & (lists.over | Mux(closes, taken == 0, taken != 2))),
        ]

        ends = Signal(2)
        markers = []
        for parity, name in zip(PARITIES, ("even", "odd")):
            m.submodules[f"{name}_marker"] = marker = WordMarker(c)
            markers.append(marker)
            m.d.comb += [
                marker.restart.eq(self.restart),
                marker.mark.eq(enters & round_.members[parity].any()),
                marker.half.eq(half),
                marker.row.eq(round_.rows[parity]),
                marker.members.eq(round_.members[parity]),
                marker.places.eq(Cat(round_.places)),
                marker.read_data.eq(Cat(pair[parity].read_data for pair in rams)),
            ]
        m.d.sync += ends.eq(Cat(closes, ends))
        m.d.comb += lists.complete.eq(ends[1])

        # The other half is read by the lists.
        found_half, found_parity = Signal(), Signal()
        with m.If(lists.read):
            m.d.sync += [found_half.eq(lists.read_half), found_parity.eq(lists.read_word[0])]
        words = Cat(ram.read_data for pair in rams for ram in pair)
        m.d.comb += lists.read_data.eq(words.word_select(Cat(found_parity, found_half), c.lanes))
        for half_number, pair in enumerate(rams):
            for parity, ram in enumerate(pair):
                marker = markers[parity]
                marks = marker.read & (marker.read_half == half_number)
                writes = marker.write & (marker.write_half == half_number)
                scans = lists.read & (lists.read_half == half_number) & (
                    lists.read_word[0] == parity)
                clears = lists.clear & (lists.clear_half == half_number) & (
                    lists.clear_word[0] == parity)
                m.d.comb += [
                    ram.read_enable.eq(marks | scans),
                    ram.read_address.eq(Mux(marks, marker.read_row, lists.read_word[1:])),
                    ram.write_enable.eq(writes | clears),
                    ram.write_address.eq(Mux(writes, marker.write_row, lists.clear_word[1:])),
                    ram.write_data.eq(Mux(writes, marker.write_data, 0)),
                ]
        with m.If(self.restart):
            m.d.sync += [taken.eq(0), half.eq(0), has_half.eq(0), ends.eq(0)]
        return m
