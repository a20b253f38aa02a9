"""The accelerator as seen from the host, without a clock: registers, rings and memory."""

from hotrow_rtl.config import Config
from hotrow_rtl.config import preset as preset_config
from hotrow_rtl.contract.encoding import QUEUES
from hotrow_rtl.contract.registers import REGISTERS

from .command_cycles import command_cycles
from .command_queue import CommandQueue
from .events import Events
from .lookup_engine import LookupEngine
from .memory import Memory
from .move_engine import MoveEngine
from .register_block import RegisterBlock

ACCESS_CYCLES = 8  # of the clock that one register access of the host takes
DOORBELLS = {REGISTERS[f"{name.upper()}_TAIL"].offset for name in QUEUES}


class Device:
    """Transport to a model of the accelerator.

    It answers every command as the hardware does, bit for bit, except for cycle numbers, which
    come from formulas. Commands run when the host waits, or touches any register but a doorbell;
    until then both queues stand still, as a slow card's would.

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
                       for name, engine in zip(QUEUES, engines)}
        self.registers = RegisterBlock(self)
        self.cycle = 0  # since reset; never behind anything that has happened

    @property
    def planning(self):
        """What PLAN_RETIRED shows and changes; None without a planner."""
        return self._lookups.planning

    def read_register(self, offset):
        """Read the 32-bit register at a byte offset."""
        self._run()
        self.cycle += ACCESS_CYCLES
        return int(self.registers.read(offset))

    def write_register(self, offset, value):
        """Write the 32-bit register at a byte offset."""
        if offset not in DOORBELLS:
            self._run()
        self.cycle += ACCESS_CYCLES
        self.registers.write(offset, value)

    def attach(self, array, writable):
        """Make a one-dimensional uint8 array part of the device's memory; return its address."""
        return self.memory.attach(array, writable)

    def detach(self, address):
        """Take the array at that device address out of the device's memory."""
        self.memory.detach(address)

    def wait(self, queue, completed, timeout):
        """Let the device run until a queue's COMPLETED differs from `completed`.

        It runs until nothing can go on without the host, so `timeout` is never used up.
        """
        self._run()

    def close(self):
        """Nothing to release."""

    def reset(self):
        """The soft reset of the CONTROL register."""
        for queue in self.queues.values():
            queue.enabled = False
            queue.restart()

    def cost(self, command, outcome):
        """Cycles that the hardware would take for a command."""
        return command_cycles(self.config, command, outcome, self._lookups.counters.count)

    def _run(self):
        while any([queue.step() for queue in self.queues.values()]):
            pass
        self.cycle = max(self.cycle, *(queue.clock for queue in self.queues.values()))


def open_transport(preset="ecp5-85f", config=None):
    """Open the model of an accelerator.

    Parameters
    ----------
    preset : str
        Name of a preset of ``hotrow_rtl.config``.
    config : Config, optional
        Used instead of a preset.

    Returns
    -------
    Device

    Raises
    ------
    ValueError
        If there is no such preset.
    """
    return Device(preset_config(config or preset))
