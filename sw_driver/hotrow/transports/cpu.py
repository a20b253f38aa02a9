"""The transport `cpu`: the accelerator compiled for the host's cores, on host memory in place."""

import ctypes
import os
from ctypes import c_double, c_int, c_int64, c_uint32, c_uint64, c_void_p
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..contract.errors import DeviceError
from ..contract.generated import QUEUES, REGISTERS, check_geometry
from ..contract.geometry import PRESETS
from ..kernels.compiler import usable_cores
from ..kernels.native import native_library
from ..memory.transport import Transport, check_octets
from ..system.forks import forks

_FIRST_ADDRESS = 1 << 16  # so that a base of 0 always faults
_PAGE, _LINE = 4096, 64  # bytes
_MOST_SETS = 1 << 24
_SLOT_BYTES = 256  # of memory for a row and its bookkeeping, by which slots are chosen
FEWEST_SLOTS, _MOST_SLOTS = 1 << 14, 1 << 22
_MOST_THREADS = 256
_MOST_BY_DEFAULT = 8  # threads
_DOORBELLS = {REGISTERS[f"{queue.upper()}_TAIL"] for queue in QUEUES}
GEOMETRY_FIELDS = ("bus_bytes", "lookup_lanes", "lane_banks", "address_width",
           "card_memory_log2", "handles", "tables",
           "counter_sets", "counter_ways", "counter_bits", "directory_choices", "directory_sets",
           "directory_ways", "directory_partitions", "stamp_bits", "batch_samples",
           "batch_lookups", "miss_entries", "window_beats", "events", "arithmetic", "planner",
           "row_bytes", "clock_mhz")


class _Geometry(ctypes.Structure):
    """`struct Geometry` of kernels/engine/geometry.hpp."""

    _fields_ = [(name, c_uint32) for name in GEOMETRY_FIELDS]


_PROTOTYPES = {
    "card_open": (c_void_p, (ctypes.POINTER(_Geometry), c_int)),
    "card_close": (None, (c_void_p,)),
    "card_map": (c_int, (c_void_p, c_uint64, c_void_p, c_uint64, c_int)),
    "card_unmap": (None, (c_void_p, c_uint64)),
    "card_wait": (None, (c_void_p, c_uint32, c_uint32, c_double)),
    "card_plan": (c_int64, (c_void_p, c_uint32, c_void_p, c_int64, c_void_p, c_void_p)),
    "card_write_register": (None, (c_void_p, c_uint32, c_uint32)),
    "card_read_register": (c_uint32, (c_void_p, c_uint32)),
}


