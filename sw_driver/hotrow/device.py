"""A device: what is registered with it, its queues, and its calls."""

import threading
import time
from contextlib import ExitStack, contextmanager, suppress

import numpy as np

from .arithmetic_calls import ArithmeticCalls
from .contract import IDENTITY, QUEUE_OF, QUEUES, STATUS_DOC, VERSION, Opcode, Status
from .errors import CommandError, DeviceError, RegistrationError, TransportError
from .event_calls import EventCalls
from .futures import Future
from .lookup_calls import LookupCalls
from .memory import Buffer
from .move_calls import MoveCalls
from .plan_calls import PlanCalls
from .pool import SLAB_BYTES, Pool
from .regions import Regions
from .registers import (
    BUSY,
    READY,
    SOFT_RESET,
    STOPPED,
    Registers,
    describe_device,
    describe_ports,
    read_geometry,
)
from .results import Done, OpcodeStatistics
from .rings import CommandQueue
from .row_lists import refusal
from .span_calls import SpanCalls
from .tables import Table, Tables
from .transport import open_transport

_LOOKUP = QUEUES[0]
_FAREWELL = 5.0  # seconds that a device may take to stop when it is closed
_SLICE = 0.01  # seconds between two looks at a device that is not ready


def open(transport, preset="ecp5-85f", *, timeout=300.0, ring_entries=64, memory_timeout=1 << 20,
         **options) -> "Device":
    """Open a device and bring it to a known, empty state.

    Parameters
    ----------
    transport : str
        "model" (NumPy, no compiler needed), "sim" (the Verilated hardware), or another that is
        installed.
    preset : str
        Geometry of a simulated card: "tiny", "ecp5-small", "ecp5-85f" or "alveo-u55c".
    timeout : float
        Seconds after which a wait for a result raises `TimeoutError`.
    ring_entries : int
        Commands that can be outstanding per queue; a power of two, 2 to 65536.
    memory_timeout : int
        Cycles without progress after which the card gives up on a memory; 0 for never.
    **options
        For the transport.

    Raises
    ------
    TransportError
        Naming the transports that are installed.
    DeviceError
        If what answers is no hotrow card of a version that this driver knows.
    """
    if ring_entries & (ring_entries - 1) or not 2 <= ring_entries <= 1 << 16:
        raise DeviceError(f"ring_entries must be a power of two, 2 to 65536, not {ring_entries}")
    link = open_transport(transport, preset=preset, **options)
    try:
        return Device(link, timeout, ring_entries, memory_timeout)
    except BaseException:
        link.close()
        raise


