"""What happened to the ids of a map, batch by batch."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from struct import Struct
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from ..contract.errors import Error
from ..system.files import replaced

EVENT = np.dtype([("batch", "<i8"), ("id", "<u8"), ("row", "<i4"), ("kind", "<i4")])
EXPIRED, ADMITTED = 0, 1
_CHECKSUM = Struct("<5sI")
_PART = 1 << 16  # events that are Python objects at a time


@dataclass(frozen=True, eq=False)
class Changes:
    """What an export must write to follow a table.

    Attributes
    ----------
    since, until : int
        Batches after `since`, up to `until`.
    ids : uint64[n]
        Upserts: ids with a row, whose row was looked up in these batches.
    rows : int64[n]
        Their rows.
    removed : uint64[m]
        Tombstones: ids without a row at the end that lost one in these batches.
    """

    since: int
    until: int
    ids: NDArray[np.uint64]
    rows: NDArray[np.int64]
    removed: NDArray[np.uint64]


class EventLog:
    """Ids that got a row and ids that lost it, in order; 24 bytes an event."""

    def __init__(self) -> None:
        self.first = 0
        self._parts: list[NDArray[np.void]] = []

    def append(self, batch: int, kind: int | NDArray[np.integer[Any]], ids: NDArray[np.uint64],
               rows: NDArray[np.int64]) -> None:
        """Add the events of a batch."""
        if len(ids):
            part = np.empty(len(ids), EVENT)
            part["batch"], part["kind"], part["id"], part["row"] = batch, kind, ids, rows
            self._parts.append(part)

    def events(self, since: int = 0) -> NDArray[np.void]:
        """Events after batch `since`: EVENT[n].

        Raises
        ------
        Error
            They were forgotten.
        """
        if since < self.first:
            raise Error(f"the log begins after batch {self.first}, and events since batch {since} "
                        f"are asked for: export the whole table, since=0")
        parts = [part for part in self._parts if part["batch"][0] > since]
        return np.concatenate(parts) if parts else np.empty(0, EVENT)

    def forget(self, until: int) -> None:
        """Drop the events of all batches up to `until`."""
        self._parts = [part for part in self._parts if part["batch"][0] > until]
        self.first = max(self.first, until)

    def save(self, path: str | Path) -> None:
        """Write a NumPy file of the events and their checksum, in the place of an older file or
        not at all; `load` reads it, as does `numpy.load`, which leaves the checksum out.

        Raises
        ------
        FileError
            The disk is full, for example.
        """
        content = io.BytesIO()
        np.save(content, self.events(self.first), allow_pickle=False)
        with replaced(path) as file:
            file.write(content.getbuffer())
            file.write(_CHECKSUM.pack(b"crc32", crc32(content.getbuffer())))

    @staticmethod
    def load(path: str | Path) -> NDArray[np.void]:
        """The events that `save` wrote: EVENT[n].

        Raises
        ------
        Error
            There is no such file, or it is damaged.
        """
        try:
            content = Path(path).read_bytes()
            events = content[:-_CHECKSUM.size]
            if content[-_CHECKSUM.size:] != _CHECKSUM.pack(b"crc32", crc32(events)):
                raise ValueError("its checksum is wrong")
            found: NDArray[np.void] = np.load(io.BytesIO(events), allow_pickle=False)
            return found
        except (OSError, ValueError, EOFError) as error:
            raise Error(f"{path} is no log of ids ({error}): give it what save() wrote") from error

    @staticmethod
    def replay(events: NDArray[np.void],
               begin: Mapping[int, int] | None = None) -> dict[int, int]:
        """Row of each id after the events EVENT[n] of a log.

        Parameters
        ----------
        events : EVENT[n]
        begin : mapping of int to int, optional
            Row of each id before them; by default none, for a log that has forgotten nothing.

        Raises
        ------
        Error
            An event contradicts those before it.
        """
        rows = dict(begin or {})
        taken = set(rows.values())
        for position, (batch, key, row, kind) in enumerate(chain.from_iterable(
                events[part:part + _PART].tolist() for part in range(0, len(events), _PART))):
            if kind == EXPIRED:
                sound = rows.pop(key, None) == row
                taken.discard(row)
            else:
                sound = key not in rows and row not in taken and row > 0
                rows[key] = row
                taken.add(row)
            if not sound:
                raise Error(f"event {position} of the log, id {key:#x} "
                            f"{'loses' if kind == EXPIRED else 'gets'} row {row} in batch "
                            f"{batch}, contradicts the events before it: the log is damaged, or "
                            f"has forgotten events, and `begin` must be the rows after these")
        return rows


def digest(ids: NDArray[np.uint64], rows: NDArray[np.int64]) -> str:
    """SHA-256 of which id has which row, whatever their order."""
    order = np.argsort(rows)
    return hashlib.sha256(np.asarray(ids, "<u8")[order].tobytes()
                          + np.asarray(rows, "<i8")[order].tobytes()).hexdigest()
