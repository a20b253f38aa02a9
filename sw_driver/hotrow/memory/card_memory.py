"""Copies of the host's arrays in a card's memory.

Every array has an owner, which says how its copy follows:

- "both": host and card write to it. Before the card works, bytes that the host changed are sent;
  before the host reads, bytes that the card wrote are fetched. They may write to one array at the
  same time, but not to the same four bytes.
- "card": a table that is on the card. It is sent once, before the first command, and
  `flush` fetches the blocks that the card wrote. A write of the host is refused by the next `flush`
  or sent by the next `upload`.
- "driver": memory of the driver, which sends and fetches the bytes that a command reads and writes.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..contract.errors import HostWriteError
from .address_ranges import AddressRanges

Owner: TypeAlias = Literal["both", "card", "driver"]
Octets: TypeAlias = NDArray[np.uint8]
_WORD = 4  # bytes: the granularity of writes of either side
_NEAR = 64  # unchanged bytes that may be sent to save a frame, while the card is idle
T = TypeVar("T")


class Access(Protocol):
    """How the host reaches a card's memory."""

    def write(self, address: int, octets: Octets) -> list[Any]:
        """Begin to write uint8[n]; `finish` waits for what it returns."""

    def finish(self, requests: Iterable[Any]) -> None:
        """Wait until writes are done."""

    def read(self, spans: Iterable[tuple[T, int, int]]) -> Iterator[tuple[T, int, Octets]]:
        """Read (what, address, size) spans: (what, address, uint8[n]) of each part, in order."""

    def take_written(self) -> NDArray[np.int64]:
        """Sorted numbers of the blocks that the card wrote since the last call: int64[n]."""


@dataclass
class _Array:
    octets: Octets  # the host's memory
    writable: bool
    owner: Owner
    written: set[int]  # blocks that the card wrote since the last fetch; of owner "card"
    held: Octets | None = None  # contents of the card's copy; None before they were sent
    uses: int = 1  # attached arrays within it

    @property
    def host(self) -> int:
        return self.octets.ctypes.data


# Bytes of the card, `held`, the host's, and the first byte in the array.
_Part: TypeAlias = tuple[Octets, Octets, Octets, int]
_Piece: TypeAlias = tuple[tuple[_Array, int], int, int]  # ((array, its address), address, bytes)


