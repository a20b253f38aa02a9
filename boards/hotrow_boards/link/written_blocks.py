"""Which blocks of memory the card wrote, so that only they travel over the link."""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from hotrow_rtl.config import log2
from hotrow_rtl.primitives.ram import ClearedRam

WORD = 32  # blocks that are looked through at a time


class WrittenBlocks(wiring.Component):
    """A bit per block: set by writes, told and cleared on request.

    A write during a request is told by it or by the next one.

    Parameters
    ----------
    blocks : int
        A power of two, at least 64.

    Members
    -------
    marks : In(stream(range(blocks)))
        Blocks that have been written.
    take : In(1)
        Tell blocks, until `ended`.
    room : In(1)
        For 32 more.
    found : Out(stream(range(blocks)))
    ended : Out(1)
        High for a cycle: all has been told, or with `more`, there was no room.
    more : Out(1)

    Timing
    ------
    Up to 4 cycles for a mark. 2 cycles for every 32 blocks, and one for each that is found. After
    reset, marks wait `blocks` / 32 cycles.
    """

    def __init__(self, blocks):
        if blocks < 2 * WORD or blocks & (blocks - 1):
            raise ValueError(f"blocks must be a power of two of at least {2 * WORD}, not {blocks}")
        self.blocks = blocks
        super().__init__({
            "marks": In(stream.Signature(range(blocks))),
            "take": In(1),
            "room": In(1),
            "found": Out(stream.Signature(range(blocks))),
            "ended": Out(1),
            "more": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.rows = rows = ClearedRam(WORD, self.blocks // WORD)
        at, base = Signal(range(self.blocks // WORD + 1)), Signal(range(self.blocks // WORD))
        pending, first = Signal(WORD), Signal(range(WORD))
        marked = self.marks.p[log2(WORD):]
        for bit in reversed(range(WORD)):
            with m.If(pending[bit]):
                m.d.comb += first.eq(bit)
        m.d.comb += [
            self.found.valid.eq(pending.any()),
            self.found.p.eq(Cat(first, base)),
        ]
        with m.If(self.found.valid & self.found.ready):
            m.d.sync += pending.eq(pending & (pending - 1))
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += rows.read_address.eq(Mux(self.marks.valid, marked, at))
                with m.If(~rows.ready):
                    pass
                with m.Elif(self.marks.valid):
                    m.next = "MARK"
                with m.Elif(self.take & ~pending.any()):
                    m.d.comb += [
                        self.more.eq(~self.room & (at != self.blocks // WORD)),
                        self.ended.eq(~self.room | (at == self.blocks // WORD)),
                    ]
                    m.next = "LOOK"
                    with m.If(self.ended):
                        m.d.sync += at.eq(0)
                        m.next = "IDLE"
            with m.State("MARK"):
                m.d.comb += [
                    rows.write_enable.eq(1),
                    rows.write_address.eq(marked),
                    rows.write_data.eq(
                        rows.read_data | Const(1) << self.marks.p[:log2(WORD)]),
                    self.marks.ready.eq(1),
                ]
                m.next = "IDLE"
            with m.State("LOOK"):
                m.d.comb += [
                    rows.write_enable.eq(rows.read_data.any()),
                    rows.write_address.eq(at),
                    rows.write_data.eq(0),
                ]
                m.d.sync += [pending.eq(rows.read_data), base.eq(at), at.eq(at + 1)]
                m.next = "IDLE"
        return m
