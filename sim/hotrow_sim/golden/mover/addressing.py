"""Items that commands of the move queue read and write: rows, states, slots, gradients."""

from dataclasses import dataclass

import numpy as np
from hotrow_rtl.contract.encoding import OFFSET_WIDTH, Status
from numpy.lib.stride_tricks import as_strided

from ..region_check import check, unpack_address

FAULT_DECERR = 2  # as in layouts
OFFSET_MASK = (1 << OFFSET_WIDTH) - 1


@dataclass(frozen=True)
class Moved:
    """What a completion says of a move. The error is that of the lowest refused position."""

    status: Status
    error_index: int
    error_address: int
    entries: int
    bytes: int


def fault_status(fault):
    """SLVERR, DECERR or TIMEOUT of a bus fault, OK of none."""
    return np.where(fault, Status.SLVERR - 1 + fault, Status.OK).astype(np.uint8)


class Errors:
    """Status and address of each entry's first error."""

    def __init__(self, count):
        self.status = np.zeros(count, np.uint8)
        self.address = np.zeros(count, np.uint64)

    def note(self, status, at=slice(None), address=0):
        """Record `status` for those entries of `at` that have none so far; OK is no error."""
        fresh = (self.status[at] == Status.OK) & (np.asarray(status) != Status.OK)
        self.status[at] = np.where(fresh, status, self.status[at])
        self.address[at] = np.where(fresh, np.asarray(address, np.uint64), self.address[at])


class Items:
    """Where copies come from, or where they go: item `number[i]` of an array at `base`."""

    def __init__(self, regions, base, stride, number, size, write, alignment=1):
        handle, offset = unpack_address(base)
        region, self.base, self.write = regions.get(handle), base, write
        offset = np.uint64(offset) + number * np.uint64(stride)  # past 48 bits no region reaches
        self.number, self.stride, self.size = number, stride, size
        self.packed = np.uint64(handle << OFFSET_WIDTH) | offset & np.uint64(OFFSET_MASK)
        self.address = np.uint64(region.base if region else 0) + offset
        self.status = check(region, offset, size, write)
        crooked = self.address % np.uint64(alignment) != 0
        self.status = np.where(
            (self.status == Status.OK) & crooked, Status.MISALIGNED, self.status)

    def array(self, memory, chosen):
        """The array as [item, byte] from its lowest chosen item on, and the chosen items' places
        there; None where memory does not answer for all of it."""
        address, number = self.address[chosen], self.number[chosen]
        low, first = int(address.min()), number.min()
        octets = memory.view(low, int(address.max()) - low + self.size, self.write)
        if octets is None:
            return None
        place = (number - first).astype(np.int64)
        return as_strided(octets, (int(place.max()) + 1, self.size), (self.stride, 1)), place

    def read(self, memory, chosen):
        """The bytes of the chosen items, uint8[n, size], and the fault of each."""
        faults = np.zeros(np.count_nonzero(chosen), np.uint8)
        found = self.array(memory, chosen) if len(faults) else None
        if found is not None:
            items, place = found
            return items[place], faults
        octets = np.zeros((len(faults), self.size), np.uint8)
        for at, address in enumerate(self.address[chosen].tolist()):
            here = memory.view(address, self.size)
            if here is None:
                faults[at] = FAULT_DECERR
            else:
                octets[at] = here
        return octets, faults

    def store(self, memory, chosen, octets):
        """Write uint8[n, size] to the chosen items, in order; return the fault of each."""
        count = np.count_nonzero(chosen)
        distinct = len(np.unique(self.number[chosen])) == count and self.stride >= self.size
        found = self.array(memory, chosen) if count and distinct else None
        if found is not None:
            items, place = found
            items[place] = octets
            return np.zeros(count, np.uint8)
        return np.array([memory.write(address, each) for address, each in zip(
            self.address[chosen].tolist(), octets)], np.uint8)
