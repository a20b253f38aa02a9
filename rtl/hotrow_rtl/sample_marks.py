"""One bit per sample of a batch: cold or not; and the scan that parts the samples by it."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .config import Config, log2
from .layouts import result
from .ram import ClearedRam

BITS = 32  # marks in one memory word


class SampleMarks(wiring.Component):
    """Mark samples in any order, then list the unmarked and the marked ones, each in order.

    A mark may come at any time during the batch, so that a sample that looks popular until the
    last table of a feature-major batch can still turn cold. The scan clears what it reads.

    Members
    -------
    mark : In(1)
        Mark `sample` in this cycle; only while `ready` and no scan is in progress.
    sample : In
    scan : In(stream)
        Part `samples` samples, by the marks of the cycles before it is taken.
    popular, nonpopular : Out(stream(result(32)))
        Sample numbers; the last element of each may be absent.
    count : Out(32)
        Popular samples so far.
    done : Out(1)
        A pulse when a scan has given its last sample.
    restart : In(1)
        A pulse forgets scan and marks.
    ready : Out(1)
        Low while the memory is being cleared.

    Timing
    ------
    A mark a cycle. A scan takes `samples` + 2 cycles, one sample a cycle. Clearing takes
    `batch_samples` / 32 cycles.
    """

    latency = 2  # cycles from the scan to the first position

    def __init__(self, config: Config):
        self.width = log2(config.batch_samples)
        super().__init__({
            "mark": In(1),
            "sample": In(self.width),
            "scan": In(stream.Signature(data.StructLayout({"samples": self.width + 1}))),
            "popular": Out(stream.Signature(result(32))),
            "nonpopular": Out(stream.Signature(result(32))),
            "count": Out(32),
            "done": Out(1),
            "restart": In(1),
            "ready": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.marks = ram = ClearedRam(BITS, (1 << self.width) // BITS)
        popular, nonpopular = self.popular, self.nonpopular
        m.d.comb += [ram.clear.eq(self.restart), self.ready.eq(ram.ready)]

        def word(sample):
            return sample[log2(BITS):]

        def bit(sample):
            return sample[:log2(BITS)]

        # Read, then write with the bit set; the word written last may not show in the read yet.
        pending, sample = Signal(), Signal(self.width)
        written, written_word = Signal(BITS), Signal.like(word(sample))
        known = Signal()
        merged = Signal(BITS)
        m.d.comb += merged.eq(
            Mux(known & (written_word == word(sample)), written, ram.read_data)
            | 1 << bit(sample))
        m.d.sync += [pending.eq(self.mark), sample.eq(self.sample)]
        with m.If(pending):
            m.d.comb += [
                ram.write_enable.eq(1),
                ram.write_address.eq(word(sample)),
                ram.write_data.eq(merged),
            ]
            m.d.sync += [written.eq(merged), written_word.eq(word(sample)), known.eq(1)]

        scanning, valid, last = Signal(), Signal(), Signal()
        at, final, position = Signal(self.width), Signal(self.width), Signal(self.width)
        cold, move, advance = Signal(), Signal(), Signal()
        to_popular, to_nonpopular = ~cold | last, cold | last
        m.d.comb += [
            cold.eq(ram.read_data.bit_select(bit(position), 1)),
            move.eq(valid & (~to_popular | ~popular.valid | popular.ready)
                    & (~to_nonpopular | ~nonpopular.valid | nonpopular.ready)),
            advance.eq(~valid | move),
            ram.read_enable.eq(advance),
            ram.read_address.eq(Mux(scanning, word(at), word(self.sample))),
            self.scan.ready.eq(~scanning & ~valid & ram.ready),
            self.done.eq(move & last),
        ]
        with m.If(popular.ready):
            m.d.sync += popular.valid.eq(0)
        with m.If(nonpopular.ready):
            m.d.sync += nonpopular.valid.eq(0)

        with m.If(advance):
            m.d.sync += [
                valid.eq(scanning),
                position.eq(at),
                last.eq(at == final),
                at.eq(at + 1),
            ]
            with m.If(scanning & (at == final)):
                m.d.sync += scanning.eq(0)
        with m.If(self.scan.valid & self.scan.ready):
            m.d.sync += [
                scanning.eq(1),
                at.eq(0),
                final.eq(self.scan.p.samples - 1),
                self.count.eq(0),
                known.eq(0),
            ]
        with m.If(move):
            m.d.sync += self.count.eq(self.count + ~cold)
            for out, wanted, present in (
                    (popular, to_popular, ~cold), (nonpopular, to_nonpopular, cold)):
                with m.If(wanted):
                    m.d.sync += [
                        out.valid.eq(1),
                        out.p.value.eq(position),
                        out.p.present.eq(present),
                        out.p.last.eq(last),
                    ]
            with m.If(bit(position).all() | last):
                m.d.comb += [
                    ram.write_enable.eq(1),
                    ram.write_address.eq(word(position)),
                    ram.write_data.eq(0),
                ]
        with m.If(self.restart):
            m.d.sync += [flag.eq(0) for flag in (
                pending, known, scanning, valid, popular.valid, nonpopular.valid)]
        return m
