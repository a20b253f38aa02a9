"""RowMover: the engine of the move commands."""

from amaranth import Cat, Module, Mux, ResetInserter, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..config import Config
from ..contract.encoding import ROW_ENTRY_BYTES
from ..interfaces.command_assembler import CommandAssembler
from ..interfaces.records import Engine, ReadClient, region_update, row_entry, table_update
from ..lists.lane_unpacker import LaneUnpacker
from ..lists.unpacker_packer import Unpacker
from ..memory.axi import AXI4Read, AXI4Write
from ..primitives.replicated_register import replicated
from ..primitives.shared_module import shared_instance
from ..primitives.stream_routing import stream_connect
from .addressing.crossbar import AddressCrossbar
from .addressing.lane import AddressLane
from .bags.bag_units import BagUnits
from .bags.batch_ids import BatchIds
from .bags.payloads import LENGTH_WIDTH
from .bags.pipeline import BagPipeline
from .completion import MoveCompletion
from .control import LENGTH_BYTES, TARGET_BYTES, WEIGHT_BYTES, MoveControl
from .port.payloads import id_width
from .port.port import RowPort

MIN_CYCLES = 20  # exceeds the latency of every pipeline without a clear input: AddressPipeline


class LaneMerger(wiring.Component):
    """Return element i from lane i mod `lanes`.

    Parameters
    ----------
    shape : ShapeCastable
    lanes : int

    Attributes
    ----------
    elements : In(stream(shape)).array(lanes)
        With several lanes their `ready` depends on registers only.
    clear : In(1)
        The next element comes from lane 0.
    merged : Out(stream(shape))

    Timing
    ------
    No latency, one element a cycle.
    """

    def __init__(self, shape, lanes):
        super().__init__({
            "elements": In(stream.Signature(shape)).array(lanes),
            "clear": In(1),
            "merged": Out(stream.Signature(shape)),
        })

    def elaborate(self, platform):
        m = Module()
        lanes, out = len(self.elements), self.merged
        if lanes == 1:
            stream_connect(m, self.elements[0], out)
            return m
        # Timing: an element that stalls is stored, as `out.ready` is too late for the lanes.
        lane_idx, stored, full = Signal(range(lanes)), Signal(out.p.shape()), Signal()
        chosen, valid = Signal.like(stored), Signal()
        with m.Switch(lane_idx):
            for idx, lane in enumerate(self.elements):
                with m.Case(idx):
                    m.d.comb += [chosen.eq(lane.p), valid.eq(lane.valid), lane.ready.eq(~full)]
        m.d.comb += [out.valid.eq(valid | full), out.p.eq(Mux(full, stored, chosen))]
        m.d.sync += full.eq(out.valid & ~out.ready)
        with m.If(~full):
            m.d.sync += stored.eq(chosen)
        with m.If(self.clear):
            m.d.sync += [lane_idx.eq(0), full.eq(0)]
        with m.Elif(valid & ~full):
            m.d.sync += lane_idx.eq(Mux(lane_idx == lanes - 1, 0, lane_idx + 1))
        return m


class FlushTimer(wiring.Component):
    """Assert `clear` from a restart until the ports have drained.

    Attributes
    ----------
    restart : In(1)
        A pulse.
    drained : In(1)
        Nothing is in flight.
    clear : Out(1)
        High from the cycle after `restart` until nothing is in flight, at least 20 cycles.
        Timing: a register, because it resets many units.
    """

    restart: In(1)
    drained: In(1)
    clear: Out(1)

    def elaborate(self, platform):
        m = Module()
        cycles_left = Signal(range(MIN_CYCLES + 1))
        with m.If(self.restart):
            m.d.sync += [self.clear.eq(1), cycles_left.eq(MIN_CYCLES)]
        with m.Elif(cycles_left != 0):
            m.d.sync += cycles_left.eq(cycles_left - 1)
        with m.Elif(self.drained):
            m.d.sync += self.clear.eq(0)
        return m


