"""What every call of a device uses: its lock, its memory, its tables and its queues."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import numpy as np

from ..contract.errors import (
    CommandError,
    DeviceError,
    HostWriteError,
    TimeoutError,
    TransportError,
)
from ..contract.generated import (
    IDENTITY,
    QUEUE_OF,
    QUEUES,
    STATUS_DOC,
    VERSION,
    ControlBits,
    Opcode,
    QueueStateBits,
    Status,
    StatusBits,
)
from ..memory.buffer import Held
from ..memory.card_memory import CardMemory
from ..memory.regions import Regions
from ..memory.registers import (
    STOPPED,
    Registers,
    describe_device,
    describe_ports,
    read_geometry,
)
from ..memory.transport import Transport
from ..operands.integers import Integers
from ..operands.results import Done, RowList
from ..operands.row_lists import refusal
from ..operands.staging import SLAB_BYTES, Pool
from ..operands.tables import Tables
from ..system.forks import ForkLock
from .copy_access import BLOCK_BYTES, PIECE_BYTES, CopyAccess
from .futures import Completion, Future
from .rings import CommandQueue, Settings

T = TypeVar("T")
_ALL_BITS = 0xFFFF_FFFF
_SLICE = 0.01  # seconds between two looks at a device that is not ready


class Commands:
    """Submit commands, and hold what they need until they have completed.

    Parameters
    ----------
    transport : Transport
    timeout : float
        See `Settings`.
    ring_entries : int
        Commands that can be outstanding in each queue.
    memory_timeout : int
        Cycles without progress after which the card stops waiting for its memory; 0 for never.

    Attributes
    ----------
    settings : Settings
    lock : ForkLock
        Held by every call while it uses the device.
    registers : Registers
    geometry : Geometry
    regions : Regions
    tables : Tables
    results, staging : Pool
        Memory that the device writes, and that it reads.
    queues : dict of str to CommandQueue
    statistics : dict of int to list of int
        Completed commands and their cycles, by opcode.
    listeners : list of callable
        Called with a queue's name and the completion record of each of its commands. They may use
        the device; an exception ends the call under way.
    submitted : int
        Commands so far.
    closed : bool
    """

    def __init__(self, transport: Transport, timeout: float, ring_entries: int,
                 memory_timeout: int):
        self.settings, self.lock, self.closed = Settings(timeout), ForkLock(), False
        self.registers = Registers(transport)
        found = self.registers.read("IDENTITY"), self.registers.read("VERSION")
        if found != (IDENTITY, VERSION):
            raise DeviceError(
                f"expected a hotrow card of contract version {VERSION} (identity {IDENTITY:#x}), "
                f"found identity {found[0]:#x}, version {found[1]}")
        self.geometry = read_geometry(self.registers)
        self.regions = Regions(transport, self.registers, self.geometry.handles)
        self.tables = Tables(self.registers, self.regions, self.geometry)
        self.statistics: dict[int, list[int]] = {}
        self.listeners: list[Callable[[str, Completion], None]] = []
        self.registers.write("TIMEOUT", memory_timeout)
        self._soft_reset(timeout)
        self.tables.clear()
        self.regions.clear()
        slab_bytes = getattr(transport, "staging_bytes", SLAB_BYTES)
        self.results = Pool(self.regions, True, slab_bytes)
        self.staging = Pool(self.regions, False, slab_bytes)
        self.queues = {name: CommandQueue(name, ring_entries, self.registers, self.regions,
                                          self.lock, self.settings, self.account)
                       for name in QUEUES}
        self.submitted = 0
        self.start()
        if self.geometry.card_memory_log2 and self.regions.reaches_host:
            self.regions.copies = self._card_memory()

    @contextmanager
    def open(self, opcode: Opcode, queue: str | None = None) -> Iterator[Held]:
        """Hold the device's lock, with room for one command in its queue.

        What the yielded `Held` holds is released if no command that uses it was submitted.
        """
        ring, held = self.queue(queue or QUEUE_OF[opcode]), Held()
        while True:
            if ring.full:
                self.check_open()
                ring.make_room(opcode)
            with self.lock:
                if ring.full:  # by another thread
                    continue
                self.check_open()
                self.regions.push()
                try:
                    yield held
                    return
                except BaseException:
                    if not ring.owns(held):
                        held.release()
                    raise

    def submit(self, opcode: Opcode, operands: dict[str, int],
               finish: Callable[[Completion], T], held: Held, queue: str | None = None,
               lost: Callable[[], None] | None = None) -> Future[T]:
        """Queue one command inside `open`; see `CommandQueue.submit`."""
        self.submitted += 1
        return self.queue(queue or QUEUE_OF[opcode]).submit(opcode, operands, finish, held, lost)

    def simple(self, opcode: Opcode, operands: dict[str, int],
               queue: str | None = None) -> Future[Done]:
        """Queue a command that needs no memory."""
        with self.open(opcode, queue) as held:
            return self.submit(opcode, operands, self.done, held, queue)

    def queue(self, name: str) -> CommandQueue:
        """The queue of that name.

        Raises
        ------
        DeviceError
        """
        if not isinstance(name, str) or name not in self.queues:
            raise DeviceError(f"queue must be {' or '.join(map(repr, QUEUES))}, not {name!r}")
        return self.queues[name]

    def done(self, completion: Completion, rows: RowList | None = None,
             positions: Integers | None = None) -> Done:
        """The result of a command that returns none; arguments as in `check`."""
        self.check(completion, rows, positions)
        return Done(cycles_of(completion))

    def check(self, completion: Completion, rows: RowList | None = None,
              positions: Integers | None = None) -> None:
        """Raise the error that a completion reports.

        Parameters
        ----------
        completion : record of COMPLETION
        rows : RowList, optional
            The list of the command.
        positions : integers [rows], optional
            Place of each entry in the list that the caller gave, if `rows` is another list.

        Raises
        ------
        BatchError, CommandError
        """
        if completion["status"] == Status.OK:
            return
        status = Status(completion["status"])
        index, address = completion["error_index"], completion["error_address"]
        if status in (Status.ROW_OUT_OF_RANGE, Status.TABLE_UNKNOWN) and rows is not None:
            raise refusal(rows, index, self.tables, positions)
        index = index if positions is None else int(positions[index])
        opcode = Opcode(completion["opcode"])
        where = f", address {self.regions.describe(address)}" if address else ""
        ports = describe_ports(self.registers.read("STATUS"))
        raise CommandError(
            f"{opcode.name} ended with {status.name} ({STATUS_DOC[status]}): index {index}{where}"
            + (f"; {ports}: recover with Device.reset()" if ports else "")
            + ("; recover with Device.clear_directory()" if status == Status.PARITY else ""),
            opcode=opcode, status=status, index=index, address=address)

    def check_open(self) -> None:
        """Raise DeviceError if the device is closed."""
        if self.closed:
            raise DeviceError("the device is closed")

    def poll(self) -> None:
        """Process the completions that have landed."""
        for queue in self.queues.values():
            queue.poll()

    def start(self) -> None:
        """Enable the queues, which must be idle."""
        for queue in self.queues.values():
            queue.start()

    def give_up(self, why: str, timeout: float) -> None:
        """End the commands under way, whether or not the device responds."""
        error = DeviceError(f"{why} while this command was under way")
        try:
            self.poll()
            self._soft_reset(timeout)
        finally:
            for queue in self.queues.values():
                queue.stop(error)

    def _card_memory(self) -> CardMemory:
        """Copies of arrays in the card's own memory."""
        base, size = 1 << self.geometry.host_address_width, 1 << self.geometry.card_memory_log2
        host = self.regions.add(self.regions.empty(PIECE_BYTES, np.uint8), True,
                                "the array between host and card", owner="driver")
        access = CopyAccess(self._copy, lambda: (self.submitted, self._idle), host,
                            self.regions.add_card(base, size), base)
        return CardMemory(access, base, size, BLOCK_BYTES)

    @property
    def _idle(self) -> bool:
        return not any(queue.outstanding for queue in self.queues.values())

    def _copy(self, source: int, destination: int, count: int) -> None:
        queue = QUEUE_OF[Opcode.COPY]
        self.queue(queue).make_room(Opcode.COPY)
        self.submit(Opcode.COPY, {"count": count, "source": source, "destination": destination},
                    self.done, Held(), queue).wait()

    def end(self, timeout: float) -> None:
        """Give up what is under way for good, and fetch what only commands can.

        Raises
        ------
        TransportError
            The device hangs, or is gone, and the host lacks what the card wrote to its own memory.
        HostWriteError
        """
        why, hangs = "the device was closed", False
        try:
            self.give_up(why, timeout)
        except DeviceError:  # which can be left
            hangs = True
        if self.regions.on_card:
            try:
                if not hangs:
                    self.start()
                self._fetch_on_card()  # which a device that hangs refuses, if there is anything
                if not hangs:
                    self.give_up(why, timeout)
            except (DeviceError, CommandError, TimeoutError) as error:
                raise TransportError(str(error)) from error

    def _fetch_on_card(self) -> None:
        """Let the host have what the card wrote, also beside what the host wrote."""
        try:
            self.regions.flush()
        except HostWriteError:
            self.regions.upload()
            raise

    def account(self, queue: str, completion: Completion) -> None:
        """Count a command that has completed, and call the listeners."""
        count = self.statistics.setdefault(completion["opcode"], [0, 0])
        count[0] += 1
        count[1] += cycles_of(completion)
        for listener in self.listeners:
            listener(queue, completion)

    def _soft_reset(self, timeout: float) -> None:
        """Restart queues, engines and ports, and wait until they are ready."""
        self.registers.write("CONTROL", ControlBits.SOFT_RESET)
        deadline = time.monotonic() + timeout
        while True:
            status = self.registers.read("STATUS")
            busy = any(self.registers.read(f"{name.upper()}_STATE") & QueueStateBits.BUSY
                       for name in QUEUES)
            if status & StatusBits.READY and not status & STOPPED and not busy:
                break
            if time.monotonic() > deadline:
                raise DeviceError(f"the device did not become ready in {timeout:g} s after a "
                                  f"reset ({describe_device(self.registers)}): it needs its "
                                  f"power-up reset")
            if status & StatusBits.READY and status & STOPPED:  # a memory still owed answers
                self.registers.write("CONTROL", ControlBits.SOFT_RESET)
            first = QUEUES[0]
            self.registers.wait(
                first, self.registers.read(f"{first.upper()}_COMPLETED"), _SLICE)
        self.registers.write("FAULT", _ALL_BITS)
        self.registers.write("INTERRUPT", _ALL_BITS)


def cycles_of(completion: Completion) -> int:
    """Cycles that a command took."""
    return completion["end"] - completion["start"]
