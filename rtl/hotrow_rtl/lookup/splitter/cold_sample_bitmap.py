"""Cold-sample bitmap: marks the cold samples of a batch and partitions its samples by the marks."""

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
    """Set marks in bitmap words of one parity: read, hold, merge and write.

    A read misses what the two rounds before write. Marks are only ever added, so the unit merges
    the words of those rounds into the one that it reads.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    mark : In(1)
        Set, in the word `row` of `half`, the bit `bits` of each lane in `members`.
    half, row, members, bits : In
    read, read_half, read_row : Out
        Read that word.
    read_data : In(2 * config.lanes)
        The words of both halves, from the cycle after the read.
    write, write_half, write_row, write_data : Out
    restart : In(1)
        A pulse drops the marks in the pipeline.

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
            "bits": In(config.lanes * log2(config.lanes)),
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
        c, bit_width = self.config, log2(self.config.lanes)
        stages = ("read", "held", "merged", "written")
        address = [Signal(row_width(c) + 1, name=f"{name}_address", reset_less=True)
                   for name in stages]
        valid = Signal(len(stages))
        members, bits = Signal.like(self.members), Signal.like(self.bits)
        added, added_q, found, merged = (Signal(c.lanes, name=name, reset_less=True) for name in (
            "added", "added_q", "found", "merged"))
        written = [Signal(c.lanes, name=f"written{age}", reset_less=True) for age in range(2)]
        forward = Signal(2)
        m.d.sync += [
            valid.eq(Cat(self.mark, valid)),
            address[0].eq(Cat(self.row, self.half)),
            [after.eq(before) for before, after in pairwise(address)],
            members.eq(self.members),
            bits.eq(self.bits),
            added.eq(Cat(Cat(
                members[lane] & (bits.word_select(lane, bit_width) == bit)
                for lane in range(c.lanes)).any() for bit in range(c.lanes))),
            found.eq(self.read_data.word_select(address[1][-1], c.lanes)),
            added_q.eq(added),
            forward.eq(Cat(valid[age] & (address[1] == address[age]) for age in (2, 3))),
            written[0].eq(merged),
            written[1].eq(written[0]),
        ]
        m.d.comb += [
            merged.eq(added_q | Mux(forward[0], written[0], Mux(forward[1], written[1], found))),
            self.read.eq(valid[0]),
            Cat(self.read_row, self.read_half).eq(address[0]),
            self.write.eq(valid[2]),
            Cat(self.write_row, self.write_half).eq(address[2]),
            self.write_data.eq(merged),
        ]
        with m.If(self.restart):
            m.d.sync += valid.eq(0)
        return m


class ColdSampleBitmap(wiring.Component):
    """Mark the cold samples of a batch in any order, then list the popular and the other samples.

    A mark may come at any time during the batch, since a sample may turn cold only with the last
    table of a feature-major batch. The bitmap has two halves: while one batch is listed, the next
    is marked; a third batch waits.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    batches : In(stream(batch_samples(config)))
        One per batch, in order. A queue holds those of `BATCHES_IN_FLIGHT` batches.
    beats : In(stream(marked_beat(config)))
        At least one per batch.
    popular, nonpopular, counted
        See `SamplePartition`.
    restart : In(1)
        A pulse drops all batches.
    ready : Out(1)
        Low while the memories are cleared; the unit then accepts no beat.

    Timing
    ------
    One beat a cycle if its marks lie in one even and one odd word of `lanes` samples, as
    those of any `lanes` consecutive samples do; otherwise as many cycles as the beat has even, or
    odd, words. The lists end ceil(samples / lanes) + `latency` cycles after the last beat of the
    batch if that beat takes one cycle and the previous lists have ended. The batch after the next
    may wait up to 4 cycles for a half. A clear takes `batch_samples` / (2 * `lanes`) cycles.
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
        m.submodules.partition = partition = SamplePartition(c)
        rams = [[ClearedRam(c.lanes, 1 << row_width(c)) for _ in PARITIES] for _ in HALVES]
        for half in HALVES:
            for parity, name in zip(PARITIES, ("even", "odd"), strict=True):
                m.submodules[f"{name}{half}"] = rams[half][parity]
                m.d.comb += rams[half][parity].clear.eq(self.restart)
        connect(m, flipped(self.beats), scheduler.beats)
        connect(m, flipped(self.batches), partition.batches)
        for name in ("popular", "nonpopular", "counted"):
            connect(m, getattr(partition, name), flipped(getattr(self, name)))
        m.d.comb += [
            scheduler.restart.eq(self.restart),
            partition.restart.eq(self.restart),
        ]
        m.d.sync += self.ready.eq(
            Cat(ram.ready for pair in rams for ram in pair).all() & ~self.restart)

        # Batches use the halves alternately, each until its samples are listed.
        used_count, half, write = Signal(range(3)), Signal(), scheduler.rounds.p
        has_half, fire, ends = Signal(), Signal(), Signal()
        m.d.comb += [
            scheduler.rounds.ready.eq(has_half),
            fire.eq(scheduler.rounds.valid & scheduler.rounds.ready),
            ends.eq(fire & write.last),
        ]
        m.d.sync += [
            half.eq(half ^ ends),
            used_count.eq(used_count + ends - partition.over),
            has_half.eq(self.ready & (
                partition.over | Mux(ends, used_count == 0, used_count != 2))),
        ]

        ends_q = Signal(2)
        markers = []
        for parity, name in zip(PARITIES, ("even", "odd"), strict=True):
            m.submodules[f"{name}_marker"] = marker = WordMarker(c)
            markers.append(marker)
            m.d.comb += [
                marker.restart.eq(self.restart),
                marker.mark.eq(fire & write.members[parity].any()),
                marker.half.eq(half),
                marker.row.eq(write.rows[parity]),
                marker.members.eq(write.members[parity]),
                marker.bits.eq(Cat(write.bits)),
                marker.read_data.eq(Cat(pair[parity].read_data for pair in rams)),
            ]
        m.d.sync += ends_q.eq(Cat(ends, ends_q))
        m.d.comb += partition.complete.eq(ends_q[1])

        # `partition` reads and clears one half while the markers write the other.
        read_half, read_parity = Signal(), Signal()
        with m.If(partition.read):
            m.d.sync += [read_half.eq(partition.read_half), read_parity.eq(partition.read_word[0])]
        words = Cat(ram.read_data for pair in rams for ram in pair)
        m.d.comb += partition.read_data.eq(
            words.word_select(Cat(read_parity, read_half), c.lanes))
        for half_number, pair in enumerate(rams):
            for parity, (ram, marker) in enumerate(zip(pair, markers, strict=True)):
                marks = marker.read & (marker.read_half == half_number)
                writes = marker.write & (marker.write_half == half_number)
                lists = partition.read & (partition.read_half == half_number) & (
                    partition.read_word[0] == parity)
                clears = partition.clear & (partition.clear_half == half_number) & (
                    partition.clear_word[0] == parity)
                m.d.comb += [
                    ram.read_enable.eq(marks | lists),
                    ram.read_address.eq(Mux(marks, marker.read_row, partition.read_word[1:])),
                    ram.write_enable.eq(writes | clears),
                    ram.write_address.eq(Mux(writes, marker.write_row, partition.clear_word[1:])),
                    ram.write_data.eq(Mux(writes, marker.write_data, 0)),
                ]
        with m.If(self.restart):
            m.d.sync += [used_count.eq(0), half.eq(0), has_half.eq(0), ends_q.eq(0)]
        return m
