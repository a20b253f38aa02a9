"""Sample marks: which samples of a batch are cold, and the two lists that this makes."""

from itertools import pairwise

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...config import Config, log2
from ...interfaces.lookup_payloads import lane_results
from ...primitives.ram import ClearedRam
from .bitmap_write_rounds import PARITIES, BitmapWriteScheduler, marked_beat, row_width
from .sample_partition import SamplePartition, batch_samples, counted_samples

HALVES = range(2)


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


class ColdSampleBitmap(wiring.Component):
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
        As of `SamplePartition`.
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

    latency = BitmapWriteScheduler.latency + WordMarker.latency + SamplePartition.latency

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
        m.submodules.cutter = cutter = BitmapWriteScheduler(c)
        m.submodules.lists = lists = SamplePartition(c)
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
        ]
        m.d.sync += self.ready.eq(
            Cat(ram.ready for pair in rams for ram in pair).all() & ~self.restart)

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
