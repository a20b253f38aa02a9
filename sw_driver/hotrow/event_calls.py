"""Calls that order the two queues: events and fences."""

from operator import index

from .contract import Opcode
from .errors import BatchError
from .futures import Future
from .registers import ABORT_WAIT, WAITING
from .results import Done


class EventCalls:
    """Part of `Device`. Within a queue commands are in order; between queues only events order.

    `queue` is "lookup" or "move" everywhere.
    """

    def signal(self, event, value, *, queue) -> Done:
        """Set an event counter when the queue gets there."""
        return self.signal_async(event, value, queue=queue).result()

    def signal_async(self, event, value, *, queue) -> Future:
        return self._simple(Opcode.SIGNAL, self._event(event, value), queue)

    def wait_event(self, event, value, *, queue) -> Done:
        """Hold the queue until an event counter has reached `value` (modulo 2**32)."""
        return self.wait_event_async(event, value, queue=queue).result()

    def wait_event_async(self, event, value, *, queue) -> Future:
        return self._simple(Opcode.WAIT, self._event(event, value), queue)

    def abort_wait(self, *, queue) -> bool:
        """End the `wait_event` that holds the queue, with a CommandError; whether there was one."""
        with self.lock:
            self._queue(queue)
            if not self.registers.read(f"{queue.upper()}_STATE") & WAITING:
                return False
            control = self.registers.read(f"{queue.upper()}_CONTROL")
            self.registers.write(f"{queue.upper()}_CONTROL", control | ABORT_WAIT)
            return True

    def fence(self, *, queue) -> Done:
        """Return when every earlier command of the queue has completed."""
        return self.fence_async(queue=queue).result()

    def fence_async(self, *, queue) -> Future:
        return self._simple(Opcode.FENCE, {}, queue)

    def read_event(self, event) -> int:
        """Value of an event counter."""
        with self.lock:
            self.registers.write("EVENT_SELECT", self._event(event, 0)["event"])
            return self.registers.read("EVENT_VALUE")

    def write_event(self, event, value) -> None:
        """Set an event counter from the host."""
        operands = self._event(event, value)
        with self.lock:
            self.registers.write("EVENT_SELECT", operands["event"])
            self.registers.write("EVENT_VALUE", operands["value"])

    def _event(self, event, value):
        event, value = index(event), index(value)
        if not 0 <= event < self.geometry.events:
            raise BatchError(f"event must be 0 to {self.geometry.events - 1} on this card, not "
                             f"{event}")
        return {"event": event, "value": value & 0xFFFF_FFFF}
