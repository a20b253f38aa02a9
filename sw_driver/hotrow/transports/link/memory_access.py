"""A card's memory over a link: requests, several at a time."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ...contract.errors import TransportError
from ...contract.generated import LARGEST_PAYLOAD, LinkStatus, Operation
from ...memory.card_memory import CardMemory, Octets
from .session import Request, Session, expect

T = TypeVar("T")


class MemoryAccess:
    """An `Access` by requests, several at a time.

    Parameters
    ----------
    session : Session

    Attributes
    ----------
    sent, fetched : int
        Bytes of memory that crossed the link.
    """

    def __init__(self, session: Session):
        self._session = session
        self.sent = self.fetched = 0

    def write(self, address: int, octets: Octets) -> list[Request]:
        """Begin to write uint8[n]; `finish` waits."""
        self.sent += octets.size
        return [self._session.request(Operation.WRITE_MEMORY, address + at,
                                      payload=octets[at:at + LARGEST_PAYLOAD].tobytes())
                for at in range(0, octets.size, LARGEST_PAYLOAD)]

    def finish(self, requests: Iterable[Request]) -> None:
        """Wait until writes are done."""
        for request in requests:
            expect(request.result(), "a write of its memory")

    def read(self, spans: Iterable[tuple[T, int, int]]) -> Iterator[tuple[T, int, Octets]]:
        """Read (what, address, size) spans: (what, address, uint8[n]) of each part, in order."""
        requests = [(what, at, self._session.request(
            Operation.READ_MEMORY, at, min(LARGEST_PAYLOAD, address + size - at)))
            for what, address, size in spans
            for at in range(address, address + size, LARGEST_PAYLOAD)]
        for what, at, request in requests:
            found = np.frombuffer(
                expect(request.result(), "a read of its memory").payload, np.uint8)
            self.fetched += found.size
            yield what, at, found

    def take_written(self) -> NDArray[np.int64]:
        """Sorted numbers of the blocks that the card wrote since the last call: int64[n]."""
        blocks, more = [], True
        while more:
            answer = expect(self._session.request(
                Operation.TAKE_WRITTEN, length=LARGEST_PAYLOAD).result(), "a look at its writes")
            if len(answer.payload) % 4:
                raise TransportError(f"the card listed blocks in {len(answer.payload)} bytes, "
                                     "which is not a multiple of 4")
            blocks.append(np.frombuffer(answer.payload, "<u4").astype(np.int64))
            more = answer.status is LinkStatus.MORE
        return np.unique(np.concatenate(blocks))


def copies_over(session: Session) -> CardMemory:
    """Copies of arrays in the memory of a session's card."""
    card = session.card
    return CardMemory(MemoryAccess(session), card["memory_base"], card["memory_bytes"],
                      1 << card["block_log2"])
