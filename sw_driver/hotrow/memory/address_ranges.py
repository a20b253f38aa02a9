"""Allocation of ranges of a card's memory."""

from bisect import insort

_LINE = 64


class AddressRanges:
    """Allocate ranges of a card's memory, each time the lowest free one.

    Parameters
    ----------
    base, size : int
        Bytes of the memory; `base` a multiple of 64.
    """

    def __init__(self, base: int, size: int):
        self._base, self._end = base, base + size
        self._used: list[tuple[int, int]] = []  # (first, end), sorted

    def place(self, host: int, size: int) -> int:
        """Address for `size` bytes, congruent to the host address `host` modulo 64.

        Raises
        ------
        MemoryError
        """
        shift, start = host % _LINE, self._base
        for first, end in self._used:
            if start + shift + size <= first:
                break
            start = -(-end // _LINE) * _LINE
        if start + shift + size > self._end:
            raise MemoryError(
                f"no room for {size} bytes in the card's memory of {self._end - self._base}, of "
                f"which {sum(end - first for first, end in self._used)} are in use in "
                f"{len(self._used)} pieces")
        insort(self._used, (start + shift, start + shift + size))
        return start + shift

    def release(self, address: int) -> None:
        """Free the range at an address that `place` returned."""
        at = [first for first, _ in self._used].index(address)
        del self._used[at]
