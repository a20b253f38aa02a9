"""A map from 64-bit ids to the rows of a table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile
from zlib import crc32

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..contract.errors import BatchError, Error
from ..operands.integers import listed, numbered, whole
from ..system.files import replaced
from ..system.forks import ForkLock
from ..system.interrupts import uninterrupted
from .index import MOST_COUNT, ROW_BYTES, SKETCH_ROWS, Index
from .log import ADMITTED, EXPIRED, Changes, EventLog, digest
from .policies import MOST_ROWS, Expiry, LeastCount, Probability, check_policies
from .turnover import Turnover

_MOST_BATCHES = (1 << 32) - 1
_PARTS = "settings", "ids", "counts", "last", "free", "sketch", "events"  # of a state
_KINDS = {"LeastCount": LeastCount, "Probability": Probability}


@dataclass(frozen=True, eq=False)
class MappedBatch:
    """The rows of a batch, and what the batch changed.

    Attributes
    ----------
    number : int
        Of the batch, from 1.
    rows : int64, in the shape of the ids
        0, the default row, where the id has no row.
    admitted_ids, admitted_rows : uint64[a], int64[a]
        Ids that got a row: start it from `initial_rows`, with fresh optimizer state.
    expired_ids, expired_rows : uint64[e], int64[e]
        Ids that lost theirs before that; a row may be in both lists.
    default_lookups : int
        Lookups of the default row.
    refused : int
        Ids that were admitted and got no row.
    """

    number: int
    rows: NDArray[np.int64]
    admitted_ids: NDArray[np.uint64]
    admitted_rows: NDArray[np.int64]
    expired_ids: NDArray[np.uint64]
    expired_rows: NDArray[np.int64]
    default_lookups: int
    refused: int


class IdMap:
    """Rows of a table for ids of 64 bits, any of them.

    Row 0 is the default row: ids read it, and train it, until they get a row of 1 to rows - 1. The
    same batches give the same rows with any number of threads. Calls may come from any thread.

    It takes `ROW_BYTES` a row, those of the sketch of `LeastCount`, and 24 bytes for each event of
    `log` until `log.forget`.

    Parameters
    ----------
    rows : int
        Of the table, 2 to 2^31 - 1.
    admission : LeastCount or Probability, optional
        By default an id gets a row at its first lookup.
    expiry : Expiry, optional
        By default no id loses its row, and ids that find none free read the default row.
    seed : int
        Of the hash and of the draws.
    threads : int, optional
        Of a lookup; by default as the number of ids needs, at most those of PyTorch.

    Attributes
    ----------
    ROW_BYTES : int
        Bytes of memory for each row.
    first_rows : int
        Rows of the table before it grew.
    batch, completed : int
        Batches that were planned, and that are done.
    default_lookups : int
        Lookups of the default row in all batches.
    log : EventLog

    Raises
    ------
    Error

    Examples
    --------
    >>> ids = IdMap(4)
    >>> ids.plan([1 << 40, 7, 1 << 40]).rows.tolist()
    [1, 2, 1]
    >>> ids.plan([-1, 8]).rows.tolist()  # no row is left for 8
    [3, 0]
    """

    ROW_BYTES = ROW_BYTES

    def __init__(self, rows: int, admission: LeastCount | Probability | None = None,
                 expiry: Expiry | None = None, seed: int = 0, threads: int | None = None):
        rows = whole(rows, "the number of rows")
        check_policies(rows, admission, expiry)
        if threads is not None and whole(threads, "threads of a lookup") < 1:
            raise Error(f"a lookup has at least one thread, not {threads}")
        self.admission, self.expiry, self.threads = admission, expiry, threads
        self.seed, self.first_rows = whole(seed, "the seed") & (1 << 64) - 1, rows
        self.batch, self.completed, self.default_lookups = 0, 0, 0
        self.log, self._index, self._lock = EventLog(), Index(rows, self.seed), ForkLock()
        self._turnover = Turnover(self._index, self.log, admission, expiry, self.seed)

    @property
    def table_rows(self) -> int:
        """Rows of the table."""
        return len(self._index.state)

    def __len__(self) -> int:
        """Ids that have a row."""
        return self._index.used

    def find(self, ids: Any) -> NDArray[np.int64]:
        """Rows of ids, 0 without one; counts nothing and admits none: for evaluation."""
        keys = _keys(ids)
        with self._lock:
            return self._index.find(keys.reshape(-1), 0, self.threads).reshape(keys.shape)

    def plan(self, ids: Any) -> MappedBatch:
        """Rows of the next batch; its rows are in flight until `done` gets its number.

        Parameters
        ----------
        ids : integers, of one dimension or more
            NumPy array, tensor or list; a negative id is its 64 bits.

        Raises
        ------
        BatchError
            These are no integers; nothing changed.
        MemoryError
            The batch needs more memory than there is; nothing changed.
        """
        keys = _keys(ids)
        flat = keys.reshape(-1)
        with uninterrupted(), self._lock:  # the log follows the rows
            if self.batch + 1 > _MOST_BATCHES:
                raise Error("a map of ids plans at most 2^32 - 1 batches")
            self._turnover.check_memory(len(flat), self.batch + 1)
            self.batch += 1
            rows = self._index.find(flat, self.batch, self.threads)
            without = np.flatnonzero(rows == 0)
            first, number = numbered(flat[without])
            distinct = flat[without][first]
            counts = np.bincount(number, minlength=len(first)).astype(np.uint32)
            admitted, counts = self._turnover.admitted(self.batch, distinct, counts)
            wanted = np.flatnonzero(admitted)
            expired_ids, expired_rows, served = self._turnover.expire(
                self.batch, self.completed, counts[wanted])
            chosen = wanted[served]
            given = self._index.add(distinct[chosen], counts[chosen], self.batch)
            self.log.append(self.batch, ADMITTED, distinct[chosen], given)
            row_of = np.zeros(len(distinct), np.int64)
            row_of[chosen] = given
            rows[without] = row_of[number]
            default_lookups = int((rows == 0).sum())
            self.default_lookups += default_lookups
            return MappedBatch(self.batch, rows.reshape(keys.shape), distinct[chosen], given,
                               expired_ids, expired_rows, default_lookups,
                               len(wanted) - len(given))

    def done(self, batch: int) -> None:
        """Batches up to this one are trained and written back: their rows may expire.

        Raises
        ------
        Error
            It was not planned.
        """
        with self._lock:
            if not 0 <= whole(batch, "the number of a batch") <= self.batch:
                raise Error(f"batch {batch} was not planned: the last one is {self.batch}")
            self.completed = max(self.completed, batch)

    def grow(self) -> int:
        """Double the rows, and return them: one copy of the state, and the index built from it.

        Rows keep their numbers. Grow the table first: lookups of other threads wait.

        Raises
        ------
        Error
            More rows would stay without ids, because of a cap, or there are as many as can be.
        """
        with self.growing() as rows:
            return rows

    @contextmanager
    def growing(self) -> Iterator[int]:
        """`grow` before a block, which must not plan, and undo it if the block fails."""
        if self.expiry is not None and self.expiry.cap is not None:
            raise Error(f"at most {self.expiry.cap} ids have a row, by the cap of the expiry: more "
                        f"rows have no use. Leave the cap out for a map that grows")
        if self.table_rows == MOST_ROWS:
            raise Error(f"a map of ids has at most {MOST_ROWS} rows")
        with self._lock:
            before = copy(self._index)
            try:
                self._index.grow(min(2 * self.table_rows, MOST_ROWS))
                yield self.table_rows
                self._turnover.bar = 0
            except BaseException:
                vars(self._index).update(vars(before))
                raise

    def items(self) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Ids with a row, and their rows ascending."""
        with self._lock:
            return self._items(0)

    def counts(self, rows: ArrayLike) -> NDArray[np.int64]:
        """Lookups of some rows since their ids got them, with `LeastCount` those that it estimated
        before, too; halved by sweeps; at most 2^31.

        Raises
        ------
        BatchError
            These are no rows of the table.
        """
        places = _keys(rows)
        if places.max(initial=0) >= self.table_rows:
            raise BatchError(f"a map of {self.table_rows} rows has rows 0 to "
                             f"{self.table_rows - 1}: got {int(places.view(np.int64).max())} or "
                             f"a negative row")
        return np.minimum(self._index.state["count"][places.astype(np.int64)].astype(np.int64),
                          MOST_COUNT)

    def digest(self) -> str:
        """SHA-256 of which id has which row."""
        return digest(*self.items())

    def changes(self, since: int) -> Changes:
        """Ids to write and ids to remove in an export that was made after batch `since`.

        An export that begins, since batch 0, needs no log.

        Raises
        ------
        Error
            The log has forgotten those batches, or this map has not planned batch `since`.
        """
        with self._lock:
            if whole(since, "the batch `since`") > self.batch:
                raise Error(f"changes since batch {since} are asked for, and the last batch is "
                            f"{self.batch}: after a return to an earlier state, export the whole "
                            f"table, since=0")
            events = self.log.events(since or self.log.first)
            removed = np.unique(events["id"][events["kind"] == EXPIRED])
            removed = removed[self._index.find(removed, 0, self.threads) == 0]
            ids, rows = self._items(since)
            return Changes(since, self.batch, ids, rows, removed)

    def state(self) -> dict[str, NDArray[Any]]:
        """All that a map of the same future needs, as arrays."""
        with self._lock:
            index, fresh = self._index, self._index.fresh
            settings = {"rows": self.table_rows, "first_rows": self.first_rows,
                        "seed": self.seed, "batch": self.batch,
                        "first": self.log.first, "default_lookups": self.default_lookups,
                        "bar": self._turnover.bar,
                        "expiry": self.expiry and asdict(self.expiry),
                        "admission": self.admission and [type(self.admission).__name__,
                                                         asdict(self.admission)]}
            state = index.state[:fresh]
            parts = {"settings": np.frombuffer(json.dumps(settings).encode(), np.uint8),
                     "ids": state["id"].copy(), "counts": np.minimum(state["count"], MOST_COUNT),
                     "last": state["last"].copy(), "free": index.free[:index.free_count].copy(),
                     "sketch": self._turnover.sketch.copy(),
                     "events": self.log.events(self.log.first)}
            return parts | {"crc": _checksum(parts)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], threads: int | None = None) -> IdMap:
        """The map that `state` describes, with no batch in flight.

        Raises
        ------
        Error
            The state is damaged, contradicts itself, or needs more memory than there is.
        """
        try:
            if not np.array_equal(state["crc"], _checksum(state)):
                raise ValueError("its checksum is wrong")
            settings = json.loads(bytes(np.asarray(state["settings"], np.uint8)))
            admission = settings["admission"]
            if admission and admission[0] == "LeastCount" and (
                    np.shape(state["sketch"]) != (SKETCH_ROWS, admission[1]["width"])):
                raise ValueError(f"a sketch of shape {np.shape(state['sketch'])}")
            made = cls(settings["rows"], admission and _KINDS[admission[0]](**admission[1]),
                       settings["expiry"] and Expiry(**settings["expiry"]), settings["seed"],
                       threads)
            numbers = {name: whole(settings[name], name) for name in (
                "batch", "default_lookups", "first_rows", "bar", "first")}
            if (min(numbers.values()) < 0 or numbers["first"] > numbers["batch"] or (
                    numbers["batch"] > _MOST_BATCHES)):
                raise ValueError(f"numbers that cannot be, {numbers}")
            made.batch = made.completed = numbers["batch"]
            made.default_lookups = numbers["default_lookups"]
            made.first_rows, made._turnover.bar = numbers["first_rows"], numbers["bar"]
            made._turnover.sketch[:] = state["sketch"]
            made.log.first = numbers["first"]
            events = np.asarray(state["events"])
            for run in np.split(events, np.flatnonzero(np.diff(events["batch"])) + 1):
                made.log.append(int(run["batch"][0]) if len(run) else 0, run["kind"], run["id"],
                                run["row"])
            made._index.fill(state["ids"], state["counts"], state["last"],
                             np.asarray(state["free"]))
        except (KeyError, ValueError, TypeError, IndexError) as error:
            raise Error(f"this is no state of a map of ids ({error}): give it what state() "
                        f"returned") from error
        except MemoryError as error:
            raise Error(f"the rows of a map of ids need more memory than there is ({error})"
                        ) from error
        return made

    def save(self, path: str | Path) -> None:
        """Write a NumPy file (.npz) of the state, in the place of an older file or not at all.

        Raises
        ------
        FileError
            The disk is full, for example.
        """
        with replaced(path) as file:
            np.savez(file, **self.state())  # type: ignore[arg-type]  # arrays by name

    @classmethod
    def load(cls, path: str | Path, threads: int | None = None) -> IdMap:
        """The map that `save` wrote."""
        try:
            with np.load(path, allow_pickle=False) as state:
                if any(part.compress_type for part in state.zip.infolist()):
                    raise ValueError("it is compressed, so that its size says nothing of memory")
                return cls.from_state(state, threads)
        except (OSError, ValueError, TypeError, EOFError, RuntimeError, BadZipFile, AttributeError,
                OverflowError) as error:
            raise Error(f"{path} is no map of ids ({error}): give it what save() wrote") from error

    def _items(self, since: int) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        last = self._index.state["last"][:self._index.fresh]
        rows = np.flatnonzero(last > since)
        return self._index.state["id"][rows], rows


def _checksum(state: Mapping[str, Any]) -> NDArray[np.uint32]:
    """CRC-32 of the parts of a state, and of their sizes."""
    total = 0
    for name in _PARTS:
        part = np.ascontiguousarray(state[name]).reshape(-1)
        total = crc32(part.view(np.uint8).data, crc32(f"{name} {part.nbytes}".encode(), total))
    return np.array([total], np.uint32)


def _keys(ids: Any) -> NDArray[np.uint64]:
    """Ids as their 64 bits."""
    try:
        array = listed(ids)
        array = array if array.size else np.empty(array.shape, np.int64)
    except (TypeError, ValueError):
        raise BatchError(f"expected ids as an array of integers, got {type(ids).__name__}"
                         ) from None
    if array.dtype.kind not in "iu" or not array.ndim:
        raise BatchError(f"expected an array of integers of at most 64 bits, got {array.dtype} of "
                         f"shape {array.shape}: hotrow.torch.ids_of makes ids of strings")
    return np.ascontiguousarray(array if array.dtype == np.uint64 else
                                array.astype(np.int64).view(np.uint64))
