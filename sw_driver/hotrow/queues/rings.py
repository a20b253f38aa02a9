"""Command queues: a ring of commands, a ring of completions, and the doorbell between them."""

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from threading import RLock
from typing import Any, TypeVar

import numpy as np

from ..contract.errors import DeviceError, TimeoutError, TransportError
from ..contract.generated import Opcode, QueueControlBits, QueueStateBits
from ..contract.records import COMMAND, COMPLETION, Record
from ..memory.buffer import Held
from ..memory.regions import Regions
from ..memory.registers import (
    STOPPED,
    Registers,
    describe_ports,
    describe_queue,
)
from .futures import Completion, Future

T = TypeVar("T")
_MODULUS = 1 << 32  # of the registers TAIL, HEAD and COMPLETED
_SLICE = 0.05  # seconds in the transport before the driver reads the state again
_PAUSE = 0.0005
_COMMAND, _COMPLETION = Record(COMMAND), Record(COMPLETION)


@dataclass
class Settings:
    """What a user may change while the device is open.

    Attributes
    ----------
    timeout : float
        Seconds that a wait lasts at most, unless the call has a limit of its own.
    check_ids : bool
        Check every id on the host before a command is submitted.
    """

    timeout: float
    check_ids: bool = True


def seconds(timeout: Any) -> float:
    """A limit of a wait.

    Raises
    ------
    DeviceError
        It is no number, or below 0.
    """
    if not isinstance(timeout, int | float | np.number) or not timeout >= 0:
        raise DeviceError(f"timeout must be 0 seconds or more, not {timeout!r}")
    return float(timeout)


