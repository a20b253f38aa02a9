"""Device addresses of the host's arrays in the simulated accelerator."""

from bisect import bisect_left

import numpy as np

PAGE = 4096
FIRST = 1 << 16  # lower addresses stay unmapped, so that a base of 0 always faults
LINE = 64


def check_attachable(array):
    """Raise ValueError unless a device can attach an array."""
    if array.dtype != np.uint8 or array.ndim != 1 or not array.flags.c_contiguous:
        raise ValueError("attach expects a contiguous one-dimensional uint8 array, not "
                         f"{array.dtype}{list(array.shape)}")


def card_memory(config):
    """The card's own memory: its first address, and zeros uint8[n]; None if it has none.

    Raises
    ------
    ValueError
        If this machine has not so much memory.
    """
    if not config.card_memory_log2:
        return None
    try:
        return 1 << config.host_address_width, np.zeros(1 << config.card_memory_log2, np.uint8)
    except (MemoryError, ValueError) as error:
        raise ValueError(f"a card of card_memory_log2 {config.card_memory_log2} cannot be "
                         f"simulated here: {error}") from error


class AddressSpace:
    """Assigns address ranges, the same ones in the same order on every run.

    A range starts at a page boundary plus the host address modulo 64, so that alignment is equal
    on both sides, and an unmapped page follows it. The space reuses a released range only after it
    has reached its end, so that a stale address faults instead of reading other data.

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
        """Device address for `size` bytes at `host_address` of the host.

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
        """Return the range that `place` assigned."""
        page = address // PAGE * PAGE
        at = bisect_left(self._ranges, (page,))
        if at == len(self._ranges) or self._ranges[at][0] != page:
            raise ValueError(f"no array is attached at device address {address:#x}")
        del self._ranges[at]

    def _fit(self, start, span):
        """First address from `start` on with `span` free bytes, or None."""
        for first, end in self._ranges[max(0, bisect_left(self._ranges, (start,)) - 1):]:
            if start + span <= first:
                break
            start = max(start, end)
        return start if start + span <= self.end else None
