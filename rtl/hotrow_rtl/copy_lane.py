"""Copy lane: the listed entries that one lane gets, as copies whose addresses have been checked."""

from amaranth import Cat, Module, ResetInserter
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from .config import Config
from .copy_addresses import CopyAddresses
from .copy_gate import CopyGate
from .layouts import element, packed_address, region_update, row_entry, table_update
from .row_entries import RowEntries
from .row_layouts import addressed_copy, refusal


class CopyLane(wiring.Component):
    """Turn every `row_ports`-th entry of a list, from entry `lane` on, into copies.

    Parameters
    ----------
    config : Config

    Members
    -------
    lane : In(range(config.row_ports))
        Constant; absent with one row port.
    table_update : In(table_update(config))
    region_update : In(region_update(config))
    rows : In(stream(element(row_entry)))
    targets : In(stream(element(32)))
        The lane's entries, and its slots of a command that is `listed`.
    start : In(1)
        A pulse before each list.
    listed, with_state, destination, state_destination, stride : In
        As of `MoveControl`.
    copies : Out(stream(addressed_copy(config)))
    refused, refusing : Out
        As of `CopyGate`; indices are those of the whole list.
    clear : In(1)
        Forget the list; tables and regions stay.
    ready : Out(1)
        Low while tables and regions are cleared after reset.

    Timing
    ------
    Latency 13 cycles, with state 1 more; throughput 1 copy per cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            **({"lane": In(range(config.row_ports))} if config.row_ports > 1 else {}),
            "table_update": In(table_update(config)),
            "region_update": In(region_update(config)),
            "rows": In(stream.Signature(element(row_entry))),
            "targets": In(stream.Signature(element(32))),
            "start": In(1),
            "listed": In(1),
            "with_state": In(1),
            "destination": In(packed_address),
            "state_destination": In(packed_address),
            "stride": In(16),
            "copies": Out(stream.Signature(addressed_copy(config))),
            "refused": Out(refusal()),
            "refusing": Out(1),
            "clear": In(1),
            "ready": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        cleared = ResetInserter(self.clear)
        entries, gate = RowEntries(config), CopyGate(config)
        m.submodules.entries = cleared(entries)
        m.submodules.addresses = addresses = CopyAddresses(config)  # keeps its tables
        m.submodules.gate = cleared(gate)

        connect(m, rows=flipped(self.rows), entries=entries.rows)
        connect(m, targets=flipped(self.targets), entries=entries.targets)
        connect(m, entries=entries.copies, addresses=addresses.wanted)
        connect(m, addresses=addresses.checked, gate=gate.checked)
        connect(m, gate=gate.copies, copies=flipped(self.copies))
        connect(m, flipped(self.table_update), addresses.table_update)
        connect(m, flipped(self.region_update), addresses.region_update)
        m.d.comb += [
            entries.start.eq(self.start),
            gate.start.eq(self.start),
            entries.listed.eq(self.listed),
            entries.with_state.eq(self.with_state),
            addresses.destination.eq(self.destination),
            addresses.state_destination.eq(self.state_destination),
            addresses.stride.eq(self.stride),
            self.refused.eq(gate.refused),
            self.refusing.eq(gate.refusing),
            self.ready.eq(addresses.ready),
        ]
        if config.row_ports > 1:  # the lane's own positions become those of the list
            with m.If(~self.listed):
                m.d.comb += addresses.wanted.p.slot.eq(Cat(self.lane, entries.copies.p.slot))
            m.d.comb += [
                self.copies.p.identity.index.eq(Cat(self.lane, gate.copies.p.identity.index)),
                self.refused.index.eq(Cat(self.lane, gate.refused.index)),
            ]
        return m
