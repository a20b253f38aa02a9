"""Staging memory for batches and results: registered once, leased to one command after another."""

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..contract.errors import RegistrationError
from ..contract.generated import LIST_ALIGNMENT
from ..memory.buffer import Buffer, Held
from ..memory.regions import Regions
from .results import RowList

SLAB_BYTES = 1 << 20  # of the first slab; each further slab doubles the total


class Lease:
    """Part of a slab: `bytes` uint8[size], and its address operand."""

    def __init__(self, regions: Regions, slab: Buffer, offset: int, size: int):
        self._regions, self.slab, self.offset = regions, slab, offset
        self.holder: Held | None = None  # the last one
        self.bytes = slab.array[offset:offset + size]
        self.address = slab.packed(offset)

    def written(self, dtype: DTypeLike, count: int, first: int = 0) -> NDArray[Any]:
        """`count` elements of `dtype` from element `first` on, as the card wrote them."""
        dtype = np.dtype(dtype)
        at, size = first * dtype.itemsize, count * dtype.itemsize
        self._regions.fetch(self.slab, self.offset + at, size)
        return self.bytes[at:at + size].view(dtype)

    def view(self, dtype: DTypeLike, count: int) -> NDArray[Any]:
        """The first `count` elements of `dtype`."""
        dtype = np.dtype(dtype)
        return self.bytes[:count * dtype.itemsize].view(dtype)

    def rows(self, dtype: DTypeLike, count: int, row_bytes: int) -> NDArray[Any]:
        """[count, row_bytes / itemsize] of `dtype`."""
        return self.bytes[:count * row_bytes].view(dtype).reshape(count, -1)


class Pool:
    """Leases in sizes of powers of two, carved from slabs of which each is one region.

    Parameters
    ----------
    regions : Regions
    writable : bool
        Whether the device may write to the slabs. Lists that the device reads and results that it
        writes lie in two pools, so that it can read a batch while it writes other results.
    slab_bytes : int
        Bytes of the first slab.
    """

    def __init__(self, regions: Regions, writable: bool, slab_bytes: int = SLAB_BYTES):
        self._regions, self._writable, self._slab_bytes = regions, writable, slab_bytes
        self._slabs: list[Buffer] = []
        self._carved = 0  # bytes of the last slab that are leased or were
        self._free: dict[int, dict[Lease, None]] = {}  # by size, the last one released first

    def lease(self, size: int, held: Held) -> Lease:
        """At least `size` bytes on a 64-byte boundary, until `held` is released.

        What the host writes to them before the next command reaches the card.
        """
        used, size = size, max(LIST_ALIGNMENT, 1 << (size - 1).bit_length())
        free = self._free.setdefault(size, {})
        lease = free.popitem()[0] if free else self._carve(size)
        lease.holder = held
        held.at_end(_give_back, lease, held, free)
        if not self._writable:
            self._regions.send_later(lease.slab, lease.offset, used)
        return lease

    def keep(self, lease: Lease, held: Held) -> None:
        """Leave a lease to `held` instead of its holder."""
        lease.holder = held
        held.at_end(_give_back, lease, held, self._free[len(lease.bytes)])

    def stage(self, array: NDArray[Any], held: Held) -> int:
        """Address at which the device finds a flat array: in place where it can be, else a copy."""
        if array.ctypes.data % LIST_ALIGNMENT == 0 and array.flags.c_contiguous and array.size:
            address = self._regions.find_in_place(array, 1, held)
            if address is not None:
                return address
        self._regions.check_copied("the list", array)
        lease = self.lease(array.nbytes, held)
        lease.view(array.dtype, len(array))[:] = array
        return lease.address

    def stage_rows(self, rows: RowList, held: Held) -> int:
        """Address at which the device finds a `RowList`: where it lies, or that of a copy."""
        if rows.address is not None:
            return rows.address
        keys = rows.keys
        lease = self.lease(keys.nbytes, held)
        lease.bytes[:keys.nbytes].view(np.uint64)[:] = keys
        return lease.address

    def _carve(self, size: int) -> Lease:
        if not self._slabs or self._carved + size > self._slabs[-1].nbytes:
            total = sum(slab.nbytes for slab in self._slabs)
            slab = self._add_slab(max(self._slab_bytes, total, size), size)
            self._slabs, self._carved = [*self._slabs, slab], 0
        lease = Lease(self._regions, self._slabs[-1], self._carved, size)
        self._carved += size
        return lease

    def _add_slab(self, size: int, least: int) -> Buffer:
        """A slab of `size` bytes, or of `least` where the card has no room for it."""
        try:
            return self._regions.add(self._regions.empty(size, np.uint8), self._writable,
                                     f"staging slab {len(self._slabs)}", owner="driver")
        except RegistrationError:
            if size == least:
                raise
            return self._add_slab(least, least)


def _give_back(lease: Lease, held: Held, free: dict[Lease, None]) -> None:
    """Free a lease, unless `held` gave it back before and another has it."""
    if lease.holder is held:
        free[lease] = None
