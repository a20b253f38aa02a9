"""A device: registered tables and memory, and its calls."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from .calls.arithmetic import Arithmetic
from .calls.batch_operands import BatchLike, BatchOperands, StagedBatch
from .calls.events import Events
from .calls.lookup import Lookup
from .calls.mover import Mover
from .calls.planner import Planner
from .calls.plans_at_once import PlansAtOnce
from .calls.row_operands import RowOperands, StagedRows
from .calls.spans import Spans
from .contract.errors import DeviceError, RegistrationError, TransportError
from .contract.generated import Opcode
from .contract.geometry import Preset
from .memory.buffer import Array, Buffer
from .memory.transport import Transport, open_transport
from .operands.results import OpcodeStatistics
from .operands.row_lists import Rows
from .operands.table import Table
from .operands.tables import TableSet
from .queues.commands import Commands
from .queues.futures import Future
from .queues.rings import seconds

P = ParamSpec("P")
R = TypeVar("R")
DEFAULT_DEVICE = "cpu"
_FAREWELL = 5.0  # seconds that a device may take to stop when it is closed


def open(transport: str = DEFAULT_DEVICE, preset: str | Preset | None = None, *,
         timeout: float = 300.0, ring_entries: int = 64, memory_timeout: int = 1 << 20,
         **options: Any) -> Device:
    """Open a device and bring it to a known, empty state.

    Parameters
    ----------
    transport : str
        "cpu" (the card compiled for the host's cores), "sim" (the Verilated hardware), or another
        that is installed, with its address after a colon.
    preset : str or Preset, optional
        Geometry of a card in software or simulation, by name or as a variant of a preset; by
        default "ecp5", with "cpu" one that suits the host.
    timeout : float
        Seconds after which a wait for a result raises `TimeoutError`.
    ring_entries : int
        Commands that can be outstanding per queue; a power of two, 2 to 65536.
    memory_timeout : int
        Cycles without progress after which the card stops waiting for its memory; 0 for never.
    **options
        For the transport.

    Raises
    ------
    TransportError
        If the transport is not installed, naming those that are, or refuses: no such preset, option
        or card.
    DeviceError
        If a number is out of range, or the other end is no hotrow card of a version that this
        driver knows.
    """
    if (not isinstance(ring_entries, int | np.integer) or not 2 <= ring_entries <= 1 << 16
            or ring_entries & (ring_entries - 1)):
        raise DeviceError(f"ring_entries must be a power of two, 2 to 65536, not {ring_entries!r}")
    if (not isinstance(memory_timeout, int | np.integer)
            or not 0 <= memory_timeout < 1 << 32):
        raise DeviceError(f"memory_timeout must be 0 to 2**32 - 1 cycles, not {memory_timeout!r}")
    timeout = seconds(timeout)
    if preset is not None:
        if not isinstance(preset, str | Preset):
            raise DeviceError(f"preset is the name of a preset or a Preset, not {preset!r}")
        options["preset"] = preset
    link = open_transport(transport, **options)
    try:
        return Device(link, timeout, int(ring_entries), int(memory_timeout))
    except BaseException:
        link.close()
        raise


def _delegated(part: str, method: Callable[Concatenate[Any, P], R]) -> Callable[
        Concatenate[Any, P], R]:
    """A method of a device's part as a method of the device."""
    @wraps(method)
    def call(self: Any, /, *arguments: P.args, **named: P.kwargs) -> R:
        return method(getattr(self, part), *arguments, **named)

    call.__qualname__ = f"Device.{method.__name__}"
    return call


def _forms(part: str, method: Callable[Concatenate[Any, P], Future[R]]) -> tuple[
        Callable[Concatenate[Any, P], R], Callable[Concatenate[Any, P], Future[R]]]:
    """A method that queues a command, in a form that waits for the result and as it is."""
    start = _delegated(part, method)
    start.__name__ += "_async"
    start.__qualname__ += "_async"

    @wraps(method)
    def call(self: Any, /, *arguments: P.args, **named: P.kwargs) -> R:
        return method(getattr(self, part), *arguments, **named).wait()

    call.__qualname__ = f"Device.{method.__name__}"
    signature = inspect.signature(method)
    result = signature.return_annotation.removeprefix("Future[").removesuffix("]")
    call.__signature__ = signature.replace(return_annotation=result)  # type: ignore[attr-defined]
    return call, start


class Device:
    """An open device; a context manager. Made by `hotrow.open`.

    Each command has two forms: X waits for the result, X_async returns a `Future`. Commands of one
    queue are in order: "lookup" has observe, decay, harvest, counts, clear_counters, install,
    remove, clear_directory, split, plan and mark, "move" has gather, scatter, pool, update, copy
    and fill. Only events order two queues.

    Attributes
    ----------
    transport : Transport
    geometry : Geometry
        Sizes of the card.
    registers : Registers
    regions : Regions
    listeners : list of callable
        Called with a queue's name and the completion record of each of its commands. They may use
        the device; an exception ends the call under way.
    """

    def __init__(self, transport: Transport, timeout: float, ring_entries: int,
                 memory_timeout: int):
        self._commands = commands = Commands(transport, timeout, ring_entries, memory_timeout)
        self.transport, self.geometry = transport, commands.geometry
        self.registers, self.regions = commands.registers, commands.regions
        self.listeners = commands.listeners
        self._batches = batches = BatchOperands(commands)
        self._row_operands = rows = RowOperands(commands)
        self._planner = Planner(commands, batches)
        self._plans_at_once = PlansAtOnce(commands, batches, self._planner,
                                          getattr(transport, "plan", None))
        self._lookup = Lookup(commands, batches, self._planner)
        self._mover = Mover(commands, rows)
        self._arithmetic = Arithmetic(commands, rows, batches)
        self._spans = Spans(commands)
        self._events = Events(commands)
        self._events.clear()
        self.clear_counters()
        self.clear_directory()
        commands.statistics.clear()

    # Counters, directory and splitter.
    observe, observe_async = _forms("_lookup", Lookup.observe)
    decay, decay_async = _forms("_lookup", Lookup.decay)
    clear_counters, clear_counters_async = _forms("_lookup", Lookup.clear_counters)
    harvest, harvest_async = _forms("_lookup", Lookup.harvest)
    counts, counts_async = _forms("_lookup", Lookup.counts)
    set_counts = _delegated("_lookup", Lookup.set_counts)
    install, install_async = _forms("_lookup", Lookup.install)
    remove, remove_async = _forms("_lookup", Lookup.remove)
    clear_directory, clear_directory_async = _forms("_lookup", Lookup.clear_directory)
    split, split_async = _forms("_lookup", Lookup.split)
    # Slots for coming batches.
    plan, plan_async = _forms("_planner", Planner.plan)
    plan_at_once = _delegated("_plans_at_once", PlansAtOnce.plan_at_once)
    mark, mark_async = _forms("_planner", Planner.mark)
    retire = _delegated("_planner", Planner.retire)
    # Rows and memory.
    gather, gather_async = _forms("_mover", Mover.gather)
    scatter, scatter_async = _forms("_mover", Mover.scatter)
    pool, pool_async = _forms("_arithmetic", Arithmetic.pool)
    update, update_async = _forms("_arithmetic", Arithmetic.update)
    copy, copy_async = _forms("_spans", Spans.copy)
    fill, fill_async = _forms("_spans", Spans.fill)
    # Order between the queues.
    signal, signal_async = _forms("_events", Events.signal)
    wait_event, wait_event_async = _forms("_events", Events.wait_event)
    fence, fence_async = _forms("_events", Events.fence)
    abort_wait = _delegated("_events", Events.abort_wait)
    read_event = _delegated("_events", Events.read_event)
    write_event = _delegated("_events", Events.write_event)

    @property
    def next_batch(self) -> int:
        """The batch to be planned next."""
        return self._planner.numbers.next

    @property
    def retired_batch(self) -> int:
        """The batch retired last, -1 if there is none."""
        return self._planner.numbers.retired

    @property
    def plan_window(self) -> int:
        """Batches that may be planned or marked and not retired."""
        return self._planner.window

    @property
    def check_ids(self) -> bool:
        """Check every id on the host before a command is submitted.

        If off, the card reports the first wrong id after it has served the others.
        """
        return self._commands.settings.check_ids

    @check_ids.setter
    def check_ids(self, check: bool) -> None:
        self._commands.settings.check_ids = check

    @property
    def timeout(self) -> float:
        """Seconds that a wait lasts at most, unless the call has a limit of its own."""
        return self._commands.settings.timeout

    @timeout.setter
    def timeout(self, timeout: float) -> None:
        self._commands.settings.timeout = seconds(timeout)

    def register_table(self, weights: Array, name: str | None = None, state: Array | None = None,
                       partition: tuple[int, int] = (0, 1), on_card: bool = False,
                       rows: int | None = None) -> Table:
        """Register an embedding table; the device works on the array's own memory.

        Parameters
        ----------
        weights : numpy.ndarray or CPU torch tensor [rows, dim]
            float32, float16 or bfloat16. Base a multiple of 16 bytes: see `hotrow.empty`. The
            driver copies rows whose bytes are no multiple of 16 to a padded array, with a
            PaddedCopyWarning; `Table.weights` is the array that the device uses.
        name : str, optional
        state : numpy.ndarray or CPU torch tensor [rows] or [rows, n], optional
            Optimizer state, contiguous, 4, 8, 16 or 32 bytes a row.
        partition : (int, int)
            (part, parts): which of how many equal parts of the directory serves the table.
        on_card : bool
            The rows live on the card, as in `register`.
        rows : int, optional
            Rows of a table that lies where the device does not reach, as on a disk: `weights` and
            `state` are one row of its kind. The device counts, splits and plans its rows, and no
            command moves one.
        """
        with self._commands.lock:
            self._commands.check_open()
            table = self._commands.tables.add(weights, name, state, partition, on_card, rows)
            if table.on_card:
                table.refresh = self.flush
            return table

    def unregister_table(self, table: Table) -> None:
        """Unregister a table; its rows lose their slots.

        The counters keep its rows. Once another table has its number, `harvest` needs
        `clear_counters` first. Without any table the device clears the counters itself.

        Raises
        ------
        RegistrationError
            A command uses the table, or the HostWriteError of `flush`; it stays registered.
        """
        tables = self._commands.tables
        with self._commands.lock:
            self._commands.check_open()
            self._commands.poll()
            tables.settle(table)
        if table.number in tables.in_directory:
            self._lookup.forget(table)
        with self._commands.lock:
            tables.remove(table)
        if tables.stale_counts and not tables.registered:
            self.clear_counters()

    @property
    def tables(self) -> tuple[Table, ...]:
        """The registered tables, by number."""
        return self._commands.tables.registered

    def register(self, array: Array, writable: bool = True, on_card: bool = False,
                 name: str | None = None) -> Buffer:
        """Register memory for batches or rows, so that the device uses it without a copy.

        Parameters
        ----------
        array : numpy.ndarray or CPU torch tensor
        writable : bool
            Whether the device may write to it.
        on_card : bool
            The memory lives on the card, where that has memory of its own: it is sent once, before
            the next command. The host reads it after `flush`, and calls `upload` after a write.
            Where the card has none, this changes nothing.
        name : str, optional
            For messages.
        """
        with self._commands.lock:
            self._commands.check_open()
            return self.regions.add(array, writable, name, owner="card" if on_card else "both")

    @property
    def reaches_host(self) -> bool:
        """Whether the card works on the host's memory in place; else on copies over a link."""
        return self.regions.reaches_host

    def flush(self) -> None:
        """Bring memory on the card up to date on the host, by what completed commands wrote.

        Raises
        ------
        HostWriteError
            Naming bytes that the host wrote since the last `flush` or `upload`: commands in between
            did not see them.
        """
        self._with_card_memory(self.regions.flush)

    def upload(self) -> None:
        """Bring memory on the card up to date on the host, then send what the host wrote to it.

        Raises
        ------
        HostWriteError
            Naming bytes that the host and the card both wrote.
        """
        self._with_card_memory(self.regions.upload)

    def _with_card_memory(self, call: Callable[[], None]) -> None:
        if self.regions.copies is None:
            return
        with self._commands.lock:
            self._commands.check_open()
            self._commands.poll()
            call()

    def unregister(self, buffer: Buffer) -> None:
        """End a registration made by `register`.

        Raises
        ------
        RegistrationError
            A table or a command uses the memory, or the HostWriteError of `flush`.
        """
        with self._commands.lock:
            self._commands.check_open()
            self._commands.poll()
            if not isinstance(buffer, Buffer):
                raise RegistrationError(f"expected what register() returned, not "
                                        f"{type(buffer).__name__}")
            if any(buffer in table.buffers for table in self.tables):
                raise RegistrationError(f"{buffer.name} belongs to a table: unregister the table")
            self.regions.remove(buffer)

    def stage(self, batch: BatchLike) -> StagedBatch:
        """Check a batch, and put it where the device finds it, once for several commands.

        observe, split, mark, plan and pool take the result in the place of the batch. Call its
        `release` after the last of them.
        """
        return self._batches.hold(batch)

    def stage_rows(self, rows: Rows, lengths: ArrayLike | None = None, *,
                   offsets: ArrayLike | None = None) -> StagedRows:
        """Check bags of listed rows, and put them where the device finds them, before the `pool`
        that takes the result in the place of them. Arguments as in `pool`.

        Call the `release` of the result after the last `pool`.
        """
        return self._row_operands.hold(rows, lengths, offsets)

    def table_set(self, tables: Iterable[Table]) -> TableSet:
        """Registered tables, for a `RowList` of rows that are known to be theirs, each once."""
        registered = self._commands.tables
        return registered.set_of(registered.check(table) for table in tables)

    @property
    def statistics(self) -> dict[str, OpcodeStatistics]:
        """Completed commands and their cycles, by the name of the opcode."""
        with self._commands.lock:
            return {Opcode(opcode).name: OpcodeStatistics(*counts)
                    for opcode, counts in self._commands.statistics.items()}

    def cycle(self) -> int:
        """Cycles since the device was powered up."""
        with self._commands.lock:
            self._commands.check_open()
            low = self.registers.read("CYCLE_LOW")
            return self.registers.read("CYCLE_HIGH") << 32 | low

    def reset(self) -> None:
        """Recover from a fault: give up commands under way; restart ports, engines and queues.

        Regions, tables, counters and directory keep their contents. If a plan was under way, its
        lists are lost: the next plan is refused until `clear_directory()`.

        Raises
        ------
        DeviceError
            If the device does not become ready again.
        """
        with self._commands.lock:
            self._commands.check_open()
            self._commands.give_up("the device was reset", self.timeout)
            self._commands.start()

    def close(self) -> None:
        """Stop the device and release it; commands under way are given up.

        Raises
        ------
        HostWriteError
            That of `flush`. The host has what the card wrote, but for bytes that both wrote.
        TransportError
            The device hangs, or is gone, and what the card wrote to memory on it is lost.
        """
        commands = self._commands
        with commands.lock:
            if commands.closed:
                return
            try:
                commands.end(min(self.timeout, _FAREWELL))
                commands.tables.remove_all()
                commands.regions.remove_all()
            except TransportError as gone:  # which leaves nothing to unregister
                lost = self.regions.on_card
                if lost:
                    raise TransportError(
                        f"{gone}; what the card wrote since the last flush() is lost: "
                        f"{', '.join(buffer.name for buffer in lost)}") from gone
            finally:
                commands.closed = True
                self.transport.close()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._commands.closed

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self.tables)} tables"
        return f"<Device {self.transport.name!r}, {state}>"
