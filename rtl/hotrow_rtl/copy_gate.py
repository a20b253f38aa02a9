"""Copy gate: an entry moves with everything it wants, or not at all."""

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .config import Config
from .contract import Status
from .row_layouts import addressed_copy, checked_copy, refusal


class CopyGate(wiring.Component):
    """Hold a row back until the verdict on its state is known.

    Parameters
    ----------
    config : Config

    Members
    -------
    checked : In(stream(checked_copy(config)))
        Of each entry one copy, or its row and then its state; `last` on the final one.
    copies : Out(stream(addressed_copy(config)))
        The copies of entries without error, in order; `last` on the final one of an entry. A
        state of 0 bytes is left out.
    refused : Out(refusal)
        Valid with `refusing`: an entry that is not moved, with its first error.
    refusing : Out(1)

    Timing
    ------
    Latency 1 cycle for the final copy of an entry; throughput 1 copy per cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "checked": In(stream.Signature(checked_copy(config))),
            "copies": Out(stream.Signature(addressed_copy(config))),
            "refused": Out(refusal()),
            "refusing": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        item, out = self.checked.p, self.copies
        row, holds_row = Signal(checked_copy(self.config)), Signal()  # waits for its state
        state, holds_state = Signal(addressed_copy(self.config)), Signal()  # follows its row
        row_bad = holds_row & (row.status != Status.OK)
        free = Signal()
        has_more = item.copy.identity.bytes != 0
        m.d.comb += free.eq(~out.valid | out.ready)

        with m.If(out.ready):
            m.d.sync += out.valid.eq(0)
        with m.If(holds_state & free):
            m.d.sync += [out.valid.eq(1), out.p.eq(state), holds_state.eq(0)]

        with m.If(~item.copy.identity.last):
            m.d.comb += self.checked.ready.eq(~holds_row)
            with m.If(self.checked.valid & ~holds_row):
                m.d.sync += [row.eq(item), holds_row.eq(1)]
        with m.Elif(row_bad | (item.status != Status.OK)):
            worse = Mux(row_bad, row, item)
            m.d.comb += [
                self.checked.ready.eq(1),
                self.refusing.eq(self.checked.valid),
                self.refused.index.eq(item.copy.identity.index),
                self.refused.status.eq(checked_copy(self.config)(worse).status),
                self.refused.address.eq(checked_copy(self.config)(worse).address),
            ]
            with m.If(self.checked.valid):
                m.d.sync += holds_row.eq(0)
        with m.Else():
            m.d.comb += self.checked.ready.eq(free & ~holds_state)
            with m.If(self.checked.valid & self.checked.ready):
                m.d.sync += [
                    out.valid.eq(1),
                    out.p.eq(Mux(holds_row, row.copy, item.copy)),
                    state.eq(item.copy),
                    holds_state.eq(holds_row & has_more),
                    holds_row.eq(0),
                ]
                with m.If(holds_row):
                    m.d.sync += out.p.identity.last.eq(~has_more)
        return m
