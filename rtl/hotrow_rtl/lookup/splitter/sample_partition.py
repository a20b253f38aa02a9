"""Sample lists: read the marks of a batch and part its samples by them."""

from amaranth import Cat, Const, Module, Mux, ResetInserter, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config, log2
from ...interfaces.lookup_payloads import lane_results
from ...primitives.bits import prefix_popcount
from ...primitives.fifo import RamFifo
from ...primitives.skid_buffer import SkidBuffer

UNDER_WAY = 4  # batches whose number of samples is known before their marks are complete


def batch_samples(config: Config) -> data.StructLayout:
    """The number of samples of a batch, at least 1."""
    return data.StructLayout({"samples": log2(config.batch_samples) + 1})


def counted_samples() -> data.StructLayout:
    """The number of popular samples of a batch."""
    return data.StructLayout({"popular": 32})


class SamplePartition(wiring.Component):
    """List the unmarked and the marked samples of each batch, `lanes` of them a cycle.

    The marks of `lanes` consecutive samples are one word; those of a batch fill words from 0 on of
    one of two memories that batches use in turn.

    Parameters
    ----------
    config : Config

    Members
    -------
    batches : In(stream(batch_samples(config)))
        One per batch, in order.
    complete : In(1)
        A pulse: the marks of one batch more can be read from the next cycle but one on.
    read, read_half, read_word : Out
        Read that word.
    read_data : In(lanes)
        The word, from the cycle after until the next read.
    clear, clear_half, clear_word : Out
        Write zero to a word that has been read.
    over : Out(1)
        A pulse while the last word of a batch is being cleared.
    popular, nonpopular : Out(stream(lane_results(config, 32)))
        Numbers of unmarked and of marked samples, ascending; `last` with the final samples of the
        batch, in both. A beat without samples is left out unless it is the last.
    counted : Out(stream(counted_samples()))
        The number of `popular` samples, once per batch, after its last list elements.
    restart : In(1)
        A pulse forgets all of this.

    Timing
    ------
    A batch takes ceil(samples / lanes) cycles, and batches follow each other without a gap. A list
    element comes 3 cycles after the read.
    """

    latency = 3  # read, part, offer

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
        m.submodules.sizes = sizes = RamFifo(batch_samples(c), UNDER_WAY)
        # The queue's counts are far from `begin`.
        m.submodules.size = size = ResetInserter(self.restart)(SkidBuffer(batch_samples(c).size))
        samples = Signal(batch_samples(c))
        m.d.comb += [
            sizes.clear.eq(self.restart),
            size.i.valid.eq(sizes.o.valid),
            size.i.p.eq(sizes.o.p.as_value()),
            sizes.o.ready.eq(size.i.ready),
            samples.eq(size.o.p),
        ]
        wiring.connect(m, wiring.flipped(self.batches), sizes.i)

        # Walk over the words of a batch.
        walking, begin, final = Signal(), Signal(), Signal()
        completed = Signal(2)  # batches, at most 2
        half = Signal(init=1)  # that of the batch in progress; the first is in half 0
        word, last_word = Signal(self.word_width), Signal(self.word_width)
        rest = Signal(c.lanes)  # samples there are in the last word
        found, found_last, moves = Signal(), Signal(), Signal()
        greatest = Signal(log2(c.batch_samples))  # number of a sample
        m.d.comb += [
            final.eq(word == last_word),
            self.read.eq(walking & (~found | moves)),
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
                rest.eq(Cat(lane <= greatest[:log2(c.lanes)] for lane in range(c.lanes))),
            ]

        # The word that was read is cleared when it goes on.
        there, at = Signal(c.lanes), Signal(self.word_width)
        with m.If(self.read):
            m.d.sync += [
                self.clear_half.eq(half),
                at.eq(word),
                found_last.eq(final),
                there.eq(Mux(final, rest, ~Const(0, c.lanes))),
            ]
        with m.If(self.read | moves):
            m.d.sync += found.eq(self.read)
        # The lists are far from the marks: what they are ready for moves nothing before them.
        part = data.StructLayout({"marks": c.lanes, "there": c.lanes, "at": len(at), "last": 1})
        m.submodules.parted = parted = ResetInserter(self.restart)(SkidBuffer(part.size))
        parting, now = Signal(part), Signal(part)
        m.d.comb += [
            moves.eq(found & parted.i.ready),
            self.clear.eq(moves),
            self.clear_word.eq(at),
            self.over.eq(moves & found_last),
            parting.marks.eq(self.read_data),
            parting.there.eq(there),
            parting.at.eq(at),
            parting.last.eq(found_last),
            parted.i.valid.eq(found),
            parted.i.p.eq(parting.as_value()),
            now.eq(parted.o.p),
        ]

        # Offer it to both lists, and count.
        counts, counts_last, counting = Signal(range(c.lanes + 1)), Signal(), Signal()
        total, more, adds = Signal(len(greatest) + 1), Signal(len(greatest) + 1), Signal()
        warm = ~now.marks & now.there
        # Those that take the lists are far, too, and in different places.
        entry = data.StructLayout({"present": c.lanes, "at": len(at), "last": 1})
        skids = [ResetInserter(self.restart)(SkidBuffer(entry.size)) for _ in range(2)]
        m.submodules.popular, m.submodules.nonpopular = skids
        lists = ((self.popular, skids[0], warm),
                 (self.nonpopular, skids[1], now.marks & now.there))
        offers, may = Signal(), Signal()
        m.d.comb += [
            may.eq((~counting | adds) & Cat(skid.i.ready for skid in skids).all()),
            parted.o.ready.eq(may),
            offers.eq(parted.o.valid & may),
            more.eq(total + counts),
            adds.eq(counting & ~(counts_last & self.counted.valid)),
        ]
        for out, skid, present in lists:
            given, shown = Signal(entry), Signal(entry)
            m.d.comb += [
                given.present.eq(present),
                given.at.eq(now.at),
                given.last.eq(now.last),
                skid.i.valid.eq(offers & (present.any() | now.last)),
                skid.i.p.eq(given.as_value()),
                shown.eq(skid.o.p),
                skid.o.ready.eq(out.ready),
                out.valid.eq(skid.o.valid),
                [value.eq(Cat(Const(lane, log2(c.lanes)), shown.at))
                 for lane, value in enumerate(out.p.values)],
                out.p.present.eq(shown.present),
                out.p.last.eq(shown.last),
            ]
        with m.If(offers):
            m.d.sync += [counts.eq(prefix_popcount(warm)[1]), counts_last.eq(now.last)]
        with m.If(offers | adds):
            m.d.sync += counting.eq(offers)
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
