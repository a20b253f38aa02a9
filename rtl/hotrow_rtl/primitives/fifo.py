"""A FIFO whose payloads lie in a `Ram`."""

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
        Rows of memory, a power of two. The output register holds one payload more.
    block : bool
        Use block RAM even for few rows, see `Ram`.

    Attributes
    ----------
    i : In(stream(shape))
    o : Out(stream(shape))
    clear : In(1)
        Drop all payloads, one that is pushed in the same cycle included.
    level : Out
        Number of payloads stored, the one at the output included.

    Timing
    ------
    Latency 2 cycles, one payload a cycle.
    """

    latency = 2

    def __init__(self, shape, depth, *, block=False):
        if depth < 2 or depth & (depth - 1):
            raise ValueError(f"depth must be a power of two of at least 2, not {depth}")
        self.shape, self.depth, self.block = shape, depth, block
        super().__init__({
            "i": In(stream.Signature(shape)),
            "o": Out(stream.Signature(shape)),
            "clear": In(1),
            "level": Out(range(depth + 2)),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.rows = rows = Ram(self.shape, self.depth, block=self.block)
        write_row, read_row = Signal(range(self.depth)), Signal(range(self.depth))
        stored = Signal(range(self.depth + 1))  # rows written and not yet read
        not_empty, full = Signal(), Signal()
        push, pop = Signal(), Signal()
        m.d.comb += [
            self.i.ready.eq(~full),
            push.eq(self.i.valid & self.i.ready),
            pop.eq(not_empty & (~self.o.valid | self.o.ready)),
            self.level.eq(stored + self.o.valid),
            rows.write_enable.eq(push),
            rows.write_address.eq(write_row),
            rows.write_data.eq(self.i.p),
            rows.read_enable.eq(pop),
            rows.read_address.eq(read_row),
            self.o.p.eq(rows.read_data),
        ]
        # Timing: `push` and `pop` only enable registers; neither enters a carry chain.
        m.d.sync += self.o.valid.eq(pop | self.o.valid & ~self.o.ready)
        with m.If(push):
            m.d.sync += write_row.eq(write_row + 1)
        with m.If(pop):
            m.d.sync += read_row.eq(read_row + 1)
        # Timing: `pop` is the later of the two, so `push` alone selects the next values.
        with m.If(push ^ pop):
            m.d.sync += [
                stored.eq(Mux(push, stored + 1, stored - 1)),
                not_empty.eq(push | (stored != 1)),
                full.eq(push & (stored == self.depth - 1)),
            ]
        with m.If(self.clear):
            m.d.sync += [signal.eq(0) for signal in (
                write_row, read_row, stored, not_empty, full, self.o.valid)]
        return m
