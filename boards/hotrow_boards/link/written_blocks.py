"""Track the blocks of memory that the card wrote, so that the host fetches only those."""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from hotrow_rtl.config import log2
from hotrow_rtl.primitives.ram import ClearedRam

WORD = 32  # blocks per row of the bitmap


class WrittenBlocks(wiring.Component):
    """A bitmap with a bit per block: writes set bits; the host's request reports and clears them.

    A write during a request is reported by that request or by the next one.

    Parameters
    ----------
    blocks : int
        A power of two, at least 64.

    Attributes
    ----------
    marks : In(stream(range(blocks)))
        Blocks that were written.
    drain : In(1)
        Report and clear blocks; hold until `done`.
    space : In(1)
        The reply has space for 32 more blocks.
    written : Out(stream(range(blocks)))
        Reported blocks.
    done : Out(1)
        High for a cycle at the end of a request.
    more : Out(1)
        With `done`: the request ended for lack of space, before the end of the bitmap.

    Timing
    ------
    A mark takes up to 3 cycles. A request takes 2 cycles per 32 blocks plus 1 per reported block.
    After reset, marks stall for `blocks` / 32 cycles.
    """

    def __init__(self, blocks):
        if blocks < 2 * WORD or blocks & (blocks - 1):
            raise ValueError(f"blocks must be a power of two of at least {2 * WORD}, not {blocks}")
        self.blocks = blocks
        super().__init__({
            "marks": In(stream.Signature(range(blocks))),
            "drain": In(1),
            "space": In(1),
            "written": Out(stream.Signature(range(blocks))),
            "done": Out(1),
            "more": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.bitmap = bitmap = ClearedRam(WORD, self.blocks // WORD)
        row_idx = Signal(range(self.blocks // WORD + 1))
        pending_row = Signal(range(self.blocks // WORD))
        pending, first_idx = Signal(WORD), Signal(range(WORD))
        mark_row = self.marks.p[log2(WORD):]
        for bit in reversed(range(WORD)):
            with m.If(pending[bit]):
                m.d.comb += first_idx.eq(bit)
        m.d.comb += [
            self.written.valid.eq(pending.any()),
            self.written.p.eq(Cat(first_idx, pending_row)),
        ]
        with m.If(self.written.valid & self.written.ready):
            m.d.sync += pending.eq(pending & (pending - 1))
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += bitmap.read_address.eq(Mux(self.marks.valid, mark_row, row_idx))
                with m.If(~bitmap.ready):
                    pass
                with m.Elif(self.marks.valid):
                    m.next = "MARK"
                with m.Elif(self.drain & ~pending.any()):
                    m.d.comb += [
                        self.more.eq(~self.space & (row_idx != self.blocks // WORD)),
                        self.done.eq(~self.space | (row_idx == self.blocks // WORD)),
                    ]
                    m.next = "SCAN"
                    with m.If(self.done):
                        m.d.sync += row_idx.eq(0)
                        m.next = "IDLE"
            with m.State("MARK"):
                m.d.comb += [
                    bitmap.write_enable.eq(1),
                    bitmap.write_address.eq(mark_row),
                    bitmap.write_data.eq(
                        bitmap.read_data | Const(1) << self.marks.p[:log2(WORD)]),
                    self.marks.ready.eq(1),
                ]
                m.next = "IDLE"
            with m.State("SCAN"):
                m.d.comb += [
                    bitmap.write_enable.eq(bitmap.read_data.any()),
                    bitmap.write_address.eq(row_idx),
                    bitmap.write_data.eq(0),
                ]
                m.d.sync += [pending.eq(bitmap.read_data), pending_row.eq(row_idx),
                             row_idx.eq(row_idx + 1)]
                m.next = "IDLE"
        return m
