"""The host's arrays as the memory of cocotbext-axi's slaves."""

from bisect import bisect_right

import numpy as np
from numpy.typing import NDArray


class HostArrays:
    """Arrays at device addresses, read and written by slices of addresses.

    An access without any byte of an array raises LookupError, for which cocotbext-axi's slaves
    answer SLVERR.

    Attributes
    ----------
    strays : list of int
        Addresses of such accesses.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []  # sorted
        self._arrays: list[NDArray[np.uint8]] = []
        self.strays: list[int] = []

    def map(self, array: NDArray[np.uint8], address: int, writable: bool = True) -> None:
        """Put a uint8 array at an address; the memory takes every write."""
        at = bisect_right(self._starts, address)
        self._starts.insert(at, address)
        self._arrays.insert(at, array)

    def unmap(self, address: int) -> None:
        """Remove the array at an address."""
        at = self._starts.index(address)
        del self._starts[at], self._arrays[at]

    def __len__(self):
        return 1 << 62

    def __getitem__(self, where):
        octets = np.zeros(where.stop - where.start, np.uint8)
        inside, part = self._part(where)
        octets[inside] = part
        return octets.tobytes()

    def __setitem__(self, where, data):
        inside, part = self._part(where)
        part[:] = np.frombuffer(data, np.uint8)[inside]

    def _part(self, where):
        """The bytes of an access that an array has: their place in the access, and themselves."""
        at = bisect_right(self._starts, where.stop - 1) - 1
        if at >= 0:
            array, first = self._arrays[at], self._starts[at]
            low, high = max(where.start, first), min(where.stop, first + array.size)
            if low < high:
                return (slice(low - where.start, high - where.start),
                        array[low - first:high - first])
        self.strays.append(where.start)
        raise LookupError(f"no array at {where.start:#x}")
