"""Copy lane: the entries that one lane gets, as copies whose addresses have been checked."""

from amaranth import Cat, Module, Mux, ResetInserter, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...config import Config
from ...interfaces.records import element, region_update, row_entry, table_update
from ...primitives.stream_routing import stream_connect
from ..port.payloads import addressed_copy, checked_copy, move_setting, refusal, wanted_copy
from .address_pipeline import AddressPipeline
from .row_requests import RowRequests
from .row_state_gate import RowStateGate
from .span_chunks import SpanChunks


class AddressLane(wiring.Component):
    """Turn every `row_ports`-th entry of a list, or piece of a span, from number `lane` on, into
    copies.

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
        A pulse before each command.
    setting : In(move_setting())
        From the pulse until the command is over.
    copies : Out(stream(addressed_copy(config)))
    wanted : In(stream(wanted_copy(config)))
    checked : Out(stream(checked_copy(config)))
        Of commands on `bags`, in place of lists and copies.
    refused, refusing : Out
        As of `RowStateGate`; indices are those of the whole list.
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
            "setting": In(move_setting()),
            "copies": Out(stream.Signature(addressed_copy(config))),
            **({"wanted": In(stream.Signature(wanted_copy(config))),
                "checked": Out(stream.Signature(checked_copy(config)))}
               if config.arithmetic else {}),
            "refused": Out(refusal()),
            "refusing": Out(1),
            "clear": In(1),
            "ready": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        config, setting = self.config, self.setting
        cleared = ResetInserter(self.clear)
        entries, pieces, gate = RowRequests(config), SpanChunks(), RowStateGate(config)
        m.submodules.pieces = cleared(pieces)
        m.submodules.entries = cleared(entries)
        m.submodules.addresses = addresses = AddressPipeline(config)  # keeps its tables
        m.submodules.gate = cleared(gate)

        final = Signal()  # the last piece is one of this lane's
        connect(m, targets=flipped(self.targets), entries=entries.targets)
        with m.If(setting.bags if config.arithmetic else 0):
            if config.arithmetic:
                stream_connect(m, self.wanted, addresses.wanted)
                stream_connect(m, addresses.checked, self.checked)
        with m.Else():
            stream_connect(m, entries.copies, addresses.wanted)
            stream_connect(m, addresses.checked, gate.checked)
        connect(m, gate=gate.copies, copies=flipped(self.copies))
        connect(m, flipped(self.table_update), addresses.table_update)
        connect(m, flipped(self.region_update), addresses.region_update)
        m.d.comb += [
            # A span has pieces, any other command a list of rows.
            pieces.start.eq(self.start & setting.spans),
            pieces.count.eq(setting.count),
            pieces.ready.eq(entries.rows.ready),
            final.eq(1),
            self.rows.ready.eq(entries.rows.ready),
            entries.rows.valid.eq(self.rows.valid | pieces.valid),
            entries.rows.p.eq(self.rows.p),
            entries.rows.p.last.eq(Mux(setting.spans, pieces.last & final, self.rows.p.last)),
            entries.start.eq(self.start),
            gate.start.eq(self.start),
            entries.listed.eq(setting.listed),
            entries.with_state.eq(setting.with_state),
            addresses.setting.eq(setting),
            self.refused.eq(gate.refused),
            self.refusing.eq(gate.refusing),
            self.ready.eq(addresses.ready),
        ]
        if config.row_ports > 1:  # the lane's own positions become those of the list
            others = config.row_ports - 1
            m.d.comb += [
                pieces.count.eq((setting.count + others - self.lane) >> len(self.lane)),
                final.eq((setting.count - 1)[:len(self.lane)] == self.lane),
            ]
            with m.If(~setting.listed & ~setting.bags):
                m.d.comb += addresses.wanted.p.slot.eq(Cat(self.lane, entries.copies.p.slot))
            m.d.comb += [
                self.copies.p.identity.index.eq(Cat(self.lane, gate.copies.p.identity.index)),
                self.refused.index.eq(Cat(self.lane, gate.refused.index)),
            ]
        return m
