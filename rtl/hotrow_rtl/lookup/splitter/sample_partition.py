"""Sample partition: read the marks of a batch and list its popular and its cold samples."""

from amaranth import Cat, Const, Module, Mux, ResetInserter, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config, log2
from ...interfaces.lookup_payloads import lane_results
from ...primitives.bits import prefix_popcount
from ...primitives.fifo import RamFifo
from ...primitives.skid_buffer import SkidBuffer

BATCHES = 4  # whose number of samples is queued


def batch_samples(config: Config) -> data.StructLayout:
    """The number of samples of a batch, at least 1."""
    return data.StructLayout({"samples": log2(config.batch_samples) + 1})


def counted_samples() -> data.StructLayout:
    """The number of popular samples of a batch."""
    return data.StructLayout({"popular": 32})


class SamplePartition(wiring.Component):
    """List the unmarked and the marked samples of each batch, `lanes` samples a cycle.

    One word holds the marks of `lanes` consecutive samples. Batches alternate between two halves
    of the memory, and start at word 0.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    batches : In(stream(batch_samples(config)))
        One per batch, in order.
    complete : In(1)
        A pulse: the marks of one more batch are readable from two cycles later on.
    read, read_half, read_word : Out
        Read the word.
    read_data : In(lanes)
        The word, from the next cycle until the next read.
    clear, clear_half, clear_word : Out
        Write zero to a word that has been read.
    over : Out(1)
        A pulse while the last word of a batch is cleared.
    popular, nonpopular : Out(stream(lane_results(config, 32)))
        Numbers of unmarked and of marked samples, ascending; both lists assert `last` with the
        final samples of the batch. A beat without samples is dropped unless it is the last.
    counted : Out(stream(counted_samples()))
        The number of `popular` samples, once per batch, after its last list elements.
    restart : In(1)
        A pulse drops all batches.

    Timing
    ------
    A batch takes ceil(samples / lanes) cycles, without a gap between batches. A list element is
    valid 3 cycles after the read.
    """

    latency = 3  # read, partition, output

    def __init__(self, config: Config):
        self.config = config
        self.word_width = log2(config.batch_samples) - log2(config.lanes)
        super().__init__({
            "batches": In(stream.Signature(batch_samples(config))),
            "complete": In(1),
            "read": Out(1),
            "read_half": Out(1),
            "read_word": Out(self.word_width),
            "read_data": In(config.lanes),
            "clear": Out(1),
            "clear_half": Out(1),
            "clear_word": Out(self.word_width),
            "over": Out(1),
            "popular": Out(stream.Signature(lane_results(config, 32))),
            "nonpopular": Out(stream.Signature(lane_results(config, 32))),
            "counted": Out(stream.Signature(counted_samples())),
            "restart": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        c = self.config
        m.submodules.sizes = sizes = RamFifo(batch_samples(c), BATCHES)
        # Timing: a buffer between the counts of the queue and `begin`.
        m.submodules.size = size = ResetInserter(self.restart)(SkidBuffer(batch_samples(c)))
        samples = size.o.p
        m.d.comb += [
            sizes.clear.eq(self.restart),
        ]
        wiring.connect(m, sizes.o, size.i)
        wiring.connect(m, wiring.flipped(self.batches), sizes.i)

        # Read the words of a batch.
        walking, begin, final = Signal(), Signal(), Signal()
        completed = Signal(2)  # batches, at most 2
        half = Signal(init=1)  # of the batch in progress; the first batch is in half 0
        word, last_word = Signal(self.word_width), Signal(self.word_width)
        last_present = Signal(c.lanes)  # samples in the last word
        found, found_last, read_fire = Signal(), Signal(), Signal()
        greatest = Signal(log2(c.batch_samples))  # number of a sample
        m.d.comb += [
            final.eq(word == last_word),
            self.read.eq(walking & (~found | read_fire)),
            self.read_half.eq(half),
            self.read_word.eq(word),
            begin.eq((completed != 0) & size.o.valid & (~walking | self.read & final)),
            size.o.ready.eq(begin),
            greatest.eq(samples.samples - 1),
        ]
        m.d.sync += completed.eq(completed + self.complete - begin)
        with m.If(self.read):
            m.d.sync += [word.eq(word + 1), walking.eq(~final)]
        with m.If(begin):
            m.d.sync += [
                walking.eq(1),
                half.eq(~half),
                word.eq(0),
                last_word.eq(greatest[log2(c.lanes):]),
                last_present.eq(Cat(lane <= greatest[:log2(c.lanes)] for lane in range(c.lanes))),
            ]

        # A word is cleared when the next stage accepts it.
        there, at = Signal(c.lanes), Signal(self.word_width)
        with m.If(self.read):
            m.d.sync += [
                self.clear_half.eq(half),
                at.eq(word),
                found_last.eq(final),
                there.eq(Mux(final, last_present, ~Const(0, c.lanes))),
            ]
        with m.If(self.read | read_fire):
            m.d.sync += found.eq(self.read)
        # Timing: a buffer between the `ready` of the lists and the memory of the marks.
        part = data.StructLayout({"marks": c.lanes, "there": c.lanes, "at": len(at), "last": 1})
        m.submodules.parted = parted = ResetInserter(self.restart)(SkidBuffer(part))
        parting, now = parted.i.p, parted.o.p
        m.d.comb += [
            read_fire.eq(found & parted.i.ready),
            self.clear.eq(read_fire),
            self.clear_word.eq(at),
            self.over.eq(read_fire & found_last),
            parting.marks.eq(self.read_data),
            parting.there.eq(there),
            parting.at.eq(at),
            parting.last.eq(found_last),
            parted.i.valid.eq(found),
        ]

        # Send the samples to both lists, and count the popular ones.
        counts, counts_last, counting = Signal(range(c.lanes + 1)), Signal(), Signal()
        total, more, adds = Signal(len(greatest) + 1), Signal(len(greatest) + 1), Signal()
        warm = ~now.marks & now.there
        # Timing: one buffer per list, as the packers of the lists are placed far apart.
        entry = data.StructLayout({"present": c.lanes, "at": len(at), "last": 1})
        skids = [ResetInserter(self.restart)(SkidBuffer(entry)) for _ in range(2)]
        m.submodules.popular, m.submodules.nonpopular = skids
        lists = ((self.popular, skids[0], warm),
                 (self.nonpopular, skids[1], now.marks & now.there))
        fire, sinks_ready = Signal(), Signal()
        m.d.comb += [
            sinks_ready.eq((~counting | adds) & Cat(skid.i.ready for skid in skids).all()),
            parted.o.ready.eq(sinks_ready),
            fire.eq(parted.o.valid & sinks_ready),
            more.eq(total + counts),
            adds.eq(counting & ~(counts_last & self.counted.valid)),
        ]
        for out, skid, present in lists:
            m.d.comb += [
                skid.i.p.present.eq(present),
                skid.i.p.at.eq(now.at),
                skid.i.p.last.eq(now.last),
                skid.i.valid.eq(fire & (present.any() | now.last)),
                skid.o.ready.eq(out.ready),
                out.valid.eq(skid.o.valid),
                [value.eq(Cat(Const(lane, log2(c.lanes)), skid.o.p.at))
                 for lane, value in enumerate(out.p.values)],
                out.p.present.eq(skid.o.p.present),
                out.p.last.eq(skid.o.p.last),
            ]
        with m.If(fire):
            m.d.sync += [counts.eq(prefix_popcount(warm)[1]), counts_last.eq(now.last)]
        with m.If(fire | adds):
            m.d.sync += counting.eq(fire)
        with m.If(self.counted.ready):
            m.d.sync += self.counted.valid.eq(0)
        with m.If(adds):
            m.d.sync += total.eq(Mux(counts_last, 0, more))
            with m.If(counts_last):
                m.d.sync += [self.counted.valid.eq(1), self.counted.p.popular.eq(more)]
        with m.If(self.restart):
            m.d.sync += [
                [flag.eq(0) for flag in (walking, found, counting, completed, total,
                                         self.counted.valid)],
                half.eq(1),
            ]
        return m
