"""Staging memory for batches and results: registered once, handed out again and again."""

from contextlib import contextmanager

import numpy as np

from .contract import LIST_ALIGNMENT, ROW_ENTRY

SLAB_BYTES = 1 << 20  # of the first slab; each further one doubles what there is


class Lease:
    """Part of a slab: `bytes` uint8[size], and its address operand."""

    def __init__(self, slab, offset, size):
        self.bytes = slab.array[offset:offset + size]
        self.address = slab.packed(offset)

    def view(self, dtype, count) -> np.ndarray:
        """The first `count` elements of `dtype`."""
        dtype = np.dtype(dtype)
        return self.bytes[:count * dtype.itemsize].view(dtype)

    def rows(self, dtype, count, row_bytes) -> np.ndarray:
        """[count, row_bytes / itemsize] of `dtype`."""
        return self.bytes[:count * row_bytes].view(dtype).reshape(count, -1)


class Pool:
    """Leases in sizes of powers of two, carved from slabs of which each is one region.

    Parameters
    ----------
    regions : Regions
    writable : bool
        Whether the device may write to the slabs. What it reads lies apart from what it writes, so
        that it can read a batch while it still writes the results of another.
    slab_bytes : int
        Of the first slab.
    """

    def __init__(self, regions, writable, slab_bytes=SLAB_BYTES):
        self._regions, self._writable, self._slab_bytes = regions, writable, slab_bytes
        self._slabs = []
        self._carved = 0  # bytes of the last slab that have been handed out
        self._free: dict[int, list[Lease]] = {}

    @contextmanager
    def lease(self, size):
        """At least `size` bytes on a 64-byte boundary, until the context ends."""
        size = max(LIST_ALIGNMENT, 1 << (size - 1).bit_length())
        free = self._free.setdefault(size, [])
        lease = free.pop() if free else self._carve(size)
        try:
            yield lease
        finally:
            free.append(lease)

    def stage(self, array, held) -> int:
        """Address at which the device finds a flat array: in place where that can be, else a copy.

        Parameters
        ----------
        array : numpy.ndarray [n]
        held : contextlib.ExitStack
            Keeps the memory until the command has completed.
        """
        host = array.ctypes.data
        if host % LIST_ALIGNMENT == 0 and array.flags.c_contiguous:
            buffer = self._regions.find(host, array.nbytes)
            if buffer is not None:
                buffer.check()
                held.enter_context(buffer)
                return buffer.packed(host - buffer.host)
        lease = held.enter_context(self.lease(array.nbytes))
        lease.view(array.dtype, len(array))[:] = array
        return lease.address

    def stage_rows(self, rows, held) -> int:
        """Address at which the device finds a `RowList`."""
        lease = held.enter_context(self.lease(ROW_ENTRY.itemsize * len(rows)))
        entries = lease.view(ROW_ENTRY, len(rows))
        entries["table"], entries["row"] = rows.table, rows.row
        return lease.address

    def _carve(self, size):
        if not self._slabs or self._carved + size > self._slabs[-1].nbytes:
            total = sum(slab.nbytes for slab in self._slabs)
            memory = self._regions.empty(max(self._slab_bytes, total, size), np.uint8)
            self._slabs.append(
                self._regions.add(memory, self._writable, f"staging slab {len(self._slabs)}"))
            self._carved = 0
        lease = Lease(self._slabs[-1], self._carved, size)
        self._carved += size
        return lease
