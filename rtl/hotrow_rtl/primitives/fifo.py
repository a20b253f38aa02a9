"""A queue in a `Ram`, for words too many to keep in registers."""

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .ram import Ram


class RamFifo(wiring.Component):
    """First in, first out.

    Parameters
    ----------
    shape : ShapeCastable
    depth : int
        Rows of memory, a power of two. One payload more waits at the output.

    Members
    -------
    i : In(stream(shape))
    o : Out(stream(shape))
    clear : In(1)
        Forget everything, a payload that comes in the same cycle included.
    level : Out
        Payloads inside, the one at the output included.

    Timing
    ------
    Latency 2 cycles, one payload a cycle.
    """

    latency = 2

    def __init__(self, shape, depth):
        if depth < 2 or depth & (depth - 1):
            raise ValueError(f"depth must be a power of two of at least 2, not {depth}")
        self.shape, self.depth = shape, depth
        super().__init__({
            "i": In(stream.Signature(shape)),
            "o": Out(stream.Signature(shape)),
            "clear": In(1),
            "level": Out(range(depth + 2)),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.rows = rows = Ram(self.shape, self.depth)
        write_at, read_at = Signal(range(self.depth)), Signal(range(self.depth))
        stored = Signal(range(self.depth + 1))  # rows written and not yet read
        some, full = Signal(), Signal()  # rows are, all rows are
        store, load = Signal(), Signal()
        m.d.comb += [
            self.i.ready.eq(~full),
            store.eq(self.i.valid & self.i.ready),
            load.eq(some & (~self.o.valid | self.o.ready)),
            self.level.eq(stored + self.o.valid),
            rows.write_enable.eq(store),
            rows.write_address.eq(write_at),
            rows.write_data.eq(self.i.p),
            rows.read_enable.eq(load),
            rows.read_address.eq(read_at),
            self.o.p.eq(rows.read_data),
        ]
        # `store` and `load` come late: they enable registers, and stay out of carry chains.
        m.d.sync += self.o.valid.eq(load | self.o.valid & ~self.o.ready)
        with m.If(store):
            m.d.sync += write_at.eq(write_at + 1)
        with m.If(load):
            m.d.sync += read_at.eq(read_at + 1)
        # And `load` comes last: what becomes of these is told from `store` alone.
        with m.If(store ^ load):
            m.d.sync += [
                stored.eq(Mux(store, stored + 1, stored - 1)),
                some.eq(store | (stored != 1)),
                full.eq(store & (stored == self.depth - 1)),
            ]
        with m.If(self.clear):
            m.d.sync += [
                signal.eq(0) for signal in (write_at, read_at, stored, some, full, self.o.valid)]
        return m
