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
from .row_state_gate import RowStateGate


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


class SpanChunks(wiring.Component):
    """Count the chunks of a span.

    Attributes
    ----------
    start : In(1)
        A pulse before each span.
    count : In(32)
        Number of chunks, with `start`.
    valid, last, ready : Out, Out, In
        A stream of chunks; `last` marks the final one.

    Timing
    ------
    Latency 1 cycle, one chunk per cycle.
    """

    start: In(1)
    count: In(32)
    valid: Out(1)
    last: Out(1)
    ready: In(1)

    def elaborate(self, platform):
        m = Module()
        remaining = Signal(32)  # after the current chunk
        m.d.comb += self.last.eq(remaining == 0)
        with m.If(self.start):
            m.d.sync += [self.valid.eq(self.count != 0), remaining.eq(self.count - 1)]
        with m.Elif(self.valid & self.ready):
            m.d.sync += [self.valid.eq(~self.last), remaining.eq(remaining - 1)]
        return m


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
    Latency 12 cycles from an entry to its row, 13 to its state; throughput 1 transfer per cycle.
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
