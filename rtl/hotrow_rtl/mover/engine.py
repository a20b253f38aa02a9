"""Row mover: between listed rows of tables and slots, and between any bytes."""

from amaranth import Cat, Module, ResetInserter, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..config import Config
from ..contract.encoding import ROW_ENTRY_BYTES
from ..interfaces.command_assembler import CommandAssembler
from ..interfaces.records import Engine, ReadClient, region_update, row_entry, table_update
from ..lists.lane_merger import LaneMerger
from ..lists.lane_unpacker import LaneUnpacker
from ..lists.unpacker_packer import Unpacker
from ..memory.axi import AXI4Read, AXI4Write
from ..primitives.replicated_register import replicated
from ..primitives.shared_module import shared_instance
from ..primitives.stream_routing import stream_connect
from .addressing.crossbar import AddressCrossbar
from .addressing.lane import AddressLane
from .bags.pipeline import RowArithmetic
from .bags.read_requests import LENGTH
from .completion import MoveCompletion
from .control import LENGTH_BYTES, TARGET_BYTES, WEIGHT_BYTES, MoveControl
from .flush_timer import FlushTimer
from .port.payloads import tag
from .port.port import RowPort


class RowMover(wiring.Component):
    """Copy listed rows of registered tables, and their state, to consecutive or listed slots or
    back (GATHER, SCATTER); copy or fill consecutive bytes, in pieces of `row_bytes` (COPY, FILL);
    with `config.arithmetic` pool bags of listed rows, or update them by gradients (POOL, UPDATE).

    Lists are dealt to as many lanes as there are row ports; the lanes check addresses, and an
    exchange hands each entry to the port of its row, see ``row_steering``. One lane and one port
    are one behind the other.

    Entries of a POOL or UPDATE are read over the port of their address too, but in the order of the
    list, at most one a cycle, and what `RowArithmetic` computes of them is written over port 0.

    Reads and writes overlap in time, and a later entry's read may come before an earlier one's
    write: what a row holds that is source and destination of one command is undefined. One port
    writes in the order of the list, so that of entries with one destination the last wins; ports
    do not wait for one another, so that with several such a destination is undefined: give every
    one once. A row and its state are separate copies over one port: a refused entry moves neither,
    but a bus fault of one spares the other.

    Parameters
    ----------
    config : Config

    Members
    -------
    engine : In(Engine(config))
        Commands that passed the command check.
    table_update : In(table_update(config))
    region_update : In(region_update(config))
    rows : Out(ReadClient(config))
        The list of rows.
    targets : Out(ReadClient(config))
        The list of slots.
    lengths, weights : Out(ReadClient(config))
        With `config.arithmetic`: the rows of each bag, and what each row is multiplied by.
    read_buses : Out(AXI4Read).array(config.row_ports)
        `outstanding` ids each, answers in any order.
    write_buses : Out(AXI4Write).array(config.row_ports)
        One id each.
    timeout : In(32)
        Cycles without progress after which a port stops, and every copy that it has not ended,
        then or later, ends with TIMEOUT; 0 waits for ever.
    restart : In(1)
        A pulse drops the command in progress without an outcome, ends a stop, and drains the
        ports, all in the next cycle. The list port must be restarted in that cycle.
    idle : Out(1)
        Nothing is in flight at the row ports and no restart in progress.
    read_stopped, write_stopped : Out(1)
        Of any port.
    ready : Out(1)
        Low while tables and regions are cleared after reset; no command may be given then.

    Timing
    ------
    See ``hotrow_sim.cycles.mover``.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "engine": In(Engine(config)),
            "table_update": In(table_update(config)),
            "region_update": In(region_update(config)),
            "rows": Out(ReadClient(config)),
            "targets": Out(ReadClient(config)),
            **({"lengths": Out(ReadClient(config)), "weights": Out(ReadClient(config))}
               if config.arithmetic else {}),
            "read_buses": Out(AXI4Read(
                address_width=config.address_width, bus_bytes=config.bus_bytes,
                id_width=tag(config))).array(config.row_ports),
            "write_buses": Out(AXI4Write(
                address_width=config.address_width, bus_bytes=config.bus_bytes,
                id_width=1)).array(config.row_ports),
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
        control, outcome = MoveControl(config), MoveCompletion(config)
        intake = CommandAssembler()
        m.submodules.intake = cleared(intake)
        m.submodules.control = cleared(control)
        m.submodules.outcome = cleared(outcome)
        m.submodules.flush = flush = FlushTimer()
        rows = self._list(m, cleared, "rows", row_entry, ROW_ENTRY_BYTES, control)
        targets = self._list(m, cleared, "targets", 32, TARGET_BYTES, control)
        lanes = [AddressLane(config) for _ in range(config.row_ports)]
        ports = [RowPort(config) for _ in range(config.row_ports)]

        connect(m, intake=intake.command, control=control.command)
        m.d.comb += [  # a command that comes while the engine is cleared waits
            intake.parts.p.eq(self.engine.command.p),
            intake.parts.valid.eq(self.engine.command.valid & ~clear),
            self.engine.command.ready.eq(intake.parts.ready & ~clear),
        ]

        # Lists to checked copies.
        for number, lane in enumerate(lanes):
            m.submodules[f"lane_{number}"] = shared_instance(platform, lane)
            with m.If(~control.setting.bags):
                stream_connect(m, rows[number], lane.rows)
                stream_connect(m, targets[number], lane.targets)
            connect(m, flipped(self.table_update), lane.table_update)
            connect(m, flipped(self.region_update), lane.region_update)
            m.d.comb += [
                lane.start.eq(control.start),
                lane.setting.eq(control.setting),
                lane.clear.eq(clear),
                outcome.refusing[number].eq(lane.refusing),
                outcome.refused[number].eq(lane.refused),
            ]
            if len(lanes) > 1:
                m.d.comb += lane.lane.eq(number)

        # Copies through memory.
        copies = [lane.copies for lane in lanes]
        if len(lanes) > 1:
            exchange = AddressCrossbar(config)
            m.submodules.exchange = cleared(exchange)
            m.d.comb += exchange.to_tables.eq(control.setting.to_tables)
            for lane, port in zip(copies, exchange.lanes):
                connect(m, lane=lane, exchange=port)
            copies = exchange.ports
        if config.arithmetic:
            self._compute(m, cleared, control, outcome, rows, targets, lanes[0], ports)
        for number, port in enumerate(ports):
            m.submodules[f"port_{number}"] = shared_instance(platform, port)
            with m.If(~control.setting.bags):
                stream_connect(m, copies[number], port.copies)
            connect(m, port.read_bus, flipped(self.read_buses[number]))
            connect(m, port.write_bus, flipped(self.write_buses[number]))
            m.d.comb += [
                port.start.eq(control.start),
                port.fills.eq(control.fills),
                port.pattern.eq(control.pattern),
                port.timeout.eq(self.timeout),
                port.restart.eq(replicated(m, f"port_{number}_restart", self.restart)),
                port.clear.eq(clear),
                outcome.ended[number].eq(port.ended),
            ]

        # What came of them; restart.
        connect(m, outcome=outcome.outcome, engine=flipped(self.engine.outcome))
        with m.If(~control.setting.bags):
            m.d.comb += [outcome.count.eq(control.setting.count), outcome.counted.eq(1)]
        m.d.comb += [
            outcome.start.eq(control.start),
            control.over.eq(self.engine.outcome.valid & self.engine.outcome.ready),
            flush.restart.eq(self.restart),
            flush.drained.eq(Cat(port.idle for port in ports).all()),
            clear.eq(flush.clear),
            self.idle.eq(flush.drained & ~flush.clear),
            self.read_stopped.eq(Cat(port.read_stopped for port in ports).any()),
            self.write_stopped.eq(Cat(port.write_stopped for port in ports).any()),
            self.ready.eq(Cat(lane.ready for lane in lanes).all()),
        ]
        return m

    def _compute(self, m, cleared, control, outcome, rows, targets, lane, ports):
        """Commands on bags: one lane checks addresses, all ports read, the first one writes."""
        config = self.config
        arithmetic = RowArithmetic(config)
        m.submodules.arithmetic = cleared(arithmetic)
        lengths = self._list(m, cleared, "lengths", LENGTH, LENGTH_BYTES, control, lanes=1)
        weights = self._list(m, cleared, "weights", 32, WEIGHT_BYTES, control, lanes=1)
        connect(m, lengths=lengths[0], arithmetic=arithmetic.lengths)
        connect(m, weights=weights[0], arithmetic=arithmetic.weights)
        for name, lanes, elements in (("rows", rows, arithmetic.rows),
                                      ("targets", targets, arithmetic.targets)):
            turns = LaneMerger(elements.p.shape(), config.row_ports)
            m.submodules[f"{name}_in_turn"] = cleared(turns)
            m.d.comb += [
                turns.clear.eq(control.start),
                elements.valid.eq(turns.ordered.valid),
                elements.p.as_value().eq(turns.ordered.p),
                turns.ordered.ready.eq(elements.ready),
            ]
            with m.If(control.setting.bags):
                for one, turn in zip(lanes, turns.elements):
                    m.d.comb += [
                        turn.valid.eq(one.valid),
                        turn.p.eq(one.p.as_value()),
                        one.ready.eq(turn.ready),
                    ]
        connect(m, arithmetic=arithmetic.wanted, lane=lane.wanted)
        connect(m, lane=lane.checked, arithmetic=arithmetic.checked)
        connect(m, arithmetic=arithmetic.made, port=ports[0].made)
        connect(m, arithmetic=arithmetic.made_words, port=ports[0].made_words)
        m.d.comb += [
            arithmetic.start.eq(control.start & control.setting.bags),
            arithmetic.setting.eq(control.bags),
            outcome.bags.eq(control.setting.bags),
            outcome.dropping.eq(arithmetic.refusing),
            outcome.dropped.eq(arithmetic.refused),
        ]
        for number, port in enumerate(ports):
            connect(m, port=port.read_rows, arithmetic=arithmetic.read_rows[number])
            connect(m, port=port.read_words, arithmetic=arithmetic.read_words[number])
            m.d.comb += port.bags.eq(control.setting.bags)
            with m.If(control.setting.bags):
                stream_connect(m, arithmetic.copies[number], port.copies)
        with m.If(control.setting.bags):
            m.d.comb += [
                outcome.count.eq(arithmetic.bags),
                outcome.counted.eq(arithmetic.counted),
            ]

    def _list(self, m, cleared, name, shape, element_bytes, control, lanes=None):
        """Fetch a list and cut it into elements; return them by lane."""
        lanes = lanes or self.config.row_ports
        unit = (Unpacker(self.config, shape, element_bytes) if lanes == 1
                else LaneUnpacker(self.config, shape, element_bytes, lanes))
        m.submodules[name] = cleared(unit)
        fetch = getattr(self, name)
        connect(m, control=getattr(control, f"{name}_request"), port=flipped(fetch.request))
        connect(m, control=getattr(control, f"{name}_start"), unpacker=unit.start)
        connect(m, port=flipped(fetch.words), unpacker=unit.words)
        return [unit.elements] if lanes == 1 else unit.elements
