"""The host's arrays and their copies in a card's memory, kept equal over a link.

The driver sends bytes that the host changed before the card works, and fetches bytes that the card
wrote before the host reads them. Both sides may write to one array at the same time, but not to the
same four bytes: only bytes that differ from the last common contents go over the link.
"""

from dataclasses import dataclass

import numpy as np

from ..contract import LARGEST_PAYLOAD, LinkStatus, Operation
from ..errors import TransportError
from .address_ranges import AddressRanges
from .session import expect

_WORD = 4  # bytes: the granularity of writes of either side
_NEAR = 64  # unchanged bytes that may be sent to save a frame, while the card is idle


@dataclass
class _Array:
    octets: np.ndarray  # uint8[n], the host's memory
    held: np.ndarray | None = None  # contents of the card's copy; None before they were sent
    uses: int = 1  # attached arrays within it

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
        self._take_written()  # forget the writes for an earlier host

    def attach(self, octets: np.ndarray) -> int:
        """Give a uint8 array a place in the card's memory and return its address.

        An array within an attached array lies within its copy: a command reads what an earlier
        command wrote to either.

        Raises
        ------
        MemoryError
            If the card has no room, or a part of the array is attached.
        """
        first, end = octets.ctypes.data, octets.ctypes.data + octets.size
        for address, array in self._arrays.items():
            if array.host <= first and end <= array.host + array.octets.size:
                array.uses += 1
                return address + first - array.host
            if array.host < end and first < array.host + array.octets.size:
                raise MemoryError(
                    f"its {octets.size} bytes overlap {array.octets.size} that have a copy on the "
                    f"card: take the results of the commands that use those first, or register one "
                    f"array that holds both")
        address = self._ranges.place(first, octets.size)
        self._arrays[address] = _Array(octets)
        return address

    def detach(self, address: int) -> None:
        """Free the copy that `attach` made."""
        home, array = next((home, array) for home, array in self._arrays.items()
                           if 0 <= address - home < array.octets.size)
        array.uses -= 1
        if not array.uses:
            self._ranges.release(home)
            del self._arrays[home]

    def push(self, alone: bool) -> None:
        """Send the bytes that the host changed.

        Parameters
        ----------
        alone : bool
            The card is idle: bytes between two changes may be sent.
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
        """Fetch the bytes that the card wrote."""
        pieces = []
        for first, end in _runs(self._take_written()):
            for address, array in self._arrays.items():
                if array.held is None:  # the card has nothing of this array
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
        """Sorted numbers of the blocks that the card wrote since the last call."""
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
    """(first, end) of each run in sorted numbers; gaps of up to `near` numbers do not end a run."""
    if not len(numbers):
        return []
    breaks = np.flatnonzero(np.diff(numbers) > 1 + near)
    firsts, lasts = np.append(0, breaks + 1), np.append(breaks, len(numbers) - 1)
    return list(zip(numbers[firsts].tolist(), (numbers[lasts] + 1).tolist(), strict=True))
