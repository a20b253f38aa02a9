"""Length store: the lengths of a jagged batch between their sum and their use."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .config import Config
from .length_sum import LENGTH_BYTES
from .ram import Ram
from .skid import Skid


def kept_words(config: Config) -> stream.Signature:
    """Bus words of lengths."""
    return stream.Signature(data.StructLayout({"data": config.bus_width}))


class LengthStore(wiring.Component):
    """A queue of bus words that leave only once they are kept.

    Parameters
    ----------
    config : Config

    Members
    -------
    i : In(stream)
        Words of `data`. At most as many between two of `keep` or `drop` as hold
        `config.stored_lengths`.
    keep, drop : In(1)
        A pulse lets the words since the last such pulse leave, or forgets them.
    o : Out(stream)
        The words kept, in order.

    Timing
    ------
    One word a cycle; the first leaves 3 cycles after `keep`. A word waits for room.
    """

    def __init__(self, config: Config):
        self.rows = config.stored_lengths * LENGTH_BYTES // config.bus_bytes
        self.config = config
        super().__init__({
            "i": In(kept_words(config)),
            "keep": In(1),
            "drop": In(1),
            "o": Out(kept_words(config)),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.exit = exit_ = Skid(self.config.bus_width)
        m.submodules.memory = memory = Ram(self.config.bus_width, self.rows)
        write_at, read_at, begin = (
            Signal(range(self.rows), name=name) for name in ("write_at", "read_at", "begin"))
        free = Signal(range(self.rows + 1), init=self.rows)
        fresh, kept = (Signal(range(self.rows + 1), name=name) for name in ("fresh", "kept"))
        taken, load, read = Signal(), Signal(), Signal()
        m.d.comb += [
            self.i.ready.eq(free != 0),
            taken.eq(self.i.valid & self.i.ready),
            load.eq((kept != 0) & (~read | exit_.i.ready)),
            memory.write_enable.eq(taken),
            memory.write_address.eq(write_at),
            memory.write_data.eq(self.i.p.data),
            memory.read_enable.eq(load),
            memory.read_address.eq(read_at),
            exit_.i.valid.eq(read),
            exit_.i.p.eq(memory.read_data),
            self.o.valid.eq(exit_.o.valid),
            self.o.p.data.eq(exit_.o.p),
            exit_.o.ready.eq(self.o.ready),
        ]
        m.d.sync += [
            write_at.eq(Mux(self.drop, begin, write_at + taken)),
            read_at.eq(read_at + load),
            fresh.eq(Mux(self.keep | self.drop, 0, fresh + taken)),
            kept.eq(kept + Mux(self.keep, fresh, 0) - load),
            free.eq(free + Mux(self.drop, fresh, 0) + load - taken),
            read.eq(load | read & ~exit_.i.ready),
        ]
        with m.If(self.keep):
            m.d.sync += begin.eq(write_at)
        return m
