"""Copy gate: an entry moves with everything it wants, or not at all."""

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .config import Config
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
    start : In(1)
        A pulse before each list.
    copies : Out(stream(addressed_copy(config)))
        The copies of entries without error, in order; `last` on the final one of an entry. A
        state of 0 bytes is left out.
    refused : Out(refusal)
        Valid with `refusing`: an entry that is not moved, with its first error.
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
        item, out, layout = self.checked.p, self.copies, checked_copy(self.config)
        held = Signal(layout)
        waits, leaves = Signal(), Signal()  # what is held: a row, for its state, or what may leave
        barred = Signal()  # a row that waits and is refused
        index, held_index = Signal(32), Signal(32)  # of `item`; of `held`
        free, good = Signal(), Signal()
        has_more = item.copy.identity.bytes != 0
        bad = Signal(layout)
        m.d.comb += [
            # A row leaves when its state comes, which then takes its place.
            good.eq(~barred & ~item.refused),
            free.eq(~leaves | out.ready),
            out.valid.eq(leaves | waits & self.checked.valid & good),
            out.p.eq(held.copy),
            out.p.identity.index.eq(held_index),
            self.checked.ready.eq(Mux(waits, ~good | out.ready, Mux(
                good | ~item.copy.identity.last, free, 1))),
            bad.eq(Mux(barred, held, item)),
            self.refused.index.eq(index),
            self.refused.status.eq(bad.status),
            self.refused.address.eq(Mux(bad.no_address, 0, Mux(
                bad.at_source, bad.copy.identity.source.as_value(),
                bad.copy.identity.destination.as_value()))),
            self.refusing.eq(self.checked.valid & item.copy.identity.last & ~good),
        ]
        with m.If(waits):
            m.d.comb += out.p.identity.last.eq(~has_more)

        taken = self.checked.valid & self.checked.ready
        with m.If(out.valid & out.ready):
            m.d.sync += [waits.eq(0), barred.eq(0), leaves.eq(0)]
        with m.If(taken):
            m.d.sync += index.eq(index + item.copy.identity.last)
            with m.If(waits):
                m.d.sync += [held.eq(item), waits.eq(0), barred.eq(0), leaves.eq(good & has_more)]
            with m.Elif(good | ~item.copy.identity.last):
                m.d.sync += [
                    held.eq(item),
                    held_index.eq(index),
                    waits.eq(~item.copy.identity.last),
                    barred.eq(~item.copy.identity.last & item.refused),
                    leaves.eq(item.copy.identity.last),
                ]
        with m.If(self.start):
            m.d.sync += index.eq(0)
        return m