class Device(LookupCalls, PlanCalls, MoveCalls, ArithmeticCalls, SpanCalls, EventCalls):
    """An open device; a context manager. Made by `hotrow.open`.

    Members
    -------
    geometry : Geometry
    check_ids : bool
        Check every id on the host before anything is submitted; otherwise the card reports the
        first that is wrong, after it has served the others.
    timeout : float
        Seconds that a wait lasts at most, unless it is given another limit.
    """

    def __init__(self, transport, timeout, ring_entries, memory_timeout):
        self.transport, self.timeout, self.check_ids = transport, timeout, True
        self.lock = threading.RLock()
        self.registers = Registers(transport)
        found = self.registers.read("IDENTITY"), self.registers.read("VERSION")
        if found != (IDENTITY, VERSION):
            raise DeviceError(
                f"expected a hotrow card of contract version {VERSION} (identity {IDENTITY:#x}), "
                f"found identity {found[0]:#x}, version {found[1]}")
        self.geometry = read_geometry(self.registers)
        self.regions = Regions(transport, self.registers, self.geometry.handles)
        self._tables = Tables(self.registers, self.regions, self.geometry)
        self._observed = np.zeros(self.geometry.tables)  # lookups of each table in the counters
        self._statistics: dict[str, OpcodeStatistics] = {}
        self._closed = False
        self._soft_reset(timeout)
        self.registers.write("TIMEOUT", memory_timeout)
        self._tables.clear()
        self.regions.clear()
        for event in range(self.geometry.events):
            self.write_event(event, 0)
        slab_bytes = getattr(transport, "staging_bytes", SLAB_BYTES)
        self._results = Pool(self.regions, True, slab_bytes)
        self._staging = Pool(self.regions, False, slab_bytes)
        self._queues = {name: CommandQueue(self, name, ring_entries) for name in QUEUES}
        for queue in self._queues.values():
            queue.start()
        self.clear_counters()
        self.clear_directory()
        self._statistics.clear()

    def close(self):
        """Stop the device and release it; commands still under way are given up."""
        with self.lock:
            if self._closed:
                return
            try:
                with suppress(DeviceError):  # one that hangs can be left
                    self._give_up("the device was closed", min(self.timeout, _FAREWELL))
                self._tables.remove_all()
                self.regions.remove_all()
            except TransportError:
                pass  # and so can one that is gone
            finally:
                self._closed = True
                self.transport.close()

    @property
    def closed(self) -> bool:
        return self._closed

    def reset(self):
        """Recover from a fault: give up commands under way; restart ports, engines and queues.

        Regions, tables, counters and directory keep their contents; but a plan that was under way
        is lost, and then the directory has to be cleared before the next one.

        Raises
        ------
        DeviceError
            If the device does not become ready again.
        """
        with self.lock:
            self._check_open()
            self._give_up("the device was reset", self.timeout)
            self._lose_plans()
            for queue in self._queues.values():
                queue.start()

    def register_table(self, weights, name=None, state=None, partition=(0, 1)) -> Table:
        """Register an embedding table; the device works on the array's own memory.

        Parameters
        ----------
        weights : numpy.ndarray or CPU torch tensor [rows, dim]
            float32, float16 or bfloat16. Base a multiple of 16 bytes: see `hotrow.empty`. Rows
            whose bytes are no multiple of 16 are copied to a padded array, with a
            PaddedCopyWarning; `Table.weights` is what the device moves.
        name : str, optional
        state : numpy.ndarray or CPU torch tensor [rows] or [rows, n], optional
            Optimizer state, contiguous, 4, 8, 16 or 32 bytes a row.
        partition : (int, int)
            Which of how many equal parts of the directory serves the table.
        """
        with self.lock:
            self._check_open()
            return self._tables.add(weights, name, state, partition)

    def unregister_table(self, table: Table) -> None:
        """Forget a table; its rows should have been removed from the directory before."""
        with self.lock:
            self._check_open()
            self._take_up()
            self._tables.remove(table)

    @property
    def tables(self) -> tuple[Table, ...]:
        """The registered tables, by number."""
        return self._tables.registered

    def register(self, array, writable=True) -> Buffer:
        """Register memory for batches or gathered rows, so that nothing need be copied."""
        with self.lock:
            self._check_open()
            return self.regions.add(array, writable)

    def unregister(self, buffer: Buffer) -> None:
        """End a registration made by `register`."""
        with self.lock:
            self._check_open()
            self._take_up()
            if any(buffer in table.buffers for table in self.tables):
                raise RegistrationError(f"{buffer.name} belongs to a table: unregister the table")
            self.regions.remove(buffer)

    @property
    def statistics(self) -> dict[str, OpcodeStatistics]:
        """Commands completed and their cycles, by the name of the opcode."""
        with self.lock:
            return dict(self._statistics)

    def cycle(self) -> int:
        """Cycles since the device was powered up."""
        with self.lock:
            low = self.registers.read("CYCLE_LOW")
            return self.registers.read("CYCLE_HIGH") << 32 | low

    def account(self, opcode, cycles):
        """Add a completed command to the statistics; called by the queues."""
        before = self._statistics.get(opcode.name, OpcodeStatistics())
        self._statistics[opcode.name] = OpcodeStatistics(
            before.commands + 1, before.cycles + cycles)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __repr__(self):
        state = "closed" if self._closed else f"{len(self.tables)} tables"
        return f"<Device {self.transport.name!r}, {state}>"

    @contextmanager
    def _command(self):
        """Collect what a command holds; dropped at once if it is not submitted."""
        with self.lock, ExitStack() as held:
            self._check_open()
            yield held

    def _submit(self, opcode, operands, finish, held, queue=None) -> Future:
        queue = self._queues[queue or QUEUE_OF[opcode]]
        return queue.submit(opcode, operands, finish, held.pop_all())

    def _simple(self, opcode, operands, queue=_LOOKUP) -> Future:
        """A command without lists."""
        self._queue(queue)
        with self._command() as held:
            return self._submit(opcode, operands, self._done, held, queue)

    def _done(self, completion, **told):
        """The result of a command without one; `told` as of `_raise_for`."""
        self._raise_for(completion, **told)
        return Done(int(completion["end"]) - int(completion["start"]))

    def _queue(self, name):
        if name not in self._queues:
            raise DeviceError(f"queue must be {' or '.join(map(repr, QUEUES))}, not {name!r}")
        return self._queues[name]

    def _raise_for(self, completion, batch=None, tables=None, rows=None, positions=None):
        """Raise what a completion's status deserves; its index is a place in `positions`."""
        status = Status(int(completion["status"]))
        index, address = int(completion["error_index"]), int(completion["error_address"])
        if status is Status.OK:
            return
        if status is Status.ROW_OUT_OF_RANGE and batch is not None:
            raise batch.refusal(index, tables)
        if status in (Status.ROW_OUT_OF_RANGE, Status.TABLE_UNKNOWN) and rows is not None:
            raise refusal(rows, index, self._tables, positions)
        index = index if positions is None else int(positions[index])
        opcode = Opcode(int(completion["opcode"]))
        where = f", address {self.regions.describe(address)}" if address else ""
        ports = describe_ports(self.registers.read("STATUS"))
        raise CommandError(
            f"{opcode.name} ended with {status.name} ({STATUS_DOC[status]}): index {index}{where}"
            + (f"; {ports}: recover with Device.reset()" if ports else ""),
            opcode=opcode, status=status, index=index, address=address)

    def _take_up(self):
        for queue in self._queues.values():
            queue.poll()

    def _check_open(self):
        if self._closed:
            raise DeviceError("the device is closed")

    def _give_up(self, why, timeout):
        """End what is under way, whether or not the device goes along."""
        error = DeviceError(f"{why} while this command was under way")
        try:
            self._take_up()
            self._soft_reset(timeout)
        finally:
            for queue in self._queues.values():
                queue.stop(error)

    def _soft_reset(self, timeout):
        """Restart queues, engines and ports, and wait until they are ready."""
        self.registers.write("CONTROL", SOFT_RESET)
        deadline = time.monotonic() + timeout
        while True:
            status = self.registers.read("STATUS")
            busy = any(self.registers.read(f"{name.upper()}_STATE") & BUSY for name in QUEUES)
            if status & READY and not status & STOPPED and not busy:
                break
            if time.monotonic() > deadline:
                raise DeviceError(f"the device did not become ready in {timeout:g} s after a "
                                  f"reset ({describe_device(self.registers)}): it needs its "
                                  f"power-up reset")
            self.registers.wait(
                _LOOKUP, self.registers.read(f"{_LOOKUP.upper()}_COMPLETED"), _SLICE)
        self.registers.write("FAULT", 0xFFFF_FFFF)
        self.registers.write("INTERRUPT", 0xFFFF_FFFF)
