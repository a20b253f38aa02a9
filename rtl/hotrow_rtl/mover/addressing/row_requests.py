"""Row entries: the entries of a list, each with its slot, as the copies that it wants."""

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...config import Config
from ...interfaces.records import element, row_entry
from ..port.payloads import wanted_copy


class RowRequests(wiring.Component):
    """Join entries and slots; with state, make two copies of each entry.

    Parameters
    ----------
    config : Config

    Members
    -------
    rows : In(stream(element(row_entry)))
    targets : In(stream(element(32)))
        Slots, taken with `listed`; else slots are the positions in the list.
    start : In(1)
        A pulse before each list.
    listed, with_state : In(1)
        Stable during a list.
    copies : Out(stream(wanted_copy(config)))
        Of each entry its row and, with `with_state`, then its state.

    Timing
    ------
    No latency; one copy per cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "rows": In(stream.Signature(element(row_entry))),
            "targets": In(stream.Signature(element(32))),
            "start": In(1),
            "listed": In(1),
            "with_state": In(1),
            "copies": Out(stream.Signature(wanted_copy(config))),
        })

    def elaborate(self, platform):
        m = Module()
        index, second = Signal(32), Signal()
        row, slot, copy = self.rows.p, self.targets.p, self.copies.p
        last, taken = Signal(), Signal()
        m.d.comb += [
            last.eq(second | ~self.with_state),
            self.copies.valid.eq(self.rows.valid & (self.targets.valid | ~self.listed)),
            taken.eq(self.copies.valid & self.copies.ready),
            self.rows.ready.eq(taken & last),
            self.targets.ready.eq(taken & last & self.listed),
            copy.row.eq(row.value.row),
            copy.table.eq(row.value.table),
            copy.unknown.eq(row.value.table >= self.config.tables),
            copy.entry_fault.eq(row.fault),
            copy.slot.eq(Mux(self.listed, slot.value, index)),
            copy.slot_fault.eq(Mux(self.listed, slot.fault, 0)),
            copy.is_state.eq(second),
            copy.last.eq(last),
            copy.ends.eq(self.rows.p.last),
        ]
        with m.If(taken):
            m.d.sync += [second.eq(~last), index.eq(index + last)]
        with m.If(self.start):
            m.d.sync += index.eq(0)
        return m