class CommandQueue:
    """One in-order queue of the device.

    After an interrupt (Ctrl-C) in any method the next call continues: a command is submitted once
    its future is in `_outstanding`, although the next doorbell may be the first to report it, and
    completed once the future is removed.

    Parameters
    ----------
    name : str
        "lookup" or "move".
    entries : int
        Commands that can be outstanding (power of two, 2 to 65536).
    registers : Registers
    regions : Regions
    lock : threading.RLock
        The device's lock; the queue releases it between two looks at a busy device.
    settings : Settings
    account : callable
        Called with the name of the queue and the completion record of every completed command.
    """

    def __init__(self, name: str, entries: int, registers: Registers, regions: Regions,
                 lock: RLock, settings: Settings, account: Callable[[str, Completion], None]):
        self.name = name
        self._entries, self._registers, self._lock = entries, registers, lock
        self._settings, self._account = settings, account
        size = entries * (COMMAND.itemsize + COMPLETION.itemsize)
        self._regions, self._ring = regions, regions.add(
            regions.empty(size, np.uint8), True, f"rings of the {name} queue", owner="driver")
        self._prefix = f"{name.upper()}_"  # of its registers
        self._labels = {opcode: f"{opcode.name} on the {name} queue" for opcode in Opcode}
        memory, self._split = self._ring.array.data, entries * COMMAND.itemsize
        self._commands, self._completions = memory[:self._split], memory[self._split:]
        self._outstanding: deque[Future[Any]] = deque()
        self._completed = 0  # commands, since the queue was started
        self._fault: DeviceError | None = None

    def start(self) -> None:
        """Enable the queue, which must be idle, at entry 0."""
        self._write("CONTROL", 0)
        self._completed = 0
        self._fault = None
        for name, offset in (("COMMANDS", 0), ("COMPLETIONS", self._split)):
            self._registers.write_wide(self._prefix + name, self._ring.packed(offset))
        self._write("ENTRIES", self._entries.bit_length() - 1)
        self._write("CONTROL", QueueControlBits.ENABLE)

    @property
    def full(self) -> bool:
        """Whether the ring has no room for a command."""
        return self.outstanding >= self._entries

    @property
    def outstanding(self) -> int:
        """Commands that were submitted and have not completed."""
        return len(self._outstanding)

    def make_room(self, opcode: Opcode) -> None:
        """Wait, without the device's lock, until the ring has room for a command."""
        if self.full:
            self.drive(lambda: not self.full, f"{self._labels[opcode]} (its ring of "
                       f"{self._entries} commands is full)", None)

    def submit(self, opcode: Opcode, operands: dict[str, int],
               finish: Callable[[Completion], T], held: Held,
               lost: Callable[[], None] | None = None) -> Future[T]:
        """Queue one command; the ring must have room.

        Parameters
        ----------
        opcode : Opcode
        operands : dict of str to int
        finish : callable
            Turns the completion record into the result, or raises. It may be called twice.
        held : Held
            Released as soon as the device no longer needs what the command names.
        lost : callable, optional
            Called if nobody will receive the result.
        """
        if self._fault is not None:
            raise self._fault
        number = self._submitted
        future = Future(self, self._labels[opcode], number, finish, held, lost)
        _COMMAND.write(self._commands, number % self._entries,
                       operands | {"opcode": opcode, "tag": number % _MODULUS})
        self._regions.send_later(self._ring, number % self._entries * COMMAND.itemsize,
                                 COMMAND.itemsize)
        self._outstanding.append(future)
        self._regions.send()
        self._write("TAIL", self._submitted % _MODULUS)
        return future

    def owns(self, held: Held) -> bool:
        """Whether a submitted command uses `held`."""
        return any(future.held is held for future in self._outstanding)

    def poll(self) -> None:
        """Process the completions that have landed."""
        with self._lock:
            landed = (self._read("COMPLETED") - self._completed) % _MODULUS
            last = self._completed + min(landed, len(self._outstanding))
            self._fetch_completions(self._completed, last)
            while self._outstanding and self._outstanding[0].number < last:
                self._complete_first()

    def look(self) -> None:
        """Process completions; find out whether more will come."""
        with self._lock:
            if self._fault is not None:
                self.stop(self._fault)  # again: an interrupt may have ended it
            self.poll()
            self._look_for_fault()

    def drive(self, reached: Callable[[], bool], label: str, timeout: float | None) -> None:
        """Let the device run until `reached()`.

        Raises
        ------
        TimeoutError, DeviceError
        """
        timeout = self._settings.timeout if timeout is None else seconds(timeout)
        deadline = time.monotonic() + timeout
        apart, looks = self._registers.waits_apart, not timeout
        while True:
            with self._lock:
                if reached():  # perhaps as the device was closed
                    return
                if looks:
                    self.look()  # also for a fault, because more may not come
                    if reached():
                        return
                looks = True
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    raise TimeoutError(self._late(label, timeout))
                before = self._completed
                wait = partial(self._registers.wait, self.name, before % _MODULUS,
                               min(remaining, _SLICE))
                if not apart:
                    wait()
            if apart:
                wait()
            with self._lock:
                if not reached():
                    self.poll()
                if reached():
                    return
                stands = self._completed == before
            if stands:
                time.sleep(_PAUSE)  # another thread may have to signal an event

    def stop(self, error: DeviceError) -> None:
        """Give up every outstanding command; refuse others until `start`."""
        self._fault = error
        for future in self._outstanding:
            future.fail(error)
        while self._outstanding:
            with suppress(TransportError):  # a transport that is gone holds nothing
                self._outstanding[0].held.release()
            self._outstanding.popleft()

    @property
    def _submitted(self) -> int:
        """Commands submitted since the queue was started."""
        return self._outstanding[-1].number + 1 if self._outstanding else self._completed

    def _fetch_completions(self, first: int, last: int) -> None:
        """Let the host have the completions of commands `first` to `last` - 1."""
        while first < last:
            at = first % self._entries
            count = min(last - first, self._entries - at)
            self._regions.fetch(self._ring, self._split + at * COMPLETION.itemsize,
                                count * COMPLETION.itemsize)
            first += count

    def _complete_first(self) -> None:
        future, completion = self._outstanding[0], None
        if not future.ended():
            completion = _COMPLETION.read(self._completions, future.number % self._entries)
            if (completion["tag"], completion["sequence"]) != (
                    future.number % _MODULUS, (future.number + 1) % _MODULUS):
                self.stop(DeviceError(
                    f"the {self.name} queue's completion {future.number} carries tag "
                    f"{completion['tag']} and sequence {completion['sequence']}: the rings were "
                    f"overwritten; recover with Device.reset()"))
                return
            future.complete(completion)
        future.held.release()
        self._completed = future.number + 1
        self._outstanding.popleft()
        if completion is not None:
            self._account(self.name, completion)  # which may use the device

    def _look_for_fault(self) -> None:
        if self._read("STATE") & QueueStateBits.FAULTED and self._fault is None:
            ports = describe_ports(self._registers.read("STATUS"))
            self.stop(DeviceError(
                f"{describe_queue(self._registers, self.name)}{ports and '; '}{ports}: recover "
                f"with Device.reset(), which keeps regions, tables, counters and directory"))

    def _late(self, label: str, timeout: float) -> str:
        state, status = self._read("STATE"), self._registers.read("STATUS")
        if state & QueueStateBits.WAITING:
            advice = (f"signal the event, or end the wait with "
                      f"Device.abort_wait(queue={self.name!r})")
        elif status & STOPPED:
            advice = f"{describe_ports(status)}; recover with Device.reset()"
        else:
            advice = "ask for the result again to wait longer, or give up with Device.reset()"
        return (f"{label} did not complete in {timeout:g} s "
                f"({describe_queue(self._registers, self.name)}): {advice}")

    def _read(self, name: str) -> int:
        return self._registers.read(self._prefix + name)

    def _write(self, name: str, value: int) -> None:
        self._registers.write(self._prefix + name, value)
