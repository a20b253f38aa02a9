"""Move tally: the entries and bytes that moved, and the error with the lowest index."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..contract.encoding import Status
from .port.payloads import ended_copy, refusal


def subtotal() -> data.StructLayout:
    """What an outcome says of a move; the fields are those of `outcome`."""
    return data.StructLayout({
        "status": 8, "error_index": 32, "error_address": 64, "entries": 32, "bytes": 64})


class MoveTally(wiring.Component):
    """Count what moved, keep the error with the lowest index.

    Members
    -------
    start : In(1)
        A pulse before each command.
    bags : In(1)
        Entries are bags, the place of which in the list is `told` by a refusal, and the `source` of
        what is written.
    refusing, refused : In
        An entry that is not moved, in order of entries.
    ended : In(ended_copy())
        A copy that has landed or failed; an entry is over with its `last`. No entry that is
        refused later comes before one that is told here.
    done : Out(1)
        An entry ends.
    told : Out(subtotal())

    Timing
    ------
    `done` 1 cycle after `ended`, `told` 1 cycle after `done` and `refusing`.
    """

    start: In(1)
    bags: In(1)
    refusing: In(1)
    refused: In(refusal())
    ended: In(ended_copy())
    done: Out(1)
    told: Out(subtotal())

    def elaborate(self, platform):
        m = Module()
        told, ended = self.told, Signal(ended_copy())  # held, as it comes out of a memory
        identity, failed = ended.identity, ended.fault != 0
        broken = Signal()
        m.d.sync += ended.eq(self.ended)
        m.d.comb += self.done.eq(ended.valid & identity.last)
        with m.If(ended.valid):
            m.d.sync += broken.eq(Mux(identity.last, 0, broken | failed))
            with m.If(~failed):
                m.d.sync += told.bytes.eq(told.bytes + identity.bytes)
        with m.If(self.done & ~failed & ~broken):
            m.d.sync += told.entries.eq(told.entries + 1)

        # Entries are refused before the copies of earlier entries have ended: a copy that fails
        # may come before an error that is known, a refused entry never.
        index = Signal(32)  # of the error's entry
        lower = (told.status == Status.OK) | (identity.index < index)
        with m.If(ended.valid & failed & lower):
            m.d.sync += [
                told.status.eq(Status.SLVERR - 1 + ended.fault),
                index.eq(identity.index),
                told.error_index.eq(Mux(
                    self.bags, identity.source.as_value()[:32], identity.index)),
                told.error_address.eq(Mux(ended.written, identity.destination.as_value(),
                                          identity.source.as_value())),
            ]
        with m.Elif(self.refusing & (told.status == Status.OK)):
            m.d.sync += [
                told.status.eq(self.refused.status),
                index.eq(self.refused.index),
                told.error_index.eq(Mux(self.bags, self.refused.told, self.refused.index)),
                told.error_address.eq(self.refused.address),
            ]
        with m.If(self.start):
            m.d.sync += [told.eq(0), broken.eq(0), index.eq(0)]
        return m
