"""Memory in huge pages at its physical addresses, for machines without an IOMMU.

Only the card's own check of regions protects the rest of the memory.

Source: Linux, Documentation/admin-guide/mm/pagemap.rst and hugetlbpage.rst.
"""

import mmap
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

PAGEMAP = Path("/proc/self/pagemap")
MEMINFO = Path("/proc/meminfo")
_HUGE = 0x40000  # MAP_HUGETLB of mmap(2)
_ENTRY = 8  # bytes of a page's entry
_PRESENT, _NUMBER = 1 << 63, (1 << 55) - 1


class HugePages:
    """Arrays in huge pages, whose physical addresses do not change.

    Parameters
    ----------
    address_width : int
        Bits of the card's addresses.
    pagemap : Path
        The page map of this process; only the superuser can read page numbers in it.
    flags : int
        Flags of mmap(2) in addition to those of shared anonymous memory.
    page : int, optional
        Bytes of a huge page; the kernel's default size when absent.
    """

    def __init__(self, address_width: int, pagemap: Path = PAGEMAP, flags: int = _HUGE,
                 page: int | None = None):
        self._end, self._pagemap, self._flags = 1 << address_width, pagemap, flags
        self._page = page or huge_page_bytes()

    def empty(self, shape: int | tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """An array of zeros that `attach` accepts if its pages are consecutive in memory.

        Raises
        ------
        MemoryError
            If the system has no huge pages left.
        """
        dtype = np.dtype(dtype)
        shape = (int(shape),) if isinstance(shape, int | np.integer) else tuple(shape)
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        pages = max(1, -(-size // self._page))
        room = pages * self._page
        try:
            memory = mmap.mmap(-1, room, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | self._flags)
        except OSError as error:
            raise MemoryError(
                f"no huge pages for {size} bytes ({error.strerror}): reserve pages of "
                f"{self._page >> 20} MB, `sysctl vm.nr_hugepages={2 * pages}`, or at the start of "
                f"the system") from error
        octets = np.frombuffer(memory, np.uint8)
        octets[::mmap.PAGESIZE] = 0  # allocates the pages
        return octets[:size].view(dtype).reshape(shape)

    def attach(self, octets: NDArray[np.uint8], writable: bool) -> int:
        """The physical address of a uint8 array.

        Raises
        ------
        MemoryError
            If its pages are not consecutive in memory, or beyond the card's addresses.
        """
        host, page = octets.ctypes.data, mmap.PAGESIZE
        first, last = host // page, (host + octets.size - 1) // page
        with open(self._pagemap, "rb", buffering=0) as file:
            found = os.pread(file.fileno(), (last - first + 1) * _ENTRY, first * _ENTRY)
        entries = np.frombuffer(found, "<u8")
        numbers = entries & np.uint64(_NUMBER)
        if len(entries) <= last - first or not (entries & np.uint64(_PRESENT)).all():
            raise MemoryError("these pages are not in memory: allocate the array with "
                              "device.transport.empty(shape, dtype)")
        if not numbers.all():
            raise MemoryError("the system hides the physical addresses of pages: run as the "
                              "superuser, or use memory='vfio'")
        if (np.diff(numbers) != 1).any():
            raise MemoryError(
                f"the {len(numbers)} pages of these {octets.size} bytes are not consecutive in "
                "memory: allocate the array with device.transport.empty(shape, dtype) soon after "
                "the start of the system, or use memory='vfio'")
        address = int(numbers[0]) * page + host % page
        if address + octets.size > self._end:
            raise MemoryError(f"these bytes are at {address:#x}, and the card's addresses end at "
                              f"{self._end:#x}: use memory='vfio'")
        return address

    def detach(self, address: int) -> None:
        """Do nothing: the memory belongs to the caller."""


def huge_page_bytes(meminfo: Path = MEMINFO) -> int:
    """Bytes of the huge pages that the kernel gives by default.

    Raises
    ------
    ValueError
        If the kernel has none.
    """
    found = re.search(r"^Hugepagesize:\s*(\d+) kB", meminfo.read_text(), re.MULTILINE)
    if found is None:
        raise ValueError("this kernel has no huge pages: use memory='vfio'")
    return int(found[1]) << 10