class CardMemory:
    """Copies of the arrays that are attached.

    Parameters
    ----------
    access : Access
    base, size : int
        Bytes of the card's memory.
    block_bytes : int
        Of the blocks of which `access` lists the written ones; block 0 begins at address 0.

    Attributes
    ----------
    access : Access
    """

    def __init__(self, access: Access, base: int, size: int, block_bytes: int):
        self.access, self._block = access, block_bytes
        self._ranges = AddressRanges(base, size)
        self._arrays: dict[int, _Array] = {}
        self._taking = False  # whether the card's answer is lost unless it is noted
        self.access.take_written()  # forget the writes for an earlier host

    def attach(self, octets: Octets, writable: bool = True, owner: Owner = "both") -> int:
        """Give a uint8 array a place in the card's memory and return its address.

        An array within an attached array lies within its copy, and has its owner: a command reads
        what an earlier command wrote to either.

        Raises
        ------
        MemoryError
            If the card has no room, or a part of the array is attached.
        """
        first, end = octets.ctypes.data, octets.ctypes.data + octets.size
        for address, array in self._arrays.items():
            if array.host <= first and end <= array.host + array.octets.size:
                array.uses += 1
                array.writable |= writable
                return address + first - array.host
            if array.host < end and first < array.host + array.octets.size:
                raise MemoryError(
                    f"its {octets.size} bytes overlap {array.octets.size} that have a copy on the "
                    f"card: take the results of the commands that use those first, or register one "
                    f"array that holds both")
        address = self._ranges.place(first, octets.size)
        self._arrays[address] = _Array(octets, writable, owner, set())
        return address

    def detach(self, address: int) -> None:
        """Free the copy that `attach` made; what was not fetched is lost."""
        home, array = self._at(address)
        array.uses -= 1
        if not array.uses:
            del self._arrays[home]  # before another array may have the range
            self._ranges.release(home)

    def send(self, address: int, size: int) -> None:
        """Send bytes of an array of the driver."""
        home, array = self._at(address)
        self.access.finish(self.access.write(
            address, array.octets[address - home:address - home + size]))

    def fetch(self, address: int, size: int) -> None:
        """Fetch bytes of an array of the driver."""
        home, array = self._at(address)
        for _, at, found in self.access.read([(None, address, size)]):
            array.octets[at - home:at - home + found.size] = found

    def push(self, alone: bool) -> None:
        """Send the bytes of owner "both" that the host changed, and tables that were never sent.

        Parameters
        ----------
        alone : bool
            The card is idle: bytes between two changes may be sent.
        """
        requests = []
        for address, array in self._arrays.items():
            if array.owner == "both" or (array.owner == "card" and array.held is None):
                requests += self._send_changes(address, array, _NEAR if alone else 0)
        self.access.finish(requests)

    def pull(self) -> None:
        """Fetch what the card wrote of arrays that host and card both write."""
        shared = {address: array for address, array in self._arrays.items()
                  if array.owner == "both" and array.writable and array.held is not None}
        if not shared:  # the card keeps note of its writes
            return
        self._note_written()
        _merge(self._read_parts([piece for address, array in shared.items()
                                 for piece in self._pieces(address, array)]))
        for array in shared.values():
            array.written.clear()

    def flush(self, address: int | None = None) -> None:
        """Fetch the blocks that the card wrote to arrays of owner "card".

        Parameters
        ----------
        address : int, optional
            In the array; all arrays by default.

        Raises
        ------
        HostWriteError
            The host wrote to one of them, which is unchanged; the others are up to date.
        """
        self._fetch_on_card(None if address is None else self._at(address)[0], adopt=False)

    def upload(self) -> None:
        """`flush`, and send the bytes that the host wrote to arrays of owner "card".

        Raises
        ------
        HostWriteError
            Host and card wrote to the same four bytes; other arrays are up to date on the host.
        """
        self._fetch_on_card(None, adopt=True)
        self.access.finish([request for address, array in self._on_card()
                            for request in self._send_changes(address, array, 0)])

    def _fetch_on_card(self, home: int | None, adopt: bool) -> None:
        """Fetch what the card wrote of all arrays that live there, or of the one at address `home`;
        where the host wrote, too, `adopt` keeps the host's bytes."""
        self._note_written()
        refused = []
        for address, array in self._on_card():
            if home in (None, address):
                parts = self._read_parts(self._pieces(address, array))
                wrong = _refusal(address, array, parts, adopt)
                if wrong is not None:
                    refused.append(wrong)
                    continue
                _merge(parts)
                array.written.clear()
        if refused:
            raise refused[0]

    def _on_card(self) -> list[tuple[int, _Array]]:
        """(address, array) of each of owner "card" that was sent."""
        return [(address, array) for address, array in self._arrays.items()
                if array.owner == "card" and array.held is not None]

    def _note_written(self) -> None:
        """Note which blocks of arrays the card wrote."""
        interrupted, self._taking = self._taking, True
        blocks = self.access.take_written()
        for address, array in self._arrays.items():
            if array.owner == "driver":
                continue
            first = address // self._block
            last = (address + array.octets.size - 1) // self._block
            if interrupted:  # between the card's answer and its note
                array.written.update(range(first, last + 1))
            else:
                low, high = np.searchsorted(blocks, (first, last + 1))
                array.written.update(blocks[low:high].tolist())
        self._taking = False

    def _pieces(self, address: int, array: _Array) -> list[_Piece]:
        """Spans of the blocks that the card wrote to an array."""
        pieces = []
        for first, end in _runs(np.array(sorted(array.written), np.int64)):
            start = max(first * self._block, address)
            stop = min(end * self._block, address + array.octets.size)
            pieces.append(((array, address), start, stop - start))
        return pieces

    def _read_parts(self, pieces: list[_Piece]) -> list[_Part]:
        """Read pieces."""
        parts = []
        for (array, home), address, found in self.access.read(pieces):
            at = address - home
            assert array.held is not None  # it was sent before the card wrote
            held, host = (each[at:at + found.size] for each in (array.held, array.octets))
            # Words that the host has already: an interrupt may have ended a merge.
            alike = ~_words(found != host).repeat(_WORD)[:found.size]
            held[alike] = found[alike]
            parts.append((found, held, host, at))
        return parts

    def _send_changes(self, address: int, array: _Array, near: int) -> list[Any]:
        """Requests that send what the host changed in an array."""
        if array.held is None:
            contents = array.octets.copy()
            requests = self.access.write(address, contents)
            array.held = contents
            return requests
        requests = []
        for first, end in _changes(array, near):
            changed = array.octets[first:end].copy()
            requests += self.access.write(address + first, changed)
            array.held[first:end] = changed  # once an interrupt cannot lose them
        return requests

    def _at(self, address: int) -> tuple[int, _Array]:
        """The array in whose copy an address lies: (its address, _Array)."""
        return next((home, array) for home, array in self._arrays.items()
                    if 0 <= address - home < array.octets.size)


def _refusal(address: int, array: _Array, parts: Iterable[_Part],
             adopt: bool) -> HostWriteError | None:
    """The error about what the host wrote to an array, with `adopt` where the card wrote, too."""
    changes = _changes(array)
    if changes and not adopt:
        return HostWriteError(address, *changes[0])
    for found, held, host, at in parts if changes else ():
        both = _words(found != held) & _words(host != held)
        if both.any():
            word = at + _WORD * int(both.argmax())
            return HostWriteError(address, word, word + _WORD, both=True)
    return None


def _merge(parts: Iterable[_Part]) -> None:
    """Give the host the bytes that differ from the last contents of the card's copy."""
    for found, held, host, _ in parts:
        written = found != held
        host[written] = found[written]
        held[written] = found[written]


def _changes(array: _Array, near: int = 0) -> list[tuple[int, int]]:
    """The (first, end) bytes in which an array differs from the card's copy."""
    assert array.held is not None
    if np.array_equal(array.held, array.octets):
        return []
    words = np.unique(np.flatnonzero(array.held != array.octets) // _WORD)
    return [(first * _WORD, min(end * _WORD, array.octets.size))
            for first, end in _runs(words, near // _WORD)]


def _words(octets: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which words have a byte that is set: bool[words]."""
    return np.logical_or.reduceat(octets, np.arange(0, octets.size, _WORD))


def _runs(numbers: NDArray[np.int64], near: int = 0) -> list[tuple[int, int]]:
    """(first, end) of each run in sorted numbers; gaps of up to `near` numbers do not end a run."""
    if not len(numbers):
        return []
    breaks = np.flatnonzero(np.diff(numbers) > 1 + near)
    firsts, lasts = np.append(0, breaks + 1), np.append(breaks, len(numbers) - 1)
    return list(zip(numbers[firsts].tolist(), (numbers[lasts] + 1).tolist(), strict=True))
