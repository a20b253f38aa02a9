"""Copy gate: an entry moves with everything it wants, or not at all."""

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ..port.payloads import addressed_copy, checked_copy, refusal


class RowStateGate(wiring.Component):
    """Hold a row back until the verdict on its state is known.

    Parameters
    ----------
    config : Config

    Members
    -------
    checked : In(stream(checked_copy(config)))
        Of each entry one copy, or its row and then its state; `last` on the final one.
    start : In(1)
        A pulse before each list.
    copies : Out(stream(addressed_copy(config)))
        The copies of entries without error, in order; `last` on the final one of an entry. A
        state of 0 bytes is left out.
    refused : Out(refusal)
        Valid with `refusing`, a pulse: an entry that is not moved, with its first error.
    refusing : Out(1)

    Timing
    ------
    Latency 1 cycle, for the row of an entry with state 1 cycle from its state's; throughput 1 copy
    per cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "checked": In(stream.Signature(checked_copy(config))),
            "start": In(1),
            "copies": Out(stream.Signature(addressed_copy(config))),
            "refused": Out(refusal()),
            "refusing": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        item, out = self.checked.p, self.copies
        held, held_index = Signal(checked_copy(self.config)), Signal(32)  # a copy, and its entry
        # What is held may leave, or is a row that waits for its state, refused if it is barred.
        leaves, waits, barred = Signal(), Signal(), Signal()
        index, good, taken = Signal(32), Signal(), Signal()
        has_more = item.copy.identity.bytes != 0
        m.d.comb += [
            # A row leaves when its state comes, which then takes its place.
            good.eq(~barred & ~item.refused),
            out.valid.eq(leaves | waits & self.checked.valid & good),
            out.p.eq(held.copy),
            out.p.identity.index.eq(held_index),
            self.checked.ready.eq(out.ready | Mux(waits, ~good, ~leaves)),
            taken.eq(self.checked.valid & self.checked.ready),
            self.refused.index.eq(held_index),
            self.refused.status.eq(held.status),
            self.refused.address.eq(Mux(held.no_address, 0, Mux(
                held.at_source, held.copy.identity.source.as_value(),
                held.copy.identity.destination.as_value()))),
        ]
        with m.If(waits):
            m.d.comb += out.p.identity.last.eq(~has_more)

        m.d.sync += self.refusing.eq(taken & item.copy.identity.last & ~good)
        with m.If(out.valid & out.ready):
            m.d.sync += leaves.eq(0)
        with m.If(taken):
            m.d.sync += [
                index.eq(index + item.copy.identity.last),
                waits.eq(~item.copy.identity.last),
                barred.eq(~item.copy.identity.last & item.refused),
                leaves.eq(item.copy.identity.last & good & (~waits | has_more)),
            ]
            with m.If(~waits):
                m.d.sync += held_index.eq(index)
            with m.If(~barred):
                m.d.sync += held.eq(item)
        with m.If(self.start):
            m.d.sync += index.eq(0)
        return m
