"""RowRequests: the transfers of listed rows."""

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...interfaces.records import element, row_entry
from ..port.payloads import transfer_request


class RowRequests(wiring.Component):
    """Join the lists of rows and slots; with state, request two transfers per entry.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    rows : In(stream(element(row_entry)))
    targets : In(stream(element(32)))
        Slots, with `listed`; else the slot is the position in the list.
    start : In(1)
        A pulse before each list.
    listed, with_state : In(1)
        Stable during a list.
    requests : Out(stream(transfer_request(config)))
        Of each entry the row and, with `with_state`, then its state.

    Timing
    ------
    Combinational; one transfer per cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "rows": In(stream.Signature(element(row_entry))),
            "targets": In(stream.Signature(element(32))),
            "start": In(1),
            "listed": In(1),
            "with_state": In(1),
            "requests": Out(stream.Signature(transfer_request(config))),
        })

    def elaborate(self, platform):
        m = Module()
        index, second = Signal(32), Signal()
        row, slot, request = self.rows.p, self.targets.p, self.requests.p
        last, fire = Signal(), Signal()
        m.d.comb += [
            last.eq(second | ~self.with_state),
            self.requests.valid.eq(self.rows.valid & (self.targets.valid | ~self.listed)),
            fire.eq(self.requests.valid & self.requests.ready),
            self.rows.ready.eq(fire & last),
            self.targets.ready.eq(fire & last & self.listed),
            request.row.eq(row.value.row),
            request.table.eq(row.value.table),
            request.unknown.eq(row.value.table >= self.config.tables),
            request.entry_fault.eq(row.fault),
            request.slot.eq(Mux(self.listed, slot.value, index)),
            request.slot_fault.eq(Mux(self.listed, slot.fault, 0)),
            request.is_state.eq(second),
            request.last.eq(last),
            request.last_entry.eq(self.rows.p.last),
        ]
        with m.If(fire):
            m.d.sync += [second.eq(~last), index.eq(index + last)]
        with m.If(self.start):
            m.d.sync += index.eq(0)
        return m
