"""Memory of a card's own, which the host reaches by COPY commands."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..contract.generated import STATE_ALIGNMENT
from ..contract.records import packed_address
from ..memory.buffer import Buffer
from ..memory.card_memory import Octets

T = TypeVar("T")
PIECE_BYTES = 1 << 20  # of one COPY
# The card keeps no record of its writes: its memory is one block, which any command may write.
BLOCK_BYTES = 1 << 64


class CopyAccess:
    """An `Access` by COPY commands between the card's memory and an array of the host.

    Parameters
    ----------
    copy : callable
        Carries out a COPY of `count` bytes from packed address `source` to `destination`.
    activity : callable
        Returns the number of commands submitted so far, and whether all of them have completed.
    host : Buffer
        The array.
    card, base : int
        Handle of the card's memory, and its first address.
    """

    def __init__(self, copy: Callable[[int, int, int], None],
                 activity: Callable[[], tuple[int, bool]], host: Buffer, card: int, base: int):
        self._copy, self._activity = copy, activity
        self._host, self._card, self._base = host, card, base
        self._copies = 0  # commands submitted here
        self._seen = -1  # commands of others whose writes were reported

    def write(self, address: int, octets: Octets) -> list[Any]:
        """Write uint8[n], before it returns."""
        for at in range(0, octets.size, PIECE_BYTES):
            piece = octets[at:at + PIECE_BYTES]
            self._host.array[:piece.size] = piece
            self._move(self._host.packed(), self._at(address + at), piece.size)
        return []

    def finish(self, requests: Iterable[Any]) -> None:
        """Do nothing: `write` has finished."""

    def read(self, spans: Iterable[tuple[T, int, int]]) -> Iterator[tuple[T, int, Octets]]:
        """Read (what, address, size) spans: (what, address, uint8[n]) of each part, in order."""
        for what, address, size in spans:
            for at in range(address, address + size, PIECE_BYTES):
                count = min(PIECE_BYTES, address + size - at)
                self._move(self._at(at), self._host.packed(), count)
                yield what, at, self._host.array[:count].copy()

    def take_written(self) -> NDArray[np.int64]:
        """Number 0, unless no command since the last call could write: int64[0 or 1]."""
        submitted, idle = self._activity()
        others = submitted - self._copies
        changed, self._seen = others != self._seen, others if idle else -1
        return np.zeros(int(changed), np.int64)

    def _at(self, address: int) -> int:
        return packed_address(self._card, address - self._base)

    def _move(self, source: int, destination: int, size: int) -> None:
        # Arrays begin on lines of their own: the bytes up to the next word are nobody's.
        self._copy(source, destination, -(-size // STATE_ALIGNMENT) * STATE_ALIGNMENT)
        self._copies += 1
