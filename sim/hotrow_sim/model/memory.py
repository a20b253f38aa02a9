"""The memory of the model: the host's own arrays at device addresses."""

from bisect import bisect_right

import numpy as np

from ..address_space import AddressSpace, check_attachable
from ..golden.outcome import FAULT_DECERR, FAULT_SLVERR


class Memory:
    """Arrays attached at device addresses, without copies.

    Parameters
    ----------
    address_width : int
    bus_bytes : int
        A read responds per bus word, with data, or with a fault if no byte of the word is attached.
    """

    def __init__(self, address_width, bus_bytes):
        self.bus_bytes = bus_bytes
        self._space = AddressSpace(address_width)
        self._starts, self._arrays = [], []  # sorted by device address

    def attach(self, array, writable):
        """Give a uint8 array a device address, congruent to its host address modulo 64."""
        check_attachable(array)
        address = self._space.place(array.ctypes.data, array.size)
        self.map(address, array, writable)
        return address

    def detach(self, address):
        """Remove the array attached at that device address."""
        self._space.release(address)
        self.unmap(address)

    def map(self, address, array, writable):
        """Put a uint8 array at a device address that the caller has chosen."""
        at = bisect_right(self._starts, address)
        self._starts.insert(at, address)
        self._arrays.insert(at, (array, writable))

    def unmap(self, address):
        """Remove an array that `map` put at that address."""
        at = self._starts.index(address)
        del self._starts[at], self._arrays[at]

    def view(self, address, size, write=False):
        """The attached bytes without a copy, or None unless one array contains them all."""
        array, start, writable = self._array_at(address)
        offset = address - start
        if array is None or offset + size > array.size or (write and not writable):
            return None
        return array[offset:offset + size]

    def read(self, address, size):
        """Read a list.

        Parameters
        ----------
        address : int
            A multiple of 64.
        size : int
            Bytes.

        Returns
        -------
        octets : uint8[size]
        faults : uint8[words]
            Per bus word 0 or its fault; the bytes of a faulty word are 0.
        """
        words = -(-size // self.bus_bytes)
        octets = self.view(address, size)
        if octets is not None:
            return octets.copy(), np.zeros(words, np.uint8)
        octets = np.zeros(words * self.bus_bytes, np.uint8)
        faults = np.full(words, FAULT_DECERR, np.uint8)
        for start, (array, _) in zip(self._starts, self._arrays, strict=True):
            first = max(start, address)
            end = min(start + array.size, address + len(octets))
            if first < end:
                octets[first - address:end - address] = array[first - start:end - start]
                faults[(first - address) // self.bus_bytes:-((address - end) // self.bus_bytes)] = 0
        return octets[:size], faults

    def read_list(self, address, dtype, count):
        """`count` elements, and the fault of the bus word of each."""
        octets, faults = self.read(address, dtype.itemsize * count)
        per_word = self.bus_bytes // dtype.itemsize
        return octets.view(dtype), np.repeat(faults, per_word)[:count]

    def write(self, address, octets):
        """Write uint8 `octets` at any address; return 0 or the highest fault.

        A bus word is written as a whole, or not at all if a byte of it may not be written.
        """
        here = self.view(address, octets.size, write=True)
        if here is not None:
            here[:] = octets
            return 0
        worst, at = 0, address
        while at < address + octets.size:
            end = min(at - at % self.bus_bytes + self.bus_bytes, address + octets.size)
            worst = max(worst, self._write_word(at, octets[at - address:end - address]))
            at = end
        return worst

    def _write_word(self, address, octets):
        places = [self._array_at(at) for at in range(address, address + octets.size)]
        for at, (array, start, writable) in enumerate(places, address):
            if array is None or at - start >= array.size:
                return FAULT_DECERR
            if not writable:
                return FAULT_SLVERR
        for at, (array, start, _) in enumerate(places):
            array[address + at - start] = octets[at]
        return 0

    def _array_at(self, address):
        at = bisect_right(self._starts, address) - 1
        if at < 0:
            return None, 0, False
        return self._arrays[at][0], self._starts[at], self._arrays[at][1]
