"""The accelerator: registers, two command queues, their engines and the memory ports, wired."""

from dataclasses import dataclass

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from .config import Config
from .contract.encoding import ROW_ENTRY_BYTES
from .host.command_queue import CommandQueue
from .host.engine_watchdog import EngineWatchdog
from .host.event_counters import EventCounters
from .host.queue_regions import QueueRegions
from .host.register_block import REGISTER_ADDRESS_WIDTH, RegisterBlock
from .lookup.engine import LookupEngine
from .memory.axi import AXI4Lite, AXI4Read, AXI4Write
from .memory.read_port import DmaReadPort
from .memory.write_arbiter import WriteArbiter
from .memory.write_port import DmaWritePort
from .mover.control import TARGET_BYTES
from .mover.engine import RowMover
from .primitives.replicated_register import replicated


@dataclass(frozen=True)
class PortClient:
    """A client of the list port or of a result port; its name is its key in the dicts below.

    Parameters
    ----------
    unit, member : str
        The submodule of `Top`, and its member.
    queue : int or None
        The queue that it serves, by number; None for both.
    needs : str or None
        Only a card whose Config has this attribute set has the client.
    shallow : bool
        Client of a result port with short results.
    striped : bool
        Client of a result port that writes every second block.
    """

    unit: str
    member: str
    queue: int | None
    needs: str | None = None
    shallow: bool = False
    striped: bool = False


# The only places to add a client, in the order of the ids on the bus.
LIST_CLIENTS = {
    "lookup ring": PortClient("lookup_queue", "ring", 0),
    "move ring": PortClient("move_queue", "ring", 1),
    "source": PortClient("engines", "source", 0),
    "lengths": PortClient("engines", "lengths", 0),
    "rows": PortClient("mover", "rows", 1),
    "targets": PortClient("mover", "targets", 1),
    "bag lengths": PortClient("mover", "lengths", 1, needs="arithmetic"),
    "row weights": PortClient("mover", "weights", 1, needs="arithmetic"),
}
RESULT_CLIENTS = {
    "list 0": PortClient("engines", "list_0", 0),
    "list 3": PortClient("engines", "list_3", 0, striped=True),
    "list 4": PortClient("engines", "list_4", 0, striped=True),
    "list 1": PortClient("engines", "list_1", 0),
    "list 2": PortClient("engines", "list_2", 0),
    "completions": PortClient("completions", "client", None, shallow=True),
}


def list_clients(config: Config) -> tuple[str, ...]:
    """Names of the clients of the list port."""
    return tuple(name for name, client in LIST_CLIENTS.items()
                 if client.needs is None or getattr(config, client.needs))


def shallow_lists(config: Config) -> dict[str, int]:
    """Words of buffer of the clients with small buffers, in LUTs instead of block RAM.

    A ring is read one command at a time. With one row port, a list of rows is read as slowly as
    rows are moved: its buffer has space for the rows in flight, and for at least 32 words, so that
    rows of 64 bytes do not wait for their list at a memory latency of 200 cycles. Several row ports
    read up to a word of each list per cycle, which needs block RAM.
    """
    shallow = {"lookup ring": 16, "move ring": 16}
    if config.arithmetic:  # one row a cycle at a latency of 512 cycles, on any number of ports
        shallow |= {"bag lengths": 32, "row weights": 64}
    if config.row_ports > 1:
        return shallow

    def words(element_bytes):
        return config.outstanding * element_bytes // config.bus_bytes

    return {**shallow, "rows": max(32, words(ROW_ENTRY_BYTES)),
            "targets": max(16, words(TARGET_BYTES))}


def result_ports(config: Config) -> list[tuple[str, ...]]:
    """Names of the clients of each result port.

    Each missed row has an entry of 8 bytes in one of two halves; the other results of a lookup, a
    slot and for a PLAN another one, have as many. Of two ports one is for the rows; of four each
    half and the slots have one.
    """
    names = tuple(RESULT_CLIENTS)
    slots, *rows = names[:3]
    others = names[3:]
    return {1: [names], 2: [tuple(rows), (slots, *others)],
            4: [(slots,), *((half,) for half in rows), others]}[config.result_ports]


def result_port(config: Config, names) -> DmaWritePort:
    """The result port of the named clients."""
    def numbers(kind):
        return [number for number, name in enumerate(names)
                if getattr(RESULT_CLIENTS[name], kind)]

    # Two bursts: one is sent while the next one arrives.
    return DmaWritePort(config, len(names), depth=max(16, 2 * config.burst_beats),
                        shallow=numbers("shallow"),
                        striped=numbers("striped") if config.striped_misses else ())


