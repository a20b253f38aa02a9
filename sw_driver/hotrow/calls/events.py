"""Order between the queues: WAIT, SIGNAL and FENCE, and the event counters."""

from __future__ import annotations

from ..contract.errors import BatchError
from ..contract.generated import Opcode, QueueControlBits, QueueStateBits
from ..operands.integers import whole
from ..operands.results import Done
from ..queues.commands import Commands
from ..queues.futures import Future


class Events:
    """Part of `Device`. Commands of one queue are in order; only events order two queues.

    `queue` is "lookup" or "move" in every call.
    """

    def __init__(self, commands: Commands):
        self._commands = commands

    def clear(self) -> None:
        """Set every event counter to 0."""
        for event in range(self._commands.geometry.events):
            self.write_event(event, 0)

    def signal(self, event: int, value: int, *, queue: str) -> Future[Done]:
        """Set an event counter when the queue reaches this command."""
        return self._commands.simple(Opcode.SIGNAL, self._event(event, value), queue)

    def wait_event(self, event: int, value: int, *, queue: str) -> Future[Done]:
        """Stop the queue until an event counter has reached `value` (modulo 2**32)."""
        return self._commands.simple(Opcode.WAIT, self._event(event, value), queue)

    def fence(self, *, queue: str) -> Future[Done]:
        """Complete when every earlier command of the queue has completed."""
        return self._commands.simple(Opcode.FENCE, {}, queue)

    def abort_wait(self, *, queue: str) -> bool:
        """End the `wait_event` that stops the queue, with a CommandError; whether there was one."""
        self._commands.queue(queue)
        with self._commands.lock:
            self._commands.check_open()
            registers, name = self._commands.registers, queue.upper()
            if not registers.read(f"{name}_STATE") & QueueStateBits.WAITING:
                return False
            control = registers.read(f"{name}_CONTROL")
            registers.write(f"{name}_CONTROL", control | QueueControlBits.ABORT)
            return True

    def read_event(self, event: int) -> int:
        """Value of an event counter."""
        operands = self._event(event, 0)
        with self._commands.lock:
            self._commands.check_open()
            self._commands.registers.write("EVENT_SELECT", operands["event"])
            return self._commands.registers.read("EVENT_VALUE")

    def write_event(self, event: int, value: int) -> None:
        """Set an event counter from the host."""
        operands = self._event(event, value)
        with self._commands.lock:
            self._commands.check_open()
            self._commands.registers.write("EVENT_SELECT", operands["event"])
            self._commands.registers.write("EVENT_VALUE", operands["value"])

    def _event(self, event: int, value: int) -> dict[str, int]:
        event, value = whole(event, "event"), whole(value, "value")
        if not 0 <= event < self._commands.geometry.events:
            raise BatchError(f"event must be 0 to {self._commands.geometry.events - 1} on this "
                             f"card, not {event}")
        return {"event": event, "value": value & 0xFFFF_FFFF}
