"""The accelerator as the host accesses it, without a clock: registers, rings and memory."""

import threading

import numpy as np
from hotrow_rtl.config import DEFAULT_PRESET, Config
from hotrow_rtl.config import preset as preset_config
from hotrow_rtl.contract.encoding import QUEUES, GatherFlag, Opcode, PoolFlag, UpdateFlag
from hotrow_rtl.contract.registers import REGISTERS

from ..address_space import card_memory
from ..golden.arithmetic.pooling import ONE
from ..golden.command_validator import bag_count, pools_batch
from ..golden.mover.copy_fill import move_span
from ..golden.mover.gather_scatter import move_rows
from ..golden.mover.pool import batch_entries, pool_rows
from ..golden.mover.update import update_rows
from ..golden.records import ROW_RECORD
from .command_cycles import command_cycles
from .command_queue import CommandQueue
from .lookup_engine import LookupEngine
from .memory import Memory
from .register_block import RegisterBlock

ACCESS_CYCLES = 8  # clock cycles of one register access
DOORBELLS = {REGISTERS[f"{name.upper()}_TAIL"].offset for name in QUEUES}


class MoveEngine:
    """The row mover of the move queue.

    Parameters
    ----------
    config : Config
    memory : Memory
    regions : dict of int to Region
    tables : dict of int to Table
        As registered; shared with the register block.
    """

    def __init__(self, config, memory, regions, tables):
        self.config, self.memory, self.regions, self.tables = config, memory, regions, tables

    def execute(self, command, addresses):
        """Execute a validated command; see `LookupEngine.execute`."""
        if command["opcode"] in (Opcode.COPY, Opcode.FILL):
            return move_span(command, self.regions, self.memory, self.config)
        serve = {Opcode.POOL: self._pool, Opcode.UPDATE: self._update}.get(
            command["opcode"], self._move)
        kind = np.dtype("<u4") if pools_batch(command) else ROW_RECORD
        entries, faults = self.memory.read_list(addresses["source"], kind, command["count"])
        return serve(command, addresses, entries, faults)

    def _move(self, command, addresses, entries, faults):
        slots, slot_faults = self._numbers(command, addresses, GatherFlag.LISTED, len(entries))
        return move_rows(command, entries, slots, self.tables, self.regions, self.memory,
                         self.config, faults, slot_faults)

    def _pool(self, command, addresses, entries, faults):
        bags, weights, weight_faults = bag_count(command), np.full(len(entries), ONE), 0
        if command["flags"] & PoolFlag.WEIGHTED:
            weights, weight_faults = self._list(addresses, "weights", "<u4", len(entries))
        lengths, length_faults = self._list(addresses, "lengths", "<u2", bags)
        slots, slot_faults = self._numbers(command, addresses, PoolFlag.LISTED, bags)
        if pools_batch(command):
            entries = batch_entries(command, entries, lengths)
        return pool_rows(command, entries, lengths, slots, weights, self.tables, self.regions,
                         self.memory, self.config, faults, length_faults, slot_faults,
                         weight_faults)

    def _update(self, command, addresses, entries, faults):
        counts, count_faults = self._list(addresses, "lengths", "<u2", len(entries))
        numbers, number_faults = self._numbers(
            command, addresses, UpdateFlag.LISTED,
            min(command["gradient_count"], int(counts.sum(dtype=np.int64))))
        return update_rows(command, entries, counts, numbers, self.tables, self.regions,
                           self.memory, self.config, faults, count_faults, number_faults)

    def _numbers(self, command, addresses, listed, count):
        """The targets if the command has the flag `listed`, else 0, 1, 2, ...; their faults."""
        if command["flags"] & listed:
            return self._list(addresses, "targets", "<u4", count)
        return np.arange(count, dtype=np.uint32), 0

    def _list(self, addresses, name, kind, count):
        return self.memory.read_list(addresses[name], np.dtype(kind), count)


class Events:
    """Event counters, which order the two queues.

    Attributes
    ----------
    value, clock : list of int
        Per event its value and the cycle in which it was set.
    """

    def __init__(self, events):
        self.value, self.clock = [0] * events, [0] * events

    def set(self, event, value, clock):
        self.value[event], self.clock[event] = value, clock


class Device:
    """Transport to a model of the accelerator.

    Completions and results equal those of the hardware bit for bit, except for cycle numbers,
    which come from formulas. Commands run when the host waits or accesses a register other than a
    doorbell; until then both queues stand still. They run in a thread of their own: an exception
    that a signal raises in the caller's thread, as KeyboardInterrupt, stops no command half-way.

    Parameters
    ----------
    config : Config
    """

    name = "model"

    def __init__(self, config: Config):
        self.config = config
        self.memory = Memory(config.host_address_width, config.bus_bytes)
        if own := card_memory(config):
            self.memory.map(*own, True)
        self.regions, self.tables = {}, {}
        self.events = Events(config.events)
        self._lookups = LookupEngine(config, self.memory, self.tables)
        engines = self._lookups, MoveEngine(config, self.memory, self.regions, self.tables)
        self.queues = {name: CommandQueue(name, self, engine)
                       for name, engine in zip(QUEUES, engines, strict=True)}
        self.registers = RegisterBlock(self)
        self.cycle = 0  # since reset; at least the clock of each queue
        self._lock = threading.Lock()
        self._failure = None  # an exception of the queues' thread

    @property
    def planning(self):
        """The `PlanEngine`; None without a planner."""
        return self._lookups.planning

    def read_register(self, offset):
        """Read the 32-bit register at a byte offset."""
        self._run()
        with self._lock:
            self.cycle += ACCESS_CYCLES
            return int(self.registers.read(offset))

    def write_register(self, offset, value):
        """Write the 32-bit register at a byte offset."""
        if offset not in DOORBELLS:
            self._run()
        with self._lock:
            self.cycle += ACCESS_CYCLES
            self.registers.write(offset, value)

    def attach(self, array, writable):
        """Make a one-dimensional uint8 array part of the device's memory; return its address."""
        with self._lock:
            return self.memory.attach(array, writable)

    def detach(self, address):
        """Remove the array at that device address from the device's memory."""
        with self._lock:
            self.memory.detach(address)

    def wait(self, queue, completed, timeout):
        """Run until no command can advance without the host; `timeout` is not used."""
        self._run()

    def close(self):
        """Does nothing."""

    def reset(self):
        """The soft reset of the CONTROL register."""
        for queue in self.queues.values():
            queue.enabled = False
            queue.restart()

    def cost(self, command, outcome):
        """Cycles of a command on the hardware."""
        return command_cycles(self.config, command, outcome, self._lookups.counters.count)

    def _run(self):
        if any(queue.is_pending for queue in self.queues.values()):
            thread = threading.Thread(target=self._run_queues, daemon=True)
            thread.start()
            thread.join()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _run_queues(self):
        with self._lock:
            try:
                while any([queue.step() for queue in self.queues.values()]):
                    pass
                self.cycle = max(self.cycle, *(queue.clock for queue in self.queues.values()))
            except Exception as failure:
                self._failure = failure


def open_transport(preset=DEFAULT_PRESET, config=None) -> Device:
    """Open the model of an accelerator.

    Parameters
    ----------
    preset : str
        Name of a preset of ``hotrow_rtl.config``.
    config : Config, optional
        Replaces the preset.

    Raises
    ------
    ValueError
        If there is no such preset.
    """
    return Device(config or preset_config(preset))
