"""Sample partition: reads the bitmap of a batch and lists its popular and its cold samples."""

from amaranth import Cat, Const, Module, Mux, ResetInserter, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...config import Config, log2
from ...interfaces.lookup_payloads import lane_results
from ...interfaces.records import BATCHES_IN_FLIGHT
from ...primitives.bits import popcount
from ...primitives.fifo import RamFifo
from ...primitives.skid_buffer import SkidBuffer


def batch_samples(config: Config) -> data.StructLayout:
    """The number of samples of a batch, at least 1."""
    return data.StructLayout({"samples": log2(config.batch_samples) + 1})


def counted_samples() -> data.StructLayout:
    """The number of popular samples of a batch."""
    return data.StructLayout({"popular": 32})


class SamplePartition(wiring.Component):
    """List the unmarked and the marked samples of each batch, `lanes` of them a cycle.

    A word holds the marks of `lanes` consecutive samples. The words of a batch start at 0 in one of
    two memories (halves), which batches use alternately.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    batches : In(stream(batch_samples(config)))
        One per batch, in order.
    complete : In(1)
        A pulse: the marks of another batch can be read from the next cycle but one.
    read, read_half, read_word : Out
        Read that word.
    read_data : In(config.lanes)
        The word, from the cycle after its read until the next read.
    clear, clear_half, clear_word : Out
        Write zero to a word that has been read.
    over : Out(1)
        A pulse with the last clear of a batch.
    popular, nonpopular : Out(stream(lane_results(config, 32)))
        Numbers of the unmarked and of the marked samples, ascending. Both lists end with `last`;
        a beat without samples appears only if it is the last.
    counted : Out(stream(counted_samples()))
        One per batch, after its last beat is valid in both lists.
    restart : In(1)
        A pulse drops all batches.

    Timing
    ------
    A batch takes ceil(samples / lanes) cycles; batches follow each other without a gap. A beat of a
    list follows its read by `latency` cycles.
    """

    latency = 3  # read, partition, offer

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
        m.submodules.sizes = sizes = RamFifo(batch_samples(c), BATCHES_IN_FLIGHT)
        # Timing: a register between the counters of the queue and `begin`.
        m.submodules.size = size = ResetInserter(self.restart)(SkidBuffer(batch_samples(c)))
        m.d.comb += sizes.clear.eq(self.restart)
        connect(m, batches=flipped(self.batches), sizes=sizes.i)
        connect(m, sizes=sizes.o, size=size.i)

        # Read the words of a batch.
        busy, begin, final = Signal(), Signal(), Signal()
        complete_count = Signal(2)  # batches to read
        half = Signal(init=1)  # of the batch in progress; the first batch uses half 0
        word, last_word = Signal(self.word_width), Signal(self.word_width)
        last_present = Signal(c.lanes)  # lanes with a sample in the last word
        read_valid, read_last, enable = Signal(), Signal(), Signal()
        greatest = Signal(log2(c.batch_samples))  # number of the last sample
        m.d.comb += [
            final.eq(word == last_word),
            self.read.eq(busy & (~read_valid | enable)),
            self.read_half.eq(half),
            self.read_word.eq(word),
            begin.eq((complete_count != 0) & size.o.valid & (~busy | self.read & final)),
            size.o.ready.eq(begin),
            greatest.eq(size.o.p.samples - 1),
        ]
        m.d.sync += complete_count.eq(complete_count + self.complete - begin)
        with m.If(self.read):
            m.d.sync += [word.eq(word + 1), busy.eq(~final)]
        with m.If(begin):
            m.d.sync += [
                busy.eq(1),
                half.eq(~half),
                word.eq(0),
                last_word.eq(greatest[log2(c.lanes):]),
                last_present.eq(Cat(
                    lane <= greatest[:log2(c.lanes)] for lane in range(c.lanes))),
            ]

        # Clear a word when its marks leave this stage.
        present, read_word = Signal(c.lanes), Signal(self.word_width)
        with m.If(self.read):
            m.d.sync += [
                self.clear_half.eq(half),
                read_word.eq(word),
                read_last.eq(final),
                present.eq(Mux(final, last_present, ~Const(0, c.lanes))),
            ]
        with m.If(self.read | enable):
            m.d.sync += read_valid.eq(self.read)
        # Timing: ends the path of `ready` from the lists to the bitmap.
        m.submodules.marked = marked = ResetInserter(self.restart)(SkidBuffer(data.StructLayout({
            "marks": c.lanes, "present": c.lanes, "word": len(read_word), "last": 1})))
        m.d.comb += [
            enable.eq(read_valid & marked.i.ready),
            self.clear.eq(enable),
            self.clear_word.eq(read_word),
            self.over.eq(enable & read_last),
            marked.i.valid.eq(read_valid),
            marked.i.p.marks.eq(self.read_data),
            marked.i.p.present.eq(present),
            marked.i.p.word.eq(read_word),
            marked.i.p.last.eq(read_last),
        ]

        # Offer the samples to both lists, and count the popular ones.
        p = marked.o.p
        popular = ~p.marks & p.present
        count, count_last, count_valid = Signal(range(c.lanes + 1)), Signal(), Signal()
        total, total_next, adds = Signal(len(greatest) + 1), Signal(len(greatest) + 1), Signal()
        # Timing: a register for each list, since the two sinks are apart.
        entry = data.StructLayout({"present": c.lanes, "word": len(read_word), "last": 1})
        buffers = [ResetInserter(self.restart)(SkidBuffer(entry)) for _ in range(2)]
        m.submodules.popular, m.submodules.nonpopular = buffers
        fire, ready = Signal(), Signal()
        m.d.comb += [
            ready.eq((~count_valid | adds) & Cat(buffer.i.ready for buffer in buffers).all()),
            marked.o.ready.eq(ready),
            fire.eq(marked.o.valid & ready),
            total_next.eq(total + count),
            adds.eq(count_valid & ~(count_last & self.counted.valid)),
        ]
        for out, buffer, listed in ((self.popular, buffers[0], popular),
                                    (self.nonpopular, buffers[1], p.marks & p.present)):
            m.d.comb += [
                buffer.i.p.present.eq(listed),
                buffer.i.p.word.eq(p.word),
                buffer.i.p.last.eq(p.last),
                buffer.i.valid.eq(fire & (listed.any() | p.last)),
                buffer.o.ready.eq(out.ready),
                out.valid.eq(buffer.o.valid),
                [value.eq(Cat(Const(lane, log2(c.lanes)), buffer.o.p.word))
                 for lane, value in enumerate(out.p.values)],
                out.p.present.eq(buffer.o.p.present),
                out.p.last.eq(buffer.o.p.last),
            ]
        popular_count = popcount(m, popular)
        with m.If(fire):
            m.d.sync += [count.eq(popular_count), count_last.eq(p.last)]
        with m.If(fire | adds):
            m.d.sync += count_valid.eq(fire)
        with m.If(self.counted.ready):
            m.d.sync += self.counted.valid.eq(0)
        with m.If(adds):
            m.d.sync += total.eq(Mux(count_last, 0, total_next))
            with m.If(count_last):
                m.d.sync += [self.counted.valid.eq(1), self.counted.p.popular.eq(total_next)]
        with m.If(self.restart):
            m.d.sync += [
                [flag.eq(0) for flag in (busy, read_valid, count_valid, complete_count, total,
                                         self.counted.valid)],
                half.eq(1),
            ]
        return m