class RowMover(wiring.Component):
    """Carry out the move commands.

    GATHER and SCATTER copy listed rows of registered tables, and their state, to consecutive or
    listed slots or back. COPY and FILL write consecutive bytes, in chunks of `row_bytes`. With
    `config.arithmetic`, POOL sums bags of listed rows and UPDATE applies gradients to listed rows.

    The lists are distributed over as many lanes as there are row ports. The lanes check addresses,
    and a crossbar routes each entry to the port of its row, see ``addressing.port_interleave``.

    The reads of a POOL or UPDATE go to the port of their address, too, in list order, at most one
    per cycle. Port 0 writes the rows that `BagPipeline` computes. With several `bag_units` each
    bag has one unit, each unit requests a read per cycle, and every port writes: `BagUnits`.

    Reads and writes overlap: the read of a later entry may precede the write of an earlier one, so
    a row that is source and destination of one command gets undefined contents. One port writes in
    list order, so the last of several entries with the same destination wins. Several ports run
    independently, as bag units do, so a destination that is listed twice gets undefined contents.
    A row and its state are separate transfers over one port: a refusal moves neither, a bus fault
    of one does not affect the other.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    engine : In(Engine(config))
        Commands that `CommandValidator` has accepted.
    table_update : In(table_update(config))
    region_update : In(region_update(config))
    rows : Out(ReadClient(config))
        The list of rows.
    targets : Out(ReadClient(config))
        The list of slots.
    lengths, weights : Out(ReadClient(config))
        With `config.arithmetic`: the number of rows of each bag, and the weight of each row.
    read_buses : Out(AXI4Read).array(config.row_ports)
        `outstanding` ids each, responses in any order.
    write_buses : Out(AXI4Write).array(config.row_ports)
        One id each.
    timeout : In(32)
        Cycles without progress after which a port stops. Every transfer of a stopped port ends
        with TIMEOUT. 0 disables the time-out.
    restart : In(1)
        A pulse drops the command in progress without an outcome, ends a stop, and drains the ports,
        from the next cycle on. The list port must be restarted in that cycle.
    idle : Out(1)
        Nothing is in flight at the row ports that have not stopped, and no restart is in progress.
    read_stopped, write_stopped : Out(1)
        Any port is stopped.
    ready : Out(1)
        Low while tables and regions are cleared after reset; no command may be sent then.

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
                id_width=id_width(config))).array(config.row_ports),
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
        control, completion = MoveControl(config), MoveCompletion(config)
        assembler = CommandAssembler()
        m.submodules.assembler = cleared(assembler)
        m.submodules.control = cleared(control)
        m.submodules.completion = cleared(completion)
        m.submodules.flush = flush = FlushTimer()
        rows = self._list(m, cleared, "rows", row_entry, ROW_ENTRY_BYTES, control)
        if config.pools_batches:
            rows = self._batch_rows(m, cleared, control, rows)
        targets = self._list(m, cleared, "targets", 32, TARGET_BYTES, control)
        lanes = [AddressLane(config) for _ in range(config.row_ports)]
        ports = [RowPort(config) for _ in range(config.row_ports)]

        connect(m, assembler=assembler.command, control=control.command)
        m.d.comb += [  # no command part is accepted while the engine is cleared
            assembler.parts.p.eq(self.engine.command.p),
            assembler.parts.valid.eq(self.engine.command.valid & ~clear),
            self.engine.command.ready.eq(assembler.parts.ready & ~clear),
        ]

        # Lists to checked transfers.
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
                completion.refused_valid[number].eq(lane.refused_valid),
                completion.refused[number].eq(lane.refused),
            ]
            if len(lanes) > 1:
                m.d.comb += lane.lane.eq(number)

        # Transfers through memory.
        transfers = [lane.transfers for lane in lanes]
        if len(lanes) > 1:
            crossbar = AddressCrossbar(config)
            m.submodules.crossbar = cleared(crossbar)
            m.d.comb += crossbar.to_tables.eq(control.setting.to_tables)
            for lane, port in zip(transfers, crossbar.lanes, strict=True):
                if config.bag_units == 1:
                    connect(m, lane=lane, crossbar=port)
                else:
                    with m.If(~control.setting.bags):
                        stream_connect(m, lane, port)
            transfers = crossbar.ports
        if config.bag_units > 1:
            self._bag_units(m, cleared, clear, control, completion, rows, targets, lanes,
                            crossbar, ports)
        elif config.arithmetic:
            self._bags(m, cleared, control, completion, rows, targets, lanes[0], ports)
        for number, port in enumerate(ports):
            m.submodules[f"port_{number}"] = shared_instance(platform, port)
            with m.If(~control.setting.bags):
                stream_connect(m, transfers[number], port.transfers)
            connect(m, port.read_bus, flipped(self.read_buses[number]))
            connect(m, port.write_bus, flipped(self.write_buses[number]))
            m.d.comb += [
                port.start.eq(control.start),
                port.fills.eq(control.fills),
                port.pattern.eq(control.pattern),
                port.timeout.eq(self.timeout),
                port.restart.eq(replicated(m, f"port_{number}_restart", self.restart)),
                port.clear.eq(clear),
                completion.finished[number].eq(port.finished),
            ]

        # Outcome; restart.
        connect(m, completion=completion.outcome, engine=flipped(self.engine.outcome))
        with m.If(~control.setting.bags):
            m.d.comb += [completion.count.eq(control.setting.count), completion.counted.eq(1)]
        m.d.comb += [
            completion.start.eq(control.start),
            control.done.eq(self.engine.outcome.valid & self.engine.outcome.ready),
            flush.restart.eq(self.restart),
            flush.drained.eq(Cat(port.idle for port in ports).all()),
            clear.eq(flush.clear),
            self.idle.eq(flush.drained & ~flush.clear),
            self.read_stopped.eq(Cat(port.read_stopped for port in ports).any()),
            self.write_stopped.eq(Cat(port.write_stopped for port in ports).any()),
            self.ready.eq(Cat(lane.ready for lane in lanes).all()),
        ]
        return m

    def _bags(self, m, cleared, control, completion, rows, targets, lane, ports):
        """POOL and UPDATE: one lane checks addresses, all ports read, port 0 writes."""
        config = self.config
        bags = BagPipeline(config)
        m.submodules.bag_pipeline = cleared(bags)
        lengths = self._list(m, cleared, "lengths", LENGTH_WIDTH, LENGTH_BYTES, control, lanes=1)
        weights = self._list(m, cleared, "weights", 32, WEIGHT_BYTES, control, lanes=1)
        connect(m, lengths=lengths[0], bags=bags.lengths)
        connect(m, weights=weights[0], bags=bags.weights)
        for name, lanes, elements in (("rows", rows, bags.rows),
                                      ("targets", targets, bags.targets)):
            merger = LaneMerger(elements.p.shape(), config.row_ports)
            m.submodules[f"{name}_merger"] = cleared(merger)
            m.d.comb += [
                merger.clear.eq(control.start),
                elements.valid.eq(merger.merged.valid),
                elements.p.eq(merger.merged.p),
                merger.merged.ready.eq(elements.ready),
            ]
            with m.If(control.setting.bags):
                for one, merged in zip(lanes, merger.elements, strict=True):
                    stream_connect(m, one, merged)
        connect(m, bags=bags.requests, lane=lane.requests)
        connect(m, lane=lane.checked, bags=bags.checked)
        connect(m, bags=bags.computed_rows, port=ports[0].computed_rows)
        connect(m, bags=bags.computed_words, port=ports[0].computed_words)
        m.d.comb += [
            bags.start.eq(control.start & control.setting.bags),
            bags.setting.eq(control.bags),
            completion.bags.eq(control.setting.bags),
            completion.dropped_valid.eq(bags.refused_valid),
            completion.dropped.eq(bags.refused),
        ]
        if config.pools_batches:
            m.d.comb += bags.batch.eq(control.batch)
        for number, port in enumerate(ports):
            connect(m, port=port.read_rows, bags=bags.read_rows[number])
            connect(m, port=port.read_words, bags=bags.read_words[number])
            m.d.comb += port.bags.eq(control.setting.bags)
            with m.If(control.setting.bags):
                stream_connect(m, bags.transfers[number], port.transfers)
        with m.If(control.setting.bags):
            m.d.comb += [
                completion.count.eq(bags.bag_count),
                completion.counted.eq(bags.counted),
            ]

    def _bag_units(self, m, cleared, clear, control, completion, rows, targets, lanes, crossbar,
                   ports):
        """POOL and UPDATE on several units: a lane per unit checks addresses, all ports write."""
        config, setting = self.config, control.setting
        m.submodules.bag_units = bags = BagUnits(config)
        lengths = self._list(m, cleared, "lengths", LENGTH_WIDTH, LENGTH_BYTES, control,
                             lanes=config.bag_units)
        weights = self._list(m, cleared, "weights", 32, WEIGHT_BYTES, control)
        for number in range(config.row_ports):
            connect(m, weights=weights[number], bags=bags.weights[number])
            with m.If(setting.bags):
                stream_connect(m, rows[number], bags.rows[number])
                stream_connect(m, targets[number], bags.targets[number])
        m.d.comb += [
            bags.clear.eq(clear),
            bags.start.eq(control.start & setting.bags),
            bags.setting.eq(control.bags),
            completion.bags.eq(setting.bags),
        ]
        if config.pools_batches:
            m.d.comb += bags.batch.eq(control.batch)
        for number in range(config.bag_units):
            connect(m, lengths=lengths[number], bags=bags.lengths[number])
            connect(m, bags=bags.requests[number], lane=lanes[number].requests)
            connect(m, lane=lanes[number].checked, bags=bags.checked[number])
            with m.If(setting.bags):
                stream_connect(m, bags.sent[number], crossbar.lanes[number])
            m.d.comb += [
                completion.dropped_valid[number].eq(bags.refused_valid[number]),
                completion.dropped[number].eq(bags.refused[number]),
            ]
        for number, port in enumerate(ports):
            connect(m, port=port.read_rows, bags=bags.read_rows[number])
            connect(m, port=port.read_words, bags=bags.read_words[number])
            connect(m, bags=bags.computed_rows[number], port=port.computed_rows)
            connect(m, bags=bags.computed_words[number], port=port.computed_words)
            m.d.comb += port.bags.eq(setting.bags)
            with m.If(setting.bags):
                stream_connect(m, crossbar.ports[number], bags.arrived[number])
                stream_connect(m, bags.transfers[number], port.transfers)
        with m.If(setting.bags):
            m.d.comb += [  # a read is its own source
                crossbar.to_tables.eq(0),
                completion.count.eq(bags.bag_count),
                completion.counted.eq(bags.counted),
            ]

    def _batch_rows(self, m, cleared, control, entries):
        """Rows of a list, or of the ids of a batch, by lane."""
        ids = BatchIds(self.config, len(entries))
        m.submodules.batch_ids = cleared(ids)
        m.d.comb += [ids.start.eq(control.start), ids.batch.eq(control.batch)]
        for source, sink in zip(entries, ids.entries, strict=True):
            stream_connect(m, source, sink)
        return ids.rows

    def _list(self, m, cleared, name, shape, element_bytes, control, lanes=None):
        """Fetch a list and unpack its elements; return them by lane."""
        lanes = lanes or self.config.row_ports
        unit = (Unpacker(self.config, shape, element_bytes) if lanes == 1
                else LaneUnpacker(self.config, shape, element_bytes, lanes))
        m.submodules[name] = cleared(unit)
        client = getattr(self, name)
        connect(m, control=getattr(control, f"{name}_request"), port=flipped(client.request))
        connect(m, control=getattr(control, f"{name}_start"), unpacker=unit.start)
        connect(m, port=flipped(client.words), unpacker=unit.words)
        return [unit.elements] if lanes == 1 else unit.elements
