"""One command ring with its completion ring."""

from hotrow_rtl.contract import COMMAND_BYTES, COMPLETION_BYTES, Opcode, Status

from ..golden.records import COMMAND_RECORD, COMPLETION_RECORD, decode, encode
from ..golden.regions import check_operand
from ..golden.validation import Refusal, validate
from .costs import cycles
from .outcome import Outcome

WORD = 0xFFFF_FFFF
HALF_RANGE = 1 << 31


class CommandQueue:
    """A queue of the device: fetches, checks, executes and completes commands in order.

    Parameters
    ----------
    name : str
        "lookup" or "move".
    device : Device
        Configuration, memory, regions, tables, events and the clock.
    engine : object
        `execute(command, addresses)` -> Outcome.

    Members
    -------
    commands, completions : int
        Packed addresses of the rings.
    entries_log2, enabled, halt_on_error, tail, head, completed : int
        The registers of that name.
    landed : int
        Completions since reset; the interrupt register takes notice of its changes.
    """

    def __init__(self, name, device, engine):
        self.name, self.device, self.engine = name, device, engine
        self.commands = self.completions = self.entries_log2 = 0
        self.halt_on_error = False
        self.landed = 0
        self.stop()

    def stop(self):
        """Disable, and forget what was in progress."""
        self.enabled = False
        self._restart()

    def _restart(self):
        self.tail = self.head = self.completed = 0
        self.halted = self.waiting = self.faulted = self._abort = False
        self.status = Status.OK
        self.clock = 0

    def control(self, value):
        """Write CONTROL."""
        if value & 1 and not self.enabled:
            self._restart()
        self.enabled, self.halt_on_error = bool(value & 1), bool(value & 2)
        if value & 4:
            self._abort = self.waiting
        if value & 8 and self.halted:
            self.halted, self.status = False, Status.OK

    def ring(self, tail):
        """Write TAIL, the doorbell; return whether it is accepted."""
        if (tail - self.completed) & WORD > 1 << self.entries_log2:
            return False
        self.tail = tail
        self.clock = max(self.clock, self.device.cycle)
        return True

    @property
    def state(self):
        """The STATE register."""
        return (self.busy | self.halted << 1 | self.waiting << 2 | self.faulted << 3
                | self.status << 8)

    @property
    def busy(self):
        return self.enabled and not self.halted and not self.faulted and self.head != self.tail

    def step(self):
        """Serve one command, if there is one and nothing holds it up; return whether it did."""
        if not self.busy:
            return False
        at = self.head % (1 << self.entries_log2)
        octets, fault = self._read_command(at)
        if fault is not Status.OK:
            self.faulted, self.status = True, fault
            return False
        command = decode(COMMAND_RECORD, octets)
        start = self.clock
        checked = validate(command, self.name, self.device.config, self.device.regions,
                           self.device.tables)
        if isinstance(checked, Refusal):
            outcome = Outcome(checked.status, checked.error_index, checked.error_address)
        elif command["opcode"] == Opcode.WAIT and not self._reached(command):
            self.waiting = True
            if not self._abort:
                return False
            outcome = Outcome(Status.ABORTED)
        else:
            outcome = self._execute(command, checked)
        self.waiting = self._abort = False
        self.head = (self.head + 1) & WORD
        self.clock += cycles(self.device.config, command, outcome)
        self._complete(at, command, outcome, start)
        return True

    def _execute(self, command, addresses):
        opcode, events = command["opcode"], self.device.events
        if opcode in (Opcode.NOP, Opcode.FENCE):
            return Outcome()
        if opcode == Opcode.WAIT:
            self.clock = max(self.clock, events.clock[command["event"]])
            return Outcome()
        if opcode == Opcode.SIGNAL:
            events.set(command["event"], command["value"], self.clock)
            return Outcome()
        return self.engine.execute(command, addresses)

    def _reached(self, command):
        event = self.device.events.value[command["event"]]
        return (event - command["value"]) & WORD < HALF_RANGE

    def _read_command(self, at):
        status, address = check_operand(
            self.device.regions, self.commands, COMMAND_BYTES << self.entries_log2)
        if status is not Status.OK:
            return None, status
        octets, faults = self.device.memory.read(address + COMMAND_BYTES * at, COMMAND_BYTES)
        return octets, _status(int(faults.max()))

    def _complete(self, at, command, outcome, start):
        sequence = (self.completed + 1) & WORD
        record = encode(COMPLETION_RECORD, tag=command["tag"], opcode=command["opcode"],
                        start=start, end=self.clock, sequence=sequence, **vars(outcome))
        status, address = check_operand(
            self.device.regions, self.completions, COMPLETION_BYTES << self.entries_log2, True)
        if status is Status.OK:
            status = _status(self.device.memory.write(address + COMPLETION_BYTES * at, record))
        if status is not Status.OK:
            self.faulted, self.status = True, status
            return
        self.completed = sequence
        self.landed += 1
        if outcome.status != Status.OK and self.halt_on_error:
            self.halted, self.status = True, outcome.status


def _status(fault):
    return Status(Status.SLVERR - 1 + fault) if fault else Status.OK
