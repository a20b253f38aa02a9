"""Which parts of a card's memory are taken."""

from bisect import insort

_LINE = 64


class AddressRanges:
    """Hand out ranges of a card's memory, the first that is free.

    Parameters
    ----------
    base, size : int
        Bytes of the memory; `base` a multiple of 64.
    """

    def __init__(self, base, size):
        self._base, self._end = base, base + size
        self._taken: list[tuple[int, int]] = []  # (first, end), sorted

    def place(self, host, size) -> int:
        """Address for `size` bytes, congruent to the host address `host` modulo 64.

        Raises
        ------
        MemoryError
        """
        shift, start = host % _LINE, self._base
        for first, end in self._taken:
            if start + shift + size <= first:
                break
            start = -(-end // _LINE) * _LINE
        if start + shift + size > self._end:
            raise MemoryError(
                f"no room for {size} bytes in the card's memory of {self._end - self._base}, of "
                f"which {sum(end - first for first, end in self._taken)} are taken in "
                f"{len(self._taken)} pieces")
        insort(self._taken, (start + shift, start + shift + size))
        return start + shift

    def release(self, address) -> None:
        """Return the range that `place` gave."""
        at = [first for first, _ in self._taken].index(address)
        del self._taken[at]
