"""The host's arrays and their copies in a card's memory, kept alike over a link.

What the host changed is sent before the card works, what the card wrote is fetched before the host
looks. Both sides may write to one array at a time, as long as they do not write to the same four
bytes: of what each holds only that goes over the link which differs from what both held before.
"""

from dataclasses import dataclass

import numpy as np

from ..contract import LARGEST_PAYLOAD, LinkStatus, Operation
from ..errors import TransportError
from .address_ranges import AddressRanges
from .session import expect

_WORD = 4  # bytes: the least that either side writes
_NEAR = 64  # bytes that are sent along to save a frame, when the card writes nothing


@dataclass
class _Array:
    octets: np.ndarray  # uint8[n], the host's own memory
    held: np.ndarray | None = None  # what the card's copy holds; None before it was sent
    uses: int = 1  # attached arrays that lie in it

    @property
    def host(self):
        return self.octets.ctypes.data


class CardMemory:
    """Copies of the arrays that are attached.

    Parameters
    ----------
    session : Session
    """

    def __init__(self, session):
        self._session, card = session, session.card
        self._block = 1 << card["block_log2"]
        self._ranges = AddressRanges(card["memory_base"], card["memory_bytes"])
        self._arrays: dict[int, _Array] = {}
        self.sent = self.fetched = 0  # bytes
        self._take_written()  # what the card wrote for a host before this one

    def attach(self, octets: np.ndarray) -> int:
        """Give a uint8 array a place on the card; its address.

        One that lies in an attached array lies in its copy too: what one command writes there, the
        next one reads.

        Raises
        ------
        MemoryError
            If the card has no room, or some of the array, but not all, is attached.
        """
        first, end = octets.ctypes.data, octets.ctypes.data + octets.size
        for address, array in self._arrays.items():
            if array.host <= first and end <= array.host + array.octets.size:
                array.uses += 1
                return address + first - array.host
            if array.host < end and first < array.host + array.octets.size:
                raise MemoryError(
                    f"its {octets.size} bytes overlap {array.octets.size} others that have a copy "
                    f"on the card: take the results of the commands that use those first, or "
                    f"register one array that holds both")
        address = self._ranges.place(first, octets.size)
        self._arrays[address] = _Array(octets)
        return address

    def detach(self, address: int) -> None:
        """End what `attach` began."""
        home, array = next((home, array) for home, array in self._arrays.items()
                           if 0 <= address - home < array.octets.size)
        array.uses -= 1
        if not array.uses:
            self._ranges.release(home)
            del self._arrays[home]

    def push(self, alone: bool) -> None:
        """Send what the host changed.

        Parameters
        ----------
        alone : bool
            The card is at rest: bytes between changes may be sent along.
        """
        requests = []
        for address, array in self._arrays.items():
            held, changes = _changes(array, _NEAR if alone else 0)
            for first, end in changes:
                held[first:end] = array.octets[first:end]
                for at in range(first, end, LARGEST_PAYLOAD):
                    piece = held[at:min(at + LARGEST_PAYLOAD, end)].tobytes()
                    self.sent += len(piece)
                    requests.append(self._session.request(
                        Operation.WRITE_MEMORY, address + at, payload=piece))
        for request in requests:
            expect(request.result(), "a write of its memory")

    def pull(self) -> None:
        """Fetch what the card wrote."""
        pieces = []
        for first, end in _runs(self._take_written()):
            for address, array in self._arrays.items():
                if array.held is None:  # nothing there is of this array
                    continue
                start = max(first * self._block - address, 0)
                stop = min(end * self._block - address, array.octets.size)
                pieces += [(array.held, array.octets, address, at, min(LARGEST_PAYLOAD, stop - at))
                           for at in range(start, stop, LARGEST_PAYLOAD)]
        requests = [(copy, octets, at, self._session.request(
            Operation.READ_MEMORY, address + at, size))
            for copy, octets, address, at, size in pieces]
        for copy, octets, at, request in requests:
            found = np.frombuffer(
                expect(request.result(), "a read of its memory").payload, np.uint8)
            self.fetched += found.size
            held, host = (whole[at:at + found.size] for whole in (copy, octets))
            written = found != held
            host[written] = found[written]
            held[written] = found[written]

    def _take_written(self):
        """Numbers of the blocks that the card wrote, sorted."""
        blocks, more = [], True
        while more:
            answer = expect(self._session.request(
                Operation.TAKE_WRITTEN, length=LARGEST_PAYLOAD).result(), "a look at its writes")
            if len(answer.payload) % 4:
                raise TransportError(f"the card told blocks in {len(answer.payload)} bytes, "
                                     "which is not a multiple of 4")
            blocks.append(np.frombuffer(answer.payload, "<u4").astype(np.int64))
            more = answer.status is LinkStatus.MORE
        return np.unique(np.concatenate(blocks))


def _changes(array, near):
    """The card's copy, and the (first, end) bytes in which it differs from the array."""
    if array.held is None:
        array.held = array.octets.copy()
        return array.held, [(0, array.octets.size)]
    if np.array_equal(array.held, array.octets):
        return array.held, []
    words = np.unique(np.flatnonzero(array.held != array.octets) // _WORD)
    return array.held, [(first * _WORD, min(end * _WORD, array.octets.size))
                        for first, end in _runs(words, near // _WORD)]


def _runs(numbers, near=0):
    """(first, end) of what follows one another in sorted numbers, up to `near` left out."""
    if not len(numbers):
        return []
    breaks = np.flatnonzero(np.diff(numbers) > 1 + near)
    firsts, lasts = np.append(0, breaks + 1), np.append(breaks, len(numbers) - 1)
    return list(zip(numbers[firsts].tolist(), (numbers[lasts] + 1).tolist(), strict=True))