def _ids(config: Config, count: int) -> dict:
    """Parameters of an AXI4 bus with `count` ids."""
    return {"address_width": config.address_width, "bus_bytes": config.bus_bytes,
            "id_width": max(1, (count - 1).bit_length())}


def broadcast(m, update, *copies):
    """Connect the update port of a table to several copies of it."""
    for copy in copies:
        m.d.comb += [
            copy.enable.eq(update.enable),
            copy.index.eq(update.index),
            copy.entry.eq(update.entry),
        ]


class Top(wiring.Component):
    """One accelerator.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    registers : In(AXI4Lite(address_width=REGISTER_ADDRESS_WIDTH))
    list_bus : Out(AXI4Read)
        Rings, batches and lists.
    result_bus_0, ... : Out(AXI4Write)
        Results and completions; `config.result_ports` of them.
    row_read_bus_0, ... : Out(AXI4Read)
        Reads of rows; `config.row_ports` of them.
    row_write_bus_0, ... : Out(AXI4Write)
        Writes of rows; `config.row_ports` of them.
    interrupt : Out(1)

    Timing
    ------
    STATUS shows when the memories are cleared after reset: one cycle per row of the deepest.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "registers": In(AXI4Lite(address_width=REGISTER_ADDRESS_WIDTH)),
            "list_bus": Out(AXI4Read(**_ids(config, len(list_clients(config))))),
            **{f"result_bus_{number}": Out(AXI4Write(**_ids(config, len(names))))
               for number, names in enumerate(result_ports(config))},
            **{f"row_read_bus_{number}": Out(AXI4Read(**_ids(config, config.outstanding)))
               for number in range(config.row_ports)},
            **{f"row_write_bus_{number}": Out(AXI4Write(**_ids(config, 1)))
               for number in range(config.row_ports)},
            "interrupt": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.submodules.registers = registers = RegisterBlock(config)
        m.submodules.events = events = EventCounters(config, clients=3)
        m.submodules.lookup_queue = lookup_queue = CommandQueue(config, "lookup")
        m.submodules.move_queue = move_queue = CommandQueue(config, "move")
        m.submodules.regions = regions = QueueRegions(config, queues=2)
        m.submodules.engines = engines = LookupEngine(config)
        m.submodules.mover = mover = RowMover(config)
        lists = list_clients(config)
        m.submodules.list_port = list_port = DmaReadPort(config, len(lists), shallow={
            lists.index(name): depth for name, depth in shallow_lists(config).items()})
        m.submodules.completions = completions = WriteArbiter(config)
        results = [result_port(config, names) for names in result_ports(config)]

        # Host.
        connect(m, host=flipped(self.registers), registers=registers.bus)
        for number, queue in enumerate((lookup_queue, move_queue)):
            connect(m, registers=registers.queues[number], queue=queue.control)
            connect(m, queue=queue.regions, regions=regions.queues[number])
            connect(m, queue=queue.events, events=events.clients[number])
            connect(m, queue=queue.completions, arbiter=completions.writers[number])
        connect(m, registers=registers.events, events=events.clients[2])
        m.d.comb += self.interrupt.eq(registers.interrupt)
        if config.planner:
            connect(m, host=registers.retirement, engines=engines.retirement)
        broadcast(m, registers.region_update, regions.region_update, mover.region_update)
        broadcast(m, registers.table_update,
                  *(unit.table_update for unit in (lookup_queue, move_queue, mover, engines)))

        # Commands.
        connect(m, queue=lookup_queue.engine, engines=engines.engine)
        connect(m, queue=move_queue.engine, mover=mover.engine)

        # Memory.
        clients = {"lookup_queue": lookup_queue, "move_queue": move_queue, "engines": engines,
                   "mover": mover, "completions": completions}

        def member(client):
            return getattr(clients[client.unit], client.member)

        for number, name in enumerate(lists):
            connect(m, reader=member(LIST_CLIENTS[name]), port=list_port.clients[number])
        connect(m, list_port.bus, flipped(self.list_bus))
        for number, (port, names) in enumerate(
                zip(results, result_ports(config), strict=True)):
            m.submodules[f"result_port_{number}"] = port
            for client, name in enumerate(names):
                connect(m, writer=member(RESULT_CLIENTS[name]), port=port.clients[client])
            if config.planner and port.striped:
                m.d.comb += port.bypass_striping.eq(engines.bypass_striping)
            connect(m, port.bus, flipped(getattr(self, f"result_bus_{number}")))
        for number in range(config.row_ports):
            connect(m, mover.read_buses[number], flipped(getattr(self, f"row_read_bus_{number}")))
            connect(m, mover.write_buses[number], flipped(getattr(self, f"row_write_bus_{number}")))

        # Time-outs and soft reset: ports drain what is in flight before the card is ready again.
        ports, draining = [list_port, *results, mover], Signal()
        # Timing: a register, as the ports are far. A restarted port that is idle stays idle.
        idle_q = Signal(len(ports))
        m.d.sync += idle_q.eq(Mux(draining, Cat(port.idle for port in ports), 0))
        with m.If(registers.soft_reset):
            m.d.sync += [draining.eq(1), idle_q.eq(0)]
        with m.Elif(idle_q.all()):
            m.d.sync += draining.eq(0)
        for port in ports:
            m.d.comb += port.timeout.eq(registers.timeout)
        self._watch_engines(m, registers, (lookup_queue, move_queue))
        # All units restart in the next cycle; engines and mover replicate the signal themselves.
        units = {"list_port": list_port, "lookup_queue": lookup_queue, "move_queue": move_queue,
                 "completions": completions, "events": events,
                 **{f"result_port_{number}": port for number, port in enumerate(results)}}
        for name, unit in units.items():
            m.d.comb += unit.restart.eq(replicated(m, f"{name}_restart", registers.soft_reset))
        for unit in (mover, engines):
            m.d.comb += unit.restart.eq(registers.soft_reset)
        # Only the first clearing counts: after a command that clears a memory, commands wait.
        cleared = Signal()
        with m.If(Cat(unit.ready for unit in (
                regions, lookup_queue, move_queue, engines, mover, events)).all()):
            m.d.sync += cleared.eq(1)
        m.d.comb += [
            registers.ready.eq(cleared & ~draining),
            registers.stopped.eq(Cat(
                list_port.stopped, Cat(port.stopped for port in results).any(),
                mover.read_stopped, mover.write_stopped)),
            *(queue.cycle.eq(registers.cycle) for queue in (lookup_queue, move_queue)),
        ]
        return m

    def _watch_engines(self, m, registers, queues):
        """Fault a queue whose engine is still.

        Addresses, reads and write responses are attributed to a queue by their ids; row buses
        belong to the move queue. Completions are of both queues and do not count.
        """
        config = self.config
        m.submodules.watchdog = watchdog = EngineWatchdog(config, len(queues))
        lists = [LIST_CLIENTS[name] for name in list_clients(config)]
        progress = [[], []]

        def handshake(channel, bus, clients):
            """Whether a handshake of a channel belongs to the queue, for each queue."""
            fire = getattr(bus, f"{channel}valid") & getattr(bus, f"{channel}ready")
            number = getattr(bus, f"{channel}id")
            for queue, found in enumerate(progress):
                own = [idx for idx, client in enumerate(clients) if client.queue == queue]
                if own:
                    found.append(fire & Cat(number == idx for idx in own).any())

        for channel in ("ar", "r"):
            handshake(channel, self.list_bus, lists)
        for idx, names in enumerate(result_ports(config)):
            for channel in ("aw", "b"):
                handshake(channel, getattr(self, f"result_bus_{idx}"),
                          [RESULT_CLIENTS[name] for name in names])
        for number in range(config.row_ports):
            read, write = (getattr(self, f"row_{half}_bus_{number}") for half in ("read", "write"))
            progress[1] += [
                read.arvalid & read.arready, read.rvalid & read.rready,
                write.awvalid & write.awready, write.wvalid & write.wready,
                write.bvalid & write.bready]
        for idx, queue in enumerate(queues):
            outcome, part = queue.engine.outcome, queue.engine.command
            fires = [*progress[idx], outcome.valid & outcome.ready, part.valid & part.ready]
            # Timing: registers, as ports and engines are far.
            m.d.sync += [watchdog.progress[idx].eq(Cat(fires).any()),
                         watchdog.waiting[idx].eq(queue.engine_busy)]
            m.d.comb += queue.engine_stalled.eq(watchdog.stalled[idx])
        m.d.comb += watchdog.timeout.eq(registers.timeout)
