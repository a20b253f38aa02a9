"""The store that one process trains: open, rows, commit."""

import fcntl
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from ..contract.errors import Error
from ..operands.integers import whole
from ..system.forks import ForkLock
from . import bases
from .commits import Commit, Commits
from .native_store import NativeStore
from .reader import Reader
from .rows import Rows
from .table import Table, block_bytes, segment_blocks


class Store:
    """Rows of tables in a folder, locked until `close`; its last commit survives any kill.

    Parameters
    ----------
    path : str or Path
        A folder, made if it does not exist.
    tables : sequence of Table
        A store that exists keeps the seeds and bounds of its own.
    tail_bytes : int
        Memory for the last blocks of the log.
    segment_blocks : int, optional
        Blocks of a segment, of a new store; by default 64 MiB or a 128th of all rows, less where
        the tables are small.
    ring : bool
        Whether io_uring reads where the system allows it, else threads.
    commit : int, optional
        Number of a commit to open, by default the last one; the next commit drops later ones.

    Raises
    ------
    Error
        Another process has the store, it holds other tables, a file is damaged or cannot be
        written, or no block of memory or of a segment was asked for.
    """

    def __init__(self, path: str | Path, tables: Sequence[Table], tail_bytes: int = 64 << 20,
                 segment_blocks: int | None = None, ring: bool = True,
                 commit: int | None = None) -> None:
        if tail_bytes < 0 or (segment_blocks is not None and segment_blocks < 1):
            raise Error(f"expected tail_bytes from 0 and segment_blocks from 1, got {tail_bytes} "
                        f"and {segment_blocks}")
        if not tables or len({table.name for table in tables}) != len(tables):
            raise Error(f"expected tables of different names, got "
                        f"{[table.name for table in tables]}")
        self._folder, self._views = Path(path).absolute(), list[Rows]()
        self._tail, self._ring, self._changing = tail_bytes, ring, ForkLock()
        self._tables = {table.name: table for table in tables}
        self._native = NativeStore(self._folder)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._lock = open(self._folder / "LOCK", "ab")  # noqa: SIM115
        except OSError as error:
            raise Error(f"the folder {path} cannot have tables: {error}: name another") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise Error(f"the tables in {path} are trained by another process or store: close it, "
                        f"or name another folder") from None
        try:
            self._start(commit, segment_blocks)
        except OSError as error:
            self.close()
            raise Error(f"the tables in {path} cannot be opened: {error}: make space or check the "
                        f"disk") from error
        except BaseException:
            self.close()
            raise

    def _start(self, commit: int | None, blocks: int | None) -> None:
        tables = list(self._tables.values())
        size = block_bytes(tables)
        first = {"format": 2, "store": os.urandom(16).hex(), "number": 0, "parent": None,
                 "step": 0, "keep": None, "kept": {}, "history_from": 0, "gaps": [],
                 "tables": [table.kept() for table in tables], "block_bytes": size,
                 "segment_blocks": blocks or segment_blocks(tables, size), "next_segment": 1,
                 "segments": [], "dense": None}
        self._commits = Commits(self._folder, first, commit)
        self._open()
        self._commits.tidy()
        self._remove_unneeded()
        self.reserve(0)

    def _open(self) -> None:
        found = self._commits.manifest
        self._compare(found["tables"])
        self._numbers = {kept["name"]: at for at, kept in enumerate(found["tables"])}
        self._native.open(found, self._tables, self._commits.greatest + 1, self._tail,
                          self._commits.next_segment(), self._ring, trains=True)
        self._native.name(*self._commits.named())

    def _compare(self, found: list[dict[str, Any]]) -> None:
        kept = {table["name"]: table for table in found}
        if kept.keys() != self._tables.keys():
            raise Error(f"the folder {self._folder} has tables {sorted(kept)}, and "
                        f"{sorted(self._tables)} were asked for")
        for name, table in list(self._tables.items()):
            have = kept[name]
            # A store that exists has drawn rows already: it keeps its seed.
            table = self._tables[name] = replace(table, seed=have["seed"], bound=have["bound"])
            asked = {"part": None, **table.kept()}
            differing = [f"{key} is {have.get(key)!r} and {value!r} was asked for"
                         for key, value in asked.items()
                         if key != "base" and have.get(key) != value]
            differing += filter(None, [bases.changed(have["base"], asked["base"])])
            if differing:
                raise Error(f"table {name!r} in {self._folder}: {'; '.join(differing)}: name "
                            f"another folder, or give the table these properties")
            for file, new in zip(have["base"].get("files", ()), asked["base"].get("files", ()),
                                 strict=True):
                file["path"] = new["path"]  # it may have moved

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def number(self) -> int:
        """Of the commit that is open; 0 before the first."""
        return int(self._commits.manifest["number"])

    def rows(self, names: Sequence[str], first: Sequence[int]) -> Rows:
        """Rows of tables of one kind by one number each.

        Parameters
        ----------
        names : sequence of str
        first : sequence of int
            Row r of table t is first[t] + r.
        """
        unknown = [name for name in names if name not in self._tables]
        if unknown or not names:
            raise Error(f"expected names of tables {sorted(self._tables)}, got {list(names)}")
        self._views.append(Rows(self._native, [self._tables[name] for name in names],
                                [self._numbers[name] for name in names], first))
        return self._views[-1]

    def commit(self, dense: bytes | None = None, step: int = 0, keep: str | None = None,
               hold: int | None = None) -> int:
        """Make all appended rows the state that survives.

        Parameters
        ----------
        dense : bytes, optional
            What `dense()` of the commit returns.
        step : int
            Of the trainer; `commits()` lists it.
        keep : str, optional
            A name: the commit stays until another one has the name, or `release(keep)`.
        hold : int, optional
            Number of a commit that exists, no later than the open one, which stays until the next
            call: of several stores that commit together, the last that all of them have.

        Returns
        -------
        int
            Number of the commit.

        Raises
        ------
        Error
            The disk refused: the last commit stands, and this store takes no more rows.
        """
        if keep is not None and (not isinstance(keep, str) or not keep):
            raise Error(f"expected a name for keep, or None, got {keep!r}")
        if dense is not None and not isinstance(dense, (bytes, bytearray, memoryview)):
            raise Error(f"expected dense as bytes, or None, got {type(dense).__name__}")
        dense = None if dense is None else bytes(dense)
        step, hold = whole(step, "step"), None if hold is None else whole(hold, "hold")
        if not 0 <= step < 1 << 64:
            raise Error(f"expected a step of 0 to 2^64 - 1, got {step}")
        if hold is not None and (hold > self.number or hold not in {
                each.number for each in self.commits()}):
            raise Error(f"expected a commit up to {self.number} for hold, got {hold}")
        with self._changing:
            self._check_folder()
            segments, history_from = self._native.cut(keep is not None)
            try:
                self._commits.write(segments, dense, step, keep, hold, history_from)
                self._native.name(*self._commits.named())
                self._remove_unneeded()
                self.reserve(0)
            except OSError as error:
                self._native.failure = (
                    f"commit {self._commits.greatest + 1} of the tables in {self._folder} could "
                    f"not be written: {error}: make space or check the disk, and open the tables "
                    f"at their last commit")
                raise Error(self._native.failure) from error
            return self.number

    def _check_folder(self) -> None:
        """Raise Error unless the folder is the one that was opened."""
        path = self._folder / "LOCK"
        self._check_locked()
        with suppress(OSError):
            if os.path.samestat(os.stat(path), os.fstat(self._lock.fileno())):
                return
        raise Error(f"{path} is not the file that was locked, so that the folder was moved or "
                    f"replaced, or another process may train it: put it back and commit again")

    def _check_locked(self) -> None:
        """Raise Error after `close`."""
        if self._lock.closed:
            raise Error(f"the tables in {self._folder} are closed: open them")

    def commits(self) -> list[Commit]:
        """The commits that exist, ascending: those that are kept, and the last one."""
        return self._commits.listed()

    def release(self, keep: str) -> None:
        """Let the commit of a name go, when it is neither the last one nor open.

        Raises
        ------
        Error
            No commit has the name, or its commit is open and not the last one.
        """
        with self._changing:
            self._native.check_process()
            self._check_locked()
            try:
                self._commits.release(keep)
                self._native.name(*self._commits.named())
                self._remove_unneeded()
            except OSError as error:
                raise Error(f"the commit {keep!r} of the tables in {self._folder} could not be "
                            f"released: {error}: make space or check the disk") from error

    def rollback(self, number: int) -> None:
        """Return to a commit that exists: rows are what they were then.

        Later commits are dropped by the next one.

        Raises
        ------
        Error
            There is no such commit, or a ticket has not ended.
        """
        with self._changing, self._native.alone():
            self._check_locked()
            if any(view.tickets for view in self._views):
                raise Error(f"the tables in {self._folder} have tickets that have not ended: "
                            f"finish or cancel them before rollback()")
            self._commits.open(number)
            self._native.close()
            self._native.failure = ""
            try:
                self._open()
                for view in self._views:
                    view.register()
                self._remove_unneeded()
                self.reserve(0)
            except BaseException:
                self._native.close()
                raise

    def dense(self) -> bytes | None:
        """What the open commit was given; raises Error if that is damaged."""
        return self._commits.dense()

    def _remove_unneeded(self) -> None:
        files = self._commits.unneeded()
        had = self._native.segments()  # after the files, of which one may be made meanwhile
        for number, path in files:
            if number not in had:
                path.unlink(missing_ok=True)

    def reserve(self, rows: int) -> None:
        """Hold space on the disk, which is used only where it is full: for a commit of so many
        rows that were not appended. The store holds that for those of a segment by itself.
        """
        self._native.call("reserve", rows)
        self._commits.reserve()

    def check_room(self) -> None:
        """Raise Error where the disk is full: the rows that are appended, and a commit, take what
        was held for that. After a commit that finds space again there is room again."""
        self._native.call("room")

    def verify(self) -> None:
        """Read all that the open commit has, and the files of the tables' bases.

        Raises
        ------
        Error
            With file and offset of what is damaged.
        """
        self.dense()
        for table in self._commits.manifest["tables"]:
            bases.verify(table["base"])
        with Reader(self._folder, self.number, self._ring) as reader:
            reader.verify()

    def clean(self) -> None:
        """Move the live rows of segments that have few."""
        self._native.call("clean")

    def figures(self) -> dict[str, Any]:
        """Counts since the opening, and the sizes of index and log.

        Returns
        -------
        dict
            `requests` to the disk and `rows_fetched` by tickets, `tail_hits` in memory;
            `bytes_written`, `bytes_trained` and `rows_moved` by cleaning; `wear`, the bytes written
            for each byte of trained rows, 0 before any; `index_bytes`, `log_blocks` in `segments`;
            `read_seconds`, of all reads one after the other: over the time that went by, how many
            were on their way at once.
        """
        found = self._native.figures()
        trained = found["bytes_trained"]
        return {**found, "wear": found["bytes_written"] / trained if trained else 0.0,
                "read_seconds": found.pop("read_nanoseconds") / 1e9}

    def close(self) -> None:
        """End without a commit; tickets end with it."""
        if os.getpid() != self._native.owner or self._lock.closed:
            return
        with self._changing, self._native.alone():
            for view in self._views:
                view.end()
            self._native.close()
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            self._lock.close()
