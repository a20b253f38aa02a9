"""Row mover: between listed rows of tables and slots, and between any bytes."""

from amaranth import Module, Mux, ResetInserter, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from .axi import AXI4Read, AXI4Write
from .config import Config
from .contract import ROW_ENTRY_BYTES
from .copy_addresses import CopyAddresses
from .copy_gate import CopyGate
from .fifo import RamFifo
from .fill_reads import FillReads
from .layouts import Engine, Fetch, region_update, row_entry, table_update
from .move_control import TARGET_BYTES, MoveControl
from .move_outcome import MoveOutcome
from .move_tracker import MoveTracker
from .port_flush import PortFlush
from .row_entries import RowEntries
from .row_layouts import copies_in_flight, copy_identity, tag
from .row_reader import RowReader
from .row_writer import RowWriter
from .span_pieces import SpanPieces
from .stream_fork import fork
from .streams import Unpacker


class RowMover(wiring.Component):
    """Copy listed rows of registered tables, and their state, to consecutive or listed slots or
    back (GATHER, SCATTER); copy or fill consecutive bytes, in pieces of `row_bytes` (COPY, FILL).

    Reads and writes overlap in time, and a later entry's read may come before an earlier one's
    write: what a row holds that is source and destination of one command is undefined. Writes
    keep the order of the list, so that of entries with one destination the last wins. A row and
    its state are separate copies: a refused entry moves neither, but a bus fault of one spares the
    other.

    Parameters
    ----------
    config : Config

    Members
    -------
    engine : In(Engine())
        Commands that passed the command check.
    table_update : In(table_update(config))
    region_update : In(region_update(config))
    rows : Out(Fetch(config))
        The list of rows.
    targets : Out(Fetch(config))
        The list of slots.
    read_bus : Out(AXI4Read)
        `outstanding` ids, answers in any order.
    write_bus : Out(AXI4Write)
        One id.
    timeout : In(32)
        Cycles without progress after which a port stops, and every copy that it has not ended,
        then or later, ends with TIMEOUT; 0 waits for ever.
    restart : In(1)
        A pulse drops the command in progress without an outcome, ends a stop, and drains the
        ports. The list port must be restarted in the same cycle.
    idle : Out(1)
        Nothing is in flight at the row port and no restart in progress.
    read_stopped, write_stopped : Out(1)
    ready : Out(1)
        Low while tables and regions are cleared after reset; no command may be given then.

    Timing
    ------
    See ``hotrow_sim.cycles.row_mover``.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "engine": In(Engine()),
            "table_update": In(table_update(config)),
            "region_update": In(region_update(config)),
            "rows": Out(Fetch(config)),
            "targets": Out(Fetch(config)),
            "read_bus": Out(AXI4Read(address_width=config.address_width,
                                     bus_bytes=config.bus_bytes, id_width=tag(config))),
            "write_bus": Out(AXI4Write(address_width=config.address_width,
                                       bus_bytes=config.bus_bytes, id_width=1)),
            "timeout": In(32),
            "restart": In(1),
            "idle": Out(1),
            "read_stopped": Out(1),
            "write_stopped": Out(1),
            "ready": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        config, clear = self.config, Signal()
        cleared = ResetInserter(clear)
        control, entries, pieces = MoveControl(config), RowEntries(config), SpanPieces()
        rows = Unpacker(config, row_entry, ROW_ENTRY_BYTES)
        targets = Unpacker(config, 32, TARGET_BYTES)
        gate = CopyGate(config)
        identities = RamFifo(copy_identity(), copies_in_flight(config))
        tracker, outcome = MoveTracker(), MoveOutcome()
        m.submodules.control = cleared(control)
        m.submodules.rows = cleared(rows)
        m.submodules.targets = cleared(targets)
        m.submodules.pieces = cleared(pieces)
        m.submodules.entries = cleared(entries)
        m.submodules.addresses = addresses = CopyAddresses(config)  # keeps its tables
        m.submodules.gate = cleared(gate)
        m.submodules.identities = cleared(identities)
        m.submodules.reader = reader = RowReader(config)
        m.submodules.fill_reads = fill_reads = FillReads(config)
        m.submodules.writer = writer = RowWriter(config)
        m.submodules.tracker = cleared(tracker)
        m.submodules.outcome = cleared(outcome)
        m.submodules.flush = flush = PortFlush()

        # Lists to checked copies.
        m.d.comb += [  # a command that comes while the engine is cleared waits
            control.command.p.eq(self.engine.command.p),
            control.command.valid.eq(self.engine.command.valid & ~clear),
            self.engine.command.ready.eq(control.command.ready & ~clear),
        ]
        connect(m, control=control.rows_request, port=flipped(self.rows.request))
        connect(m, control=control.targets_request, port=flipped(self.targets.request))
        connect(m, control=control.rows_start, unpacker=rows.start)
        connect(m, control=control.targets_start, unpacker=targets.start)
        connect(m, port=flipped(self.rows.words), unpacker=rows.words)
        connect(m, port=flipped(self.targets.words), unpacker=targets.words)
        connect(m, unpacker=targets.elements, entries=entries.targets)
        connect(m, entries=entries.copies, addresses=addresses.wanted)
        connect(m, addresses=addresses.checked, gate=gate.checked)
        connect(m, flipped(self.table_update), addresses.table_update)
        connect(m, flipped(self.region_update), addresses.region_update)
        m.d.comb += [
            pieces.start.eq(control.start & control.spans),
            pieces.count.eq(control.count),
            pieces.ready.eq(entries.rows.ready),
            # A span has pieces, any other command a list of rows.
            rows.elements.ready.eq(entries.rows.ready),
            entries.rows.valid.eq(rows.elements.valid | pieces.valid),
            entries.rows.p.eq(rows.elements.p),
            entries.rows.p.last.eq(Mux(control.spans, pieces.last, rows.elements.p.last)),
            entries.start.eq(control.start),
            gate.start.eq(control.start),
            entries.listed.eq(control.listed),
            entries.with_state.eq(control.with_state),
            addresses.to_tables.eq(control.to_tables),
            addresses.slots.eq(control.slots),
            addresses.state_slots.eq(control.state_slots),
            addresses.stride.eq(control.stride),
            addresses.spans.eq(control.spans),
            addresses.source.eq(control.source),
            addresses.final_bytes.eq(control.final_bytes),
            self.ready.eq(addresses.ready),
        ]

        # Copies through memory.
        fork(m, gate.copies, reader.copies, identities.i)
        m.d.comb += [
            reader.copies.p.eq(gate.copies.p),
            identities.i.p.eq(gate.copies.p.identity),
        ]
        connect(m, reader=reader.rows, writer=writer.rows)
        connect(m, reader=reader.words, writer=writer.words)
        connect(m, reader=reader.bus, fill_reads=fill_reads.reader)
        connect(m, fill_reads.memory, flipped(self.read_bus))
        connect(m, writer.bus, flipped(self.write_bus))

        m.d.comb += [
            fill_reads.start.eq(control.start),
            fill_reads.fills.eq(control.fills),
            fill_reads.pattern.eq(control.pattern),
            fill_reads.idle.eq(reader.idle),
        ]

        # What came of them.
        connect(m, identities=identities.o, tracker=tracker.identities)
        connect(m, writer=writer.moves, tracker=tracker.moves)
        connect(m, writer=writer.answers, tracker=tracker.answers)
        connect(m, outcome=outcome.outcome, engine=flipped(self.engine.outcome))
        m.d.comb += [
            outcome.start.eq(control.start),
            outcome.count.eq(control.count),
            outcome.refusing.eq(gate.refusing),
            outcome.refused.eq(gate.refused),
            outcome.ended.eq(tracker.ended),
            control.over.eq(self.engine.outcome.valid & self.engine.outcome.ready),
        ]

        # Ports and restart.
        m.d.comb += [
            flush.restart.eq(self.restart),
            flush.drained.eq(reader.idle & writer.idle),
            clear.eq(flush.clear),
            self.idle.eq(flush.drained & ~flush.clear),
            self.read_stopped.eq(reader.stopped),
            self.write_stopped.eq(writer.stopped),
        ]
        for port in (reader, writer):
            m.d.comb += [
                port.timeout.eq(self.timeout),
                port.restart.eq(self.restart),
                port.clear.eq(clear),
            ]
        return m
