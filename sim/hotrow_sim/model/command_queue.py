"""One command ring with its completion ring."""

from hotrow_rtl.config import LIST_ALIGNMENT
from hotrow_rtl.contract.encoding import COMMAND_BYTES, Opcode, Status
from hotrow_rtl.contract.registers import QueueControlBits, QueueStateBits, place

from ..golden.command_validator import validate
from ..golden.outcome import Outcome, fault_status
from ..golden.records import COMMAND_RECORD, COMPLETION_RECORD, decode, encode
from ..golden.region_check import check, unpack_address

RING_SIZES_LOG2 = range(1, 17)
WORD, HALF_RANGE = 0xFFFF_FFFF, 1 << 31  # of counters that wrap around


def ahead(number, other):
    """How far `number` is ahead of `other`, both modulo 2**32: 0 to 2**32 - 1."""
    return (number - other) & WORD


class CommandQueue:
    """A queue of the device: fetches, validates, executes and completes commands in order.

    Parameters
    ----------
    name : str
        "lookup" or "move".
    device : Device
        Owner of the configuration, memory, regions, tables, events and clock.
    engine : object
        `execute(command, addresses)` returns an `Outcome`.

    Attributes
    ----------
    commands, completions : int
        Packed addresses of the rings.
    entries_log2, enabled, halt_on_error, tail, head, completed : int
        The registers of that name.
    landed : int
        Completions since power-up; a change raises the interrupt.
    clock : int
        Cycle at which the last command ended.
    """

    def __init__(self, name, device, engine):
        self.name, self.device, self.engine = name, device, engine
        self.commands = self.completions = self.entries_log2 = 0
        self.enabled = self.halt_on_error = False
        self.landed = self.clock = 0
        self.restart()

    def restart(self):
        """Drop every command; registers that only the host writes keep their values."""
        self.tail = self.head = self.completed = 0
        self.halted = self.waiting = self._abort = False
        self.fault = self.halt_status = Status.OK
        self._offered = self._running = None

    def control(self, value):
        """Write CONTROL."""
        if value & QueueControlBits.ENABLE and not self.enabled:
            self.restart()
        self.enabled = bool(value & QueueControlBits.ENABLE)
        self.halt_on_error = bool(value & QueueControlBits.HALT_ON_ERROR)
        self._abort = self.waiting and bool(value & QueueControlBits.ABORT)
        if value & QueueControlBits.RESUME:
            self.halted, self.halt_status = False, Status.OK

    def ring(self, tail):
        """Write TAIL, the doorbell; return whether the queue accepts it."""
        if not (self.enabled and self.entries_log2 in RING_SIZES_LOG2
                and ahead(self.tail, self.completed) <= ahead(tail, self.completed)
                <= 1 << self.entries_log2):
            return False
        self.tail = tail
        self.clock = max(self.clock, self.device.cycle)
        return True

    @property
    def state(self):
        """The STATE register."""
        busy, faulted = self._running is not None, self.fault is not Status.OK
        status = self.fault if faulted else self.halt_status
        return (busy * QueueStateBits.BUSY | self.halted * QueueStateBits.HALTED
                | self.waiting * QueueStateBits.WAITING | faulted * QueueStateBits.FAULTED
                | place(QueueStateBits.STATUS, status))

    @property
    def is_pending(self):
        """Whether a command is fetched, runs or waits in the ring."""
        return (self.head != self.tail or self._offered is not None
                or self._running is not None)

    def step(self):
        """Advance the current or the next command; return whether one completed."""
        self._fetch()
        if self._running is None:
            if self._offered is None or self.halted or not self._is_active:
                return False
            self._running, self._offered = (self._offered, self.clock), None
            self._fetch()  # the hardware also fetches one command ahead
        command, start = self._running
        outcome = self._serve(command)
        if outcome is None:
            return False
        self._running, self.waiting, self._abort = None, False, False
        self.clock += self.device.cost(command, outcome)
        if self.halt_on_error and outcome.status != Status.OK:
            self.halted, self.halt_status = True, outcome.status
        self._complete(command, outcome, start)
        return True

    @property
    def _is_active(self):
        return self.enabled and self.fault is Status.OK

    def _serve(self, command):
        """Validate and execute a command; None while it waits for an event."""
        checked = validate(command, self.name, self.device.config, self.device.regions,
                           self.device.tables)
        if isinstance(checked, Outcome):
            return checked
        opcode, events = command["opcode"], self.device.events
        if opcode in (Opcode.NOP, Opcode.FENCE):
            return Outcome()
        if opcode == Opcode.SIGNAL:
            events.set(command["event"], command["value"], self.clock)
            return Outcome()
        if opcode != Opcode.WAIT:
            return self.engine.execute(command, checked)
        if ahead(events.value[command["event"]], command["value"]) < HALF_RANGE:
            self.clock = max(self.clock, events.clock[command["event"]])
            return Outcome()
        self.waiting = True
        return Outcome(Status.ABORTED) if self._abort else None

    def _fetch(self):
        """Read the next command, if there is one and the buffer is empty."""
        if self._offered is not None or self.head == self.tail or not self._is_active:
            return
        status, address = self._entry(self.commands, self.head, write=False)
        if status is Status.OK:
            octets, faults = self.device.memory.read(address, COMMAND_BYTES)
            status = Status(int(fault_status(next(filter(None, faults.tolist()), 0))))
        if status is not Status.OK:
            self.fault = status
            return
        self.head = (self.head + 1) & WORD
        self._offered = decode(COMMAND_RECORD, octets)

    def _complete(self, command, outcome, start):
        """Write the completion."""
        sequence = (self.completed + 1) & WORD
        record = encode(COMPLETION_RECORD, tag=command["tag"], opcode=command["opcode"],
                        start=start, end=self.clock, sequence=sequence, **vars(outcome))
        status, address = self._entry(self.completions, self.completed, write=True)
        if status is Status.OK:
            status = Status(int(fault_status(self.device.memory.write(address, record))))
        if status is not Status.OK:
            self.fault = status
            return
        self.completed = sequence
        self.landed += 1

    def _entry(self, ring, number, write):
        """Status and byte address of an entry; the entries of both rings have one size."""
        offset = COMMAND_BYTES * (number % (1 << self.entries_log2))
        handle, first = unpack_address(ring)
        region = self.device.regions.get(handle)
        status = Status(int(check(region, first + offset, COMMAND_BYTES, write)))
        address = (region.base if region else 0) + first + offset
        if status is Status.OK and address % LIST_ALIGNMENT:
            status = Status.MISALIGNED
        return status, address