def _bound(library: ctypes.CDLL) -> ctypes.CDLL:
    for name, (result, arguments) in _PROTOTYPES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class _Addresses:
    """Device addresses of arrays, congruent to the host's modulo 64, in pages of their own with an
    unmapped page after them. Released ones are used again only after all others."""

    def __init__(self, address_width: int):
        self._next, self._end = _FIRST_ADDRESS, 1 << address_width
        self._pages: dict[int, int] = {}  # end by first page

    def place(self, array: NDArray[np.uint8]) -> int:
        span = -(-(array.ctypes.data % _LINE + array.size) // _PAGE) * _PAGE + _PAGE
        start = self._next
        if start + span > self._end:
            start = self._gap(span)
        self._pages[start], self._next = start + span, start + span
        return start + array.ctypes.data % _LINE

    def release(self, address: int) -> None:
        del self._pages[address // _PAGE * _PAGE]

    def _gap(self, span: int) -> int:
        start = _FIRST_ADDRESS
        for first, end in sorted(self._pages.items()):
            if start + span <= first:
                break
            start = end
        if start + span > self._end:
            raise MemoryError(
                f"no room for {span} bytes in the device's address space of {self._end} bytes: "
                f"{len(self._pages)} arrays are attached; detach some")
        return start


class CpuTransport:
    """A card in software; see `Transport`.

    Parameters
    ----------
    geometry : object
        Has the parameters of hotrow_rtl.config.Config as attributes.
    threads : int
        That share the work of one command; each queue has as many.

    Raises
    ------
    RuntimeError
        The engine is not compiled, or memory or threads run out.
    """

    name, waits_apart = "cpu", True

    def __init__(self, geometry: Any, threads: int):
        self.threads = threads
        # A short call keeps the interpreter's lock, a call that may wait releases it.
        path = native_library()._name
        self._library, self._short = _bound(ctypes.CDLL(path)), _bound(ctypes.PyDLL(path))
        fields = _Geometry(*(int(getattr(geometry, name)) for name in GEOMETRY_FIELDS))
        self._handle: int = self._library.card_open(ctypes.byref(fields), threads)
        if not self._handle:
            raise RuntimeError(
                f"memory or threads ran out for a card of {geometry.directory_sets} sets and "
                f"{threads} threads: open it with fewer slots or threads")
        self._addresses = _Addresses(geometry.host_address_width)
        self._arrays: dict[int, NDArray[np.uint8]] = {}
        self._closed, self._forks = False, forks()
        if geometry.card_memory_log2:
            try:
                own = np.zeros(1 << geometry.card_memory_log2, np.uint8)
                self._map(self._handle, 1 << geometry.host_address_width, own, True)
            except (MemoryError, ValueError) as error:
                self.close()
                raise RuntimeError(f"a card of card_memory_log2 {geometry.card_memory_log2} does "
                                   f"not fit into memory: {error}") from error

    @property
    def _card(self) -> int:
        if self._closed:
            raise DeviceError("this card is closed: open it again")
        self._check_process()
        return self._handle

    def _check_process(self) -> None:
        if self._forks != forks():
            raise DeviceError("the card's threads are in the process that opened it, and not in "
                              "this one, its child: open a card here")

    def read_register(self, offset: int) -> int:
        """Read the 32-bit register at a byte offset."""
        value: int = self._short.card_read_register(self._card, offset)
        return value

    def write_register(self, offset: int, value: int) -> None:
        """Write the 32-bit register at a byte offset."""
        library = self._short if offset in _DOORBELLS else self._library
        library.card_write_register(self._card, offset, value)

    def attach(self, array: NDArray[np.uint8], writable: bool) -> int:
        """Make a one-dimensional uint8 array part of the device's memory; return its address."""
        check_octets(array)
        card, address = self._card, self._addresses.place(array)
        try:
            self._map(card, address, array, writable)
        except MemoryError:
            self._addresses.release(address)
            raise
        return address

    def _map(self, card: int, address: int, array: NDArray[np.uint8], writable: bool) -> None:
        self._arrays[address] = array
        if not self._library.card_map(card, address, array.ctypes.data, array.size, writable):
            del self._arrays[address]
            raise MemoryError(f"memory ran out for one more array of the card, which has "
                              f"{len(self._arrays)}")

    def detach(self, address: int) -> None:
        """Remove the array at that device address from the device's memory."""
        if address not in self._arrays:
            raise ValueError(f"no array is attached at device address {address:#x}")
        self._library.card_unmap(self._card, address)
        self._addresses.release(address)
        del self._arrays[address]

    def wait(self, queue: int, completed: int, timeout: float) -> None:
        """Sleep until the queue's COMPLETED differs, or more will not come without the host.

        Raises
        ------
        DeviceError
            The card belongs to the process that this one was forked from.
        """
        self._check_process()
        self._library.card_wait(self._handle, queue, completed, timeout)

    def plan(self, retired: int, commands: int, count: int, completions: int, places: int) -> int:
        """See `Transport.plan`."""
        done: int = self._library.card_plan(
            self._card, retired, commands, count, completions, places)
        return done

    def close(self) -> None:
        """End the card after the commands and calls under way."""
        self._closed = True
        self._library.card_close(self._handle)  # which ends it once
        self._arrays.clear()


def open_transport(preset: Any = None, slots: int | None = None, threads: int | None = None,
                   config: Any = None) -> Transport:
    """Open a card in software.

    Parameters
    ----------
    preset : str or Preset, optional
        Geometry of a simulated card; by default one that suits a host.
    slots : int, optional
        Rows that the directory can hold, rounded up to a power of two of sets; by default by the
        memory at hand.
    threads : int, optional
        Threads that share the work of one command; by default by the cores that the process may
        use, of which the trainer keeps at least one.
    config : object, optional
        Replaces the preset: has the parameters of hotrow_rtl.config.Config as attributes.

    Raises
    ------
    ValueError, RuntimeError
    """
    if isinstance(preset, str) and preset not in PRESETS:
        raise ValueError(f"unknown preset {preset!r}: expected one of {', '.join(PRESETS)}")
    geometry = config or (PRESETS[preset] if isinstance(preset, str) else preset)
    if geometry is None:
        geometry = replace(PRESETS["alveo-u55c"], name="cpu", clock_mhz=1000)  # cycles of 1 ns
        slots = default_slots() if slots is None else slots
    check_geometry(geometry)
    if slots is not None:
        geometry = with_slots(geometry, slots)
    threads = default_threads() if threads is None else threads
    if not isinstance(threads, int) or not 1 <= threads <= _MOST_THREADS:
        raise ValueError(f"threads must be 1 to {_MOST_THREADS}, not {threads!r}")
    return CpuTransport(geometry, threads)


def with_slots(geometry: Any, slots: int) -> Any:
    """The geometry with a directory of at least `slots` slots, and as many counters."""
    per_set = geometry.directory_choices * geometry.directory_ways
    if not isinstance(slots, int) or not 1 <= slots <= per_set * _MOST_SETS:
        raise ValueError(f"slots must be 1 to {per_set * _MOST_SETS}, not {slots!r}")

    def sets(entries: int, least: int) -> int:
        return 1 << (max(-(-slots // entries), least) - 1).bit_length()

    return replace(
        geometry,
        directory_sets=sets(per_set, geometry.banks * max(2, geometry.directory_partitions)),
        counter_sets=min(sets(geometry.counter_ways, 2 * geometry.banks), _MOST_SETS))


def default_slots() -> int:
    """A power of two by an eighth of the memory that is available, between two bounds."""
    try:
        memory = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return FEWEST_SLOTS
    slots = 1 << (memory // 8 // _SLOT_BYTES).bit_length() - 1
    return min(max(slots, FEWEST_SLOTS), _MOST_SLOTS)


def default_threads() -> int:
    """Half of the cores that the process may use, without one; at least 1, at most 8."""
    return min(max(1, (usable_cores() - 1) // 2), _MOST_BY_DEFAULT)
