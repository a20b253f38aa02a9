"""RowStateGate: a row and its state are transferred together, or neither."""

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ..port.payloads import checked_transfer, refusal, row_transfer


class RowStateGate(wiring.Component):
    """Hold each row until its state has been checked.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    checked : In(stream(checked_transfer(config)))
        Of each entry one transfer, or its row and then its state; `last` marks the final one.
    start : In(1)
        A pulse before each list.
    transfers : Out(stream(row_transfer(config)))
        The transfers of entries without an error, in order; `last` marks the final one of an entry.
        A state of 0 bytes is omitted.
    refused_valid : Out(1)
        A pulse per entry with an error.
    refused : Out(refusal())
        The entry's first error, with `refused_valid`.

    Timing
    ------
    Latency 1 cycle; a row with state leaves when its state comes. Throughput 1 transfer per cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "checked": In(stream.Signature(checked_transfer(config))),
            "start": In(1),
            "transfers": Out(stream.Signature(row_transfer(config))),
            "refused": Out(refusal()),
            "refused_valid": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        item, out = self.checked.p, self.transfers
        held, held_index = Signal(checked_transfer(self.config)), Signal(32)
        # `held` is a transfer that may leave (`held_valid`), or a row that waits for its state
        # (`awaits_state`); an error of the row is in `row_rejected`.
        held_valid, awaits_state, row_rejected = Signal(), Signal(), Signal()
        index, accepted, fire = Signal(32), Signal(), Signal()
        has_bytes = item.transfer.info.bytes != 0
        m.d.comb += [
            # The row leaves when its state comes and replaces it in `held`.
            accepted.eq(~row_rejected & ~item.refused),
            out.valid.eq(held_valid | awaits_state & self.checked.valid & accepted),
            out.p.eq(held.transfer),
            out.p.info.index.eq(held_index),
            self.checked.ready.eq(out.ready | Mux(awaits_state, ~accepted, ~held_valid)),
            fire.eq(self.checked.valid & self.checked.ready),
            self.refused.index.eq(held_index),
            self.refused.status.eq(held.status),
            self.refused.address.eq(Mux(held.no_address, 0, Mux(
                held.at_source, held.transfer.info.source.as_value(),
                held.transfer.info.destination.as_value()))),
        ]
        with m.If(awaits_state):
            m.d.comb += out.p.info.last.eq(~has_bytes)

        m.d.sync += self.refused_valid.eq(fire & item.transfer.info.last & ~accepted)
        with m.If(out.valid & out.ready):
            m.d.sync += held_valid.eq(0)
        with m.If(fire):
            m.d.sync += [
                index.eq(index + item.transfer.info.last),
                awaits_state.eq(~item.transfer.info.last),
                row_rejected.eq(~item.transfer.info.last & item.refused),
                held_valid.eq(
                    item.transfer.info.last & accepted & (~awaits_state | has_bytes)),
            ]
            with m.If(~awaits_state):
                m.d.sync += held_index.eq(index)
            with m.If(~row_rejected):
                m.d.sync += held.eq(item)
        with m.If(self.start):
            m.d.sync += index.eq(0)
        return m
