"""The accelerator as the host accesses it, without a clock: registers, rings and memory."""

import threading

from hotrow_rtl.config import Config
from hotrow_rtl.config import preset as preset_config
from hotrow_rtl.contract.encoding import QUEUES
from hotrow_rtl.contract.registers import REGISTERS

from .command_cycles import command_cycles
from .command_queue import CommandQueue
from .lookup_engine import LookupEngine
from .memory import Memory
from .move_engine import MoveEngine
from .register_block import RegisterBlock

ACCESS_CYCLES = 8  # clock cycles of one register access
DOORBELLS = {REGISTERS[f"{name.upper()}_TAIL"].offset for name in QUEUES}


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
        self.memory = Memory(config.address_width, config.bus_bytes)
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


def open_transport(preset="ecp5", config=None) -> Device:
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
