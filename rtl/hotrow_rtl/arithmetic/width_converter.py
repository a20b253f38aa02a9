"""Width conversion between the bus words and the beats of rows."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..config import ArithmeticUnits
from ..float.convert import Narrow
from ..float.formats import ElementType
from ..primitives.fifo import RamFifo
from ..primitives.skid_buffer import SkidBuffer
from .payloads import row_beat, row_format, row_geometry, row_word


class WordsToBeats(wiring.Component):
    """Split the words of rows into beats: one beat per fp32 word, two per word of 16-bit elements.

    Parameters
    ----------
    config : ArithmeticUnits

    Attributes
    ----------
    row_format : In(row_format)
        Of all rows. Set two cycles before the first word and stable while words are inside.
    words : In(stream(config.bus_width))
        Each row begins at the first byte of a word.
    beats : Out(stream(row_beat(config)))
        Elements in the type of the row, a 16-bit element in the low half of its lane. If the
        second half of a row's last word has no elements, the unit omits the second beat.

    Timing
    ------
    Latency 1 cycle, one beat per cycle.
    """

    def __init__(self, config: ArithmeticUnits):
        self.config = config
        super().__init__({
            "row_format": In(row_format),
            "words": In(stream.Signature(config.bus_width)),
            "beats": Out(stream.Signature(row_beat(config))),
        })

    def elaborate(self, platform):
        m = Module()
        lanes, out = self.config.lanes, self.beats
        m.submodules.skid = skid = SkidBuffer(self.config.bus_width)
        connect(m, words=flipped(self.words), skid=skid.i)
        geometry = row_geometry(m, self.config, self.row_format)
        beat_idx = Signal.like(geometry.last_beat)
        word, values = skid.o.p, []
        for lane in range(lanes):
            half = Mux(beat_idx[0], word.word_select(lanes + lane, 16), word.word_select(lane, 16))
            whole = word.word_select(lane, 32)
            values.append(Cat(Mux(geometry.half_width, half, whole[:16]), whole[16:]))
        m.d.comb += [
            out.valid.eq(skid.o.valid),
            out.p.values.eq(Cat(values)),
            out.p.last.eq(beat_idx == geometry.last_beat),
            skid.o.ready.eq(out.ready & (~geometry.half_width | beat_idx[0] | out.p.last)),
        ]
        with m.If(out.valid & out.ready):
            m.d.sync += beat_idx.eq(Mux(out.p.last, 0, beat_idx + 1))
        return m


class BeatsToWords(wiring.Component):
    """Round fp32 beats to the element type of the rows and pack them into words.

    The beats come from pipelines that cannot stall, so the sender reserves space before it issues
    a beat.

    Parameters
    ----------
    config : ArithmeticUnits

    Attributes
    ----------
    type : In(ElementType)
        Of all rows. Stable while beats are inside.
    space_for_one : Out(1)
        The buffer has space for one more beat, not counting the one reserved in this cycle.
    reserve : In(1)
        Reserve space for one beat that is sent in this cycle or later. Only while `space_for_one`.
    beats : In(stream(row_beat(config), always_ready=True))
    words : Out(stream(row_word(config)))
        Bytes past the end of a row are undefined.

    Timing
    ------
    Latency ``Narrow.latency + 3`` cycles, one beat per cycle. The buffer holds `depth` - 2
    words.
    """

    depth = 32

    def __init__(self, config: ArithmeticUnits):
        self.config = config
        super().__init__({
            "type": In(ElementType),
            "space_for_one": Out(1),
            "reserve": In(1),
            "beats": In(stream.Signature(row_beat(config), always_ready=True)),
            "words": Out(stream.Signature(row_word(config))),
        })

    def elaborate(self, platform):
        m = Module()
        config, beats = self.config, self.beats
        lanes, width = config.lanes, config.bus_width
        half_width = Signal()
        m.d.sync += half_width.eq(self.type != ElementType.FP32)

        last, valid = Signal(Narrow.latency), Signal(Narrow.latency)
        m.d.sync += [last.eq(Cat(beats.p.last, last)), valid.eq(Cat(beats.valid, valid))]
        narrowed = []
        for lane in range(lanes):
            m.submodules[f"narrow{lane}"] = narrow = Narrow()
            m.d.comb += [
                narrow.operands.valid.eq(beats.valid),
                narrow.operands.p.value.eq(beats.p.values.word_select(lane, 32)),
                narrow.operands.p.type.eq(self.type),
            ]
            narrowed.append(narrow.results.p)
        narrowed_valid = valid[-1]

        # Two beats of 16-bit elements make a word.
        second_half, first_half = Signal(), Signal(width // 2)
        low = Cat(value[:16] for value in narrowed)
        completes = ~half_width | second_half | last[-1]
        m.submodules.queue = queue = RamFifo(row_word(config), self.depth)
        packed = Signal(row_word(config))
        packed_valid = Signal()
        m.d.sync += [
            packed_valid.eq(narrowed_valid & completes),
            packed.last.eq(last[-1]),
            packed.data.eq(
                Mux(half_width, Mux(second_half, Cat(first_half, low), low), Cat(narrowed))),
        ]
        with m.If(narrowed_valid):
            m.d.sync += [first_half.eq(low), second_half.eq(~completes)]
        m.d.comb += [
            queue.i.valid.eq(packed_valid),
            queue.i.p.eq(packed),
        ]
        connect(m, queue=queue.o, words=flipped(self.words))

        # `used_count`: reserved beats and stored words. The reservations of the last two cycles
        # are not in the count that sets `space_for_one`.
        used_count = Signal(range(self.depth + 1))
        merged, word_fire = Signal(), Signal()  # registered
        m.d.sync += [
            merged.eq(narrowed_valid & ~completes),
            word_fire.eq(self.words.valid & self.words.ready),
            used_count.eq(used_count + self.reserve - merged - word_fire),
        ]
        m.d.sync += self.space_for_one.eq(used_count < self.depth - 3)
        return m
