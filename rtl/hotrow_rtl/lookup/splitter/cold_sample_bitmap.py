"""Cold-sample bitmap: one bit per sample of a batch, and the two sample lists made from it."""

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

    A read does not see the writes of the two previous rounds. Marks are only ever set, so the
    words of those rounds are merged into the word that was read.

    Attributes
    ----------
    mark : In(1)
        Set the bit in `places` of each lane in `members` in the word at `row` of `half`.
    half, row, members, places : In
    read, read_half, read_row : Out
        Read the word.
    read_data : In
        The words of both halves, from the next cycle on.
    write, write_half, write_row, write_data : Out
    restart : In(1)

    Timing
    ------
    One word a cycle; the write occurs `latency` cycles later.
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
    """Mark the cold samples of a batch in any order, then list popular and cold samples.

    A mark may arrive at any time during the batch: a sample of a feature-major batch can turn cold
    at the last table. While one batch is listed, the next one is marked in the other half of the
    memories; a third batch waits.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    batches : In(stream(batch_samples(config)))
        One per batch, in order; up to `BATCHES` of them wait for their last beat.
    beats : In(stream(marked_beat(config)))
        A batch has at least one.
    popular, nonpopular, counted
        See `SamplePartition`.
    restart : In(1)
        A pulse drops all batches.
    ready : Out(1)
        Low while the memories are cleared; beats wait.

    Timing
    ------
    A beat takes as many cycles as the larger of its numbers of even and of odd words; `lanes`
    consecutive samples take one. The lists end ceil(samples / lanes) + `latency` cycles after the
    last beat of the batch, if that beat takes one cycle and the previous lists have ended. A third
    batch may wait up to 4 cycles for a half. Clearing takes `batch_samples` / (2 * `lanes`) cycles.
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
        m.submodules.scheduler = scheduler = BitmapWriteScheduler(c)
        m.submodules.lists = lists = SamplePartition(c)
        rams = [[ClearedRam(c.lanes, 1 << row_width(c)) for _ in PARITIES] for _ in HALVES]
        for half in HALVES:
            for parity, name in zip(PARITIES, ("even", "odd"), strict=True):
                m.submodules[f"{name}{half}"] = rams[half][parity]
                m.d.comb += rams[half][parity].clear.eq(self.restart)
        connect(m, flipped(self.beats), scheduler.beats)
        for name in ("batches", "popular", "nonpopular", "counted"):
            port, own = getattr(lists, name), flipped(getattr(self, name))
            connect(m, *((own, port) if name == "batches" else (port, own)))
        m.d.comb += [
            scheduler.restart.eq(self.restart),
            lists.restart.eq(self.restart),
        ]
        m.d.sync += self.ready.eq(
            Cat(ram.ready for pair in rams for ram in pair).all() & ~self.restart)

        # Batches alternate between the halves, and keep one until it is listed.
        used, half, round_ = Signal(range(3)), Signal(), scheduler.rounds.p
        has_half, fire, ends_batch = Signal(), Signal(), Signal()
        m.d.comb += [
            scheduler.rounds.ready.eq(has_half),
            fire.eq(scheduler.rounds.valid & scheduler.rounds.ready),
            ends_batch.eq(fire & round_.last),
        ]
        m.d.sync += [
            half.eq(half ^ ends_batch),
            used.eq(used + ends_batch - lists.over),
            has_half.eq(self.ready & (lists.over | Mux(ends_batch, used == 0, used != 2))),
        ]

        ends = Signal(2)
        markers = []
        for parity, name in zip(PARITIES, ("even", "odd"), strict=True):
            m.submodules[f"{name}_marker"] = marker = WordMarker(c)
            markers.append(marker)
            m.d.comb += [
                marker.restart.eq(self.restart),
                marker.mark.eq(fire & round_.members[parity].any()),
                marker.half.eq(half),
                marker.row.eq(round_.rows[parity]),
                marker.members.eq(round_.members[parity]),
                marker.places.eq(Cat(round_.places)),
                marker.read_data.eq(Cat(pair[parity].read_data for pair in rams)),
            ]
        m.d.sync += ends.eq(Cat(ends_batch, ends))
        m.d.comb += lists.complete.eq(ends[1])

        # `SamplePartition` reads the other half.
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
            m.d.sync += [used.eq(0), half.eq(0), has_half.eq(0), ends.eq(0)]
        return m
