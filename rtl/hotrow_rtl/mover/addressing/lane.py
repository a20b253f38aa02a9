"""AddressLane: the entries of one lane as transfers with checked addresses."""

from amaranth import Cat, Module, Mux, ResetInserter, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...config import Config
from ...interfaces.records import element, region_update, row_entry, table_update
from ...primitives.stream_routing import stream_connect
from ..port.payloads import (
    checked_transfer,
    refusal,
    row_transfer,
    transfer_request,
    transfer_setting,
)
from .address_pipeline import AddressPipeline
from .row_requests import RowRequests
from .row_state_gate import RowStateGate
from .span_chunks import SpanChunks


class AddressLane(wiring.Component):
    """Turn every `row_ports`-th entry of a list, or chunk of a span, starting with number `lane`,
    into transfers.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    lane : In(range(config.row_ports))
        Constant; absent with one row port.
    table_update : In(table_update(config))
    region_update : In(region_update(config))
    rows : In(stream(element(row_entry)))
    targets : In(stream(element(32)))
        The lane's entries, and with `listed` its slots.
    start : In(1)
        A pulse before each command.
    setting : In(transfer_setting())
        Stable from `start` until the command completes.
    transfers : Out(stream(row_transfer(config)))
    requests : In(stream(transfer_request(config)))
    checked : Out(stream(checked_transfer(config)))
        With `bags`: the address check for `BagPipeline`, in place of lists and transfers.
    refused, refused_valid : Out
        See `RowStateGate`; indices are those of the whole list.
    clear : In(1)
        Clear everything but tables and regions.
    ready : Out(1)
        Low while tables and regions are cleared after reset.

    Timing
    ------
    Latency 13 cycles, 14 with state; throughput 1 transfer per cycle.
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
            "setting": In(transfer_setting()),
            "transfers": Out(stream.Signature(row_transfer(config))),
            **({"requests": In(stream.Signature(transfer_request(config))),
                "checked": Out(stream.Signature(checked_transfer(config)))}
               if config.arithmetic else {}),
            "refused": Out(refusal()),
            "refused_valid": Out(1),
            "clear": In(1),
            "ready": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        config, setting = self.config, self.setting
        cleared = ResetInserter(self.clear)
        entries, chunks, gate = RowRequests(config), SpanChunks(), RowStateGate(config)
        m.submodules.chunks = cleared(chunks)
        m.submodules.entries = cleared(entries)
        m.submodules.addresses = addresses = AddressPipeline(config)  # keeps its tables
        m.submodules.gate = cleared(gate)

        has_last_chunk = Signal()
        connect(m, targets=flipped(self.targets), entries=entries.targets)
        with m.If(setting.bags if config.arithmetic else 0):
            if config.arithmetic:
                stream_connect(m, self.requests, addresses.requests)
                stream_connect(m, addresses.checked, self.checked)
        with m.Else():
            stream_connect(m, entries.requests, addresses.requests)
            stream_connect(m, addresses.checked, gate.checked)
        connect(m, gate=gate.transfers, transfers=flipped(self.transfers))
        connect(m, flipped(self.table_update), addresses.table_update)
        connect(m, flipped(self.region_update), addresses.region_update)
        m.d.comb += [
            # The entries come from the chunks of a span, or from the list of rows.
            chunks.start.eq(self.start & setting.spans),
            chunks.count.eq(setting.count),
            chunks.ready.eq(entries.rows.ready),
            has_last_chunk.eq(1),
            self.rows.ready.eq(entries.rows.ready),
            entries.rows.valid.eq(self.rows.valid | chunks.valid),
            entries.rows.p.eq(self.rows.p),
            entries.rows.p.last.eq(
                Mux(setting.spans, chunks.last & has_last_chunk, self.rows.p.last)),
            entries.start.eq(self.start),
            gate.start.eq(self.start),
            entries.listed.eq(setting.listed),
            entries.with_state.eq(setting.with_state),
            addresses.setting.eq(setting),
            self.refused.eq(gate.refused),
            self.refused_valid.eq(gate.refused_valid),
            self.ready.eq(addresses.ready),
        ]
        if config.row_ports > 1:  # positions in the lane become positions in the list
            others = config.row_ports - 1
            m.d.comb += [
                chunks.count.eq((setting.count + others - self.lane) >> len(self.lane)),
                has_last_chunk.eq((setting.count - 1)[:len(self.lane)] == self.lane),
            ]
            with m.If(~setting.listed & ~setting.bags):
                m.d.comb += addresses.requests.p.slot.eq(Cat(self.lane, entries.requests.p.slot))
            m.d.comb += [
                self.transfers.p.info.index.eq(Cat(self.lane, gate.transfers.p.info.index)),
                self.refused.index.eq(Cat(self.lane, gate.refused.index)),
            ]
        return m
