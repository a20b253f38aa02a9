"""Between the words of rows and their beats."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..config import Config
from ..float.convert import Narrow
from ..float.formats import ElementType
from ..primitives.fifo import RamFifo
from ..primitives.skid_buffer import SkidBuffer
from .payloads import row_beat, row_geometry, row_setting, row_word


class RowBeats(wiring.Component):
    """Cut the words of rows into beats: one word of fp32 into one, of others into two.

    Parameters
    ----------
    config : Config

    Members
    -------
    setting : In(row_setting)
        Of all rows; set two cycles before the first word, stable while any is inside.
    words : In(stream(config.bus_width))
        Rows from their first byte on, each in bus words of its own.
    beats : Out(stream(row_beat(config)))
        Elements in the table's type, of 16 bits in the low half of a lane. A second beat of a
        last word that has no elements is left out.

    Timing
    ------
    Latency 1 cycle, one beat a cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "setting": In(row_setting),
            "words": In(stream.Signature(config.bus_width)),
            "beats": Out(stream.Signature(row_beat(config))),
        })

    def elaborate(self, platform):
        m = Module()
        lanes, out = self.config.lanes, self.beats
        m.submodules.taken = taken = SkidBuffer(self.config.bus_width)
        connect(m, words=flipped(self.words), taken=taken.i)
        row = row_geometry(m, self.config, self.setting)
        at = Signal.like(row.last_beat)
        word, values = taken.o.p, []
        for lane in range(lanes):
            half = Mux(at[0], word.word_select(lanes + lane, 16), word.word_select(lane, 16))
            whole = word.word_select(lane, 32)
            values.append(Cat(Mux(row.halves, half, whole[:16]), whole[16:]))
        m.d.comb += [
            out.valid.eq(taken.o.valid),
            out.p.values.eq(Cat(values)),
            out.p.last.eq(at == row.last_beat),
            taken.o.ready.eq(out.ready & (~row.halves | at[0] | out.p.last)),
        ]
        with m.If(out.valid & out.ready):
            m.d.sync += at.eq(Mux(out.p.last, 0, at + 1))
        return m


class RowWords(wiring.Component):
    """Round beats of fp32 to the type of a table and pack them into words.

    Whoever sends a beat reserves its room before: a beat that is on its way cannot wait.

    Parameters
    ----------
    config : Config

    Members
    -------
    type : In(ElementType)
        Of all rows; stable while any is inside.
    free : Out(1)
        There is room for another beat, the beat that is `reserved` in this cycle not counted.
    reserved : In(1)
        A beat will come, in this cycle or later. Only while `free`.
    beats : In(stream(row_beat(config), always_ready=True))
    words : Out(stream(row_word(config)))
        Where a row has no elements its words hold what means nothing.

    Timing
    ------
    Latency ``Narrow.latency + 3`` cycles, one beat a cycle; `depth` of them have room.
    """

    depth = 32

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "type": In(ElementType),
            "free": Out(1),
            "reserved": In(1),
            "beats": In(stream.Signature(row_beat(config), always_ready=True)),
            "words": Out(stream.Signature(row_word(config))),
        })

    def elaborate(self, platform):
        m = Module()
        config, given = self.config, self.beats
        lanes, width = config.lanes, config.bus_width
        halves = Signal()
        m.d.sync += halves.eq(self.type != ElementType.FP32)

        last, valid = Signal(Narrow.latency), Signal(Narrow.latency)
        m.d.sync += [last.eq(Cat(given.p.last, last)), valid.eq(Cat(given.valid, valid))]
        rounded = []
        for lane in range(lanes):
            m.submodules[f"narrow{lane}"] = narrow = Narrow()
            m.d.comb += [
                narrow.operands.valid.eq(given.valid),
                narrow.operands.p.value.eq(given.p.values.word_select(lane, 32)),
                narrow.operands.p.type.eq(self.type),
            ]
            rounded.append(narrow.results.p)
        came = valid[-1]

        # The first of two halves waits for the second.
        second, begun = Signal(), Signal(width // 2)
        low = Cat(value[:16] for value in rounded)
        whole = ~halves | second | last[-1]
        m.submodules.queue = queue = RamFifo(row_word(config), self.depth)
        packed = Signal(row_word(config))
        packed_valid = Signal()
        m.d.sync += [
            packed_valid.eq(came & whole),
            packed.last.eq(last[-1]),
            packed.data.eq(Mux(halves, Mux(second, Cat(begun, low), low), Cat(rounded))),
        ]
        with m.If(came):
            m.d.sync += [begun.eq(low), second.eq(~whole)]
        m.d.comb += [
            queue.i.valid.eq(packed_valid),
            queue.i.p.eq(packed),
        ]
        connect(m, queue=queue.o, words=flipped(self.words))

        # Beats that are on their way, and words that wait.
        inside = Signal(range(self.depth + 1))
        joined, left = Signal(), Signal()
        m.d.sync += [
            joined.eq(came & ~whole),
            left.eq(self.words.valid & self.words.ready),
            inside.eq(inside + self.reserved - joined - left),
        ]
        # As `inside` lags behind: two may be reserved that it does not tell.
        m.d.sync += self.free.eq(inside < self.depth - 3)
        return m
