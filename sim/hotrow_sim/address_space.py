"""Where the host's arrays lie in the simulated accelerator's address space."""

from bisect import bisect_left

PAGE = 4096
FIRST = 1 << 16  # addresses below stay unmapped: a zero base never works by accident
LINE = 64


class AddressSpace:
    """Hand out address ranges, the same ones in the same order on every run.

    A range starts at a page boundary plus the host address modulo 64, so that alignment means the
    same on both sides, and an unmapped page follows it. Ranges follow one another; a returned
    range is used again only when the end of the space has been reached, so that a stale address
    is answered by an error rather than by other data.

    Parameters
    ----------
    address_width : int
        Bits of a byte address.
    """

    def __init__(self, address_width):
        self.end = 1 << address_width
        self._ranges = []  # sorted (first page, end page), guard page included
        self._next = FIRST

    def place(self, host_address, size):
        """Device address for `size` bytes that start at `host_address` in the host.

        Raises
        ------
        MemoryError
            If no gap is large enough.
        """
        misalignment = host_address % LINE
        span = -(-(misalignment + size) // PAGE) * PAGE + PAGE
        start = self._fit(self._next, span)
        if start is None:
            start = self._fit(FIRST, span)
        if start is None:
            raise MemoryError(
                f"no room for {size} bytes in the device's address space of {self.end} bytes: "
                f"{len(self._ranges)} arrays are attached; detach some")
        self._ranges.insert(bisect_left(self._ranges, (start,)), (start, start + span))
        self._next = start + span
        return start + misalignment

    def release(self, address):
        """Return the range that `place` gave."""
        page = address // PAGE * PAGE
        at = bisect_left(self._ranges, (page,))
        if at == len(self._ranges) or self._ranges[at][0] != page:
            raise ValueError(f"no array is attached at device address {address:#x}")
        del self._ranges[at]

    def _fit(self, start, span):
        """First start at or behind `start` where `span` bytes are free."""
        for first, end in self._ranges[max(0, bisect_left(self._ranges, (start,)) - 1):]:
            if start + span <= first:
                break
            start = max(start, end)
        return start if start + span <= self.end else None
