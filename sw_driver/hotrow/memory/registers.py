"""Register access by name, and state registers in words."""

from collections.abc import Callable
from enum import IntEnum
from typing import Any, TypeVar

from ..contract.errors import TransportError
from ..contract.generated import (
    GEOMETRY,
    QUEUES,
    REGISTERS,
    QueueStateBits,
    Status,
    StatusBits,
)
from ..contract.geometry import Geometry
from .transport import Transport

_STOPPED_PORTS = {
    StatusBits.LIST_PORT: "list port", StatusBits.RESULT_PORTS: "result ports",
    StatusBits.ROW_READS: "row ports' reads", StatusBits.ROW_WRITES: "row ports' writes"}
STOPPED = sum(_STOPPED_PORTS)

T = TypeVar("T")
_STATES = {QueueStateBits.BUSY: "busy", QueueStateBits.HALTED: "halted by an error",
           QueueStateBits.WAITING: "waiting for an event",
           QueueStateBits.FAULTED: "faulted: its rings cannot be read or written"}
_STALLED = "faulted: its engine makes no progress"


def place(field: IntEnum, value: int) -> int:
    """`value` at the bits of a field of a register."""
    return value * (field & -field)


def extract(field: IntEnum, word: int) -> int:
    """The value of a field of a register."""
    return (word & field) // (field & -field)


class Registers:
    """The registers of one device by name; a `*_LOW` and `*_HIGH` pair also as one value.

    Attributes
    ----------
    waits_apart : bool
        Whether `wait` may run beside other calls.
    """

    def __init__(self, transport: Transport):
        self._transport = transport
        self.waits_apart: bool = getattr(transport, "waits_apart", False)

    def read(self, name: str) -> int:
        """The value of a register."""
        return self._reach(self._transport.read_register, REGISTERS[name])

    def write(self, name: str, value: int) -> None:
        """Write a register."""
        self._reach(self._transport.write_register, REGISTERS[name], value)

    def wait(self, queue: str, completed: int, timeout: float) -> None:
        """Let the device run; see `Transport.wait`."""
        self._reach(self._transport.wait, QUEUES.index(queue), completed, timeout)

    def write_wide(self, name: str, value: int) -> None:
        """Write a 64-bit value to `name`_LOW and `name`_HIGH."""
        self.write(f"{name}_LOW", value & 0xFFFF_FFFF)
        self.write(f"{name}_HIGH", value >> 32)

    def _reach(self, call: Callable[..., T], *arguments: int | float) -> T:
        try:
            return call(*arguments)
        except (OSError, RuntimeError) as failure:
            raise TransportError(f"transport {self._transport.name!r}: {failure}") from failure


def describe_state(state: int) -> str:
    """A queue's STATE register in words."""
    status = extract(QueueStateBits.STATUS, state)
    states = _STATES | ({QueueStateBits.FAULTED: _STALLED} if status == Status.STALLED else {})
    words = [text for bit, text in states.items() if state & bit]
    if status and status in Status._value2member_map_:
        words.append(f"status {Status(status).name}")
    return ", ".join(words) or "idle"


def describe_queue(registers: Registers, queue: str) -> str:
    """A queue's progress and state in words."""
    name = queue.upper()
    tail, head, completed = (
        registers.read(f"{name}_{what}") for what in ("TAIL", "HEAD", "COMPLETED"))
    return (f"{queue} queue: {describe_state(registers.read(f'{name}_STATE'))}; "
            f"{tail} submitted, {head} fetched, {completed} completed")


def describe_ports(status: int) -> str:
    """The memory ports that have stopped according to the STATUS register, or an empty string."""
    stopped = [text for bit, text in _STOPPED_PORTS.items() if status & bit]
    return f"stopped after a time-out: {', '.join(stopped)}" if stopped else ""


def describe_device(registers: Registers) -> str:
    """Queues and ports in words, for the text of an error."""
    parts = [describe_queue(registers, queue) for queue in QUEUES]
    ports = describe_ports(registers.read("STATUS"))
    return "; ".join([*parts, *([ports] if ports else ())])


def read_geometry(registers: Registers) -> Geometry:
    """The sizes of the card."""
    found: dict[str, Any] = {
        name: registers.read(register) for name, register in GEOMETRY.items()}
    return Geometry(**found)
