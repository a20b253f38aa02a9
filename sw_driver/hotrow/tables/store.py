"""The store that one process trains: open, rows, commit."""

import fcntl
import os
import zlib
from collections.abc import Sequence
from ctypes import byref, c_uint64
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..contract.errors import Error
from .manifest import numbers, read_manifest, replace, sync_folder, write_manifest
from .native_store import NativeStore
from .rows import Rows
from .table import ELEMENT_BYTES, Table, block_bytes, fitting, segment_blocks


class Store:
    """Rows of tables in a folder, locked until `close`; its last commit survives any kill.

    Parameters
    ----------
    path : str or Path
        A folder, made if it does not exist.
    tables : sequence of Table
    tail_bytes : int
        Memory for the last blocks of the log.
    segment_blocks : int, optional
        Blocks of a segment, of a new store; by default 64 MiB or a 128th of all rows, less where
        the tables are small.
    ring : bool
        Whether io_uring reads where the system allows it, else threads.

    Raises
    ------
    Error
        Another process has the store, it holds other tables, a file is damaged or cannot be
        written, or no block of memory or of a segment was asked for.
    """

    def __init__(self, path: str | Path, tables: Sequence[Table], tail_bytes: int = 64 << 20,
                 segment_blocks: int | None = None, ring: bool = True) -> None:
        if tail_bytes < 0 or (segment_blocks is not None and segment_blocks < 1):
            raise Error(f"expected tail_bytes from 0 and segment_blocks from 1, got {tail_bytes} "
                        f"and {segment_blocks}")
        if not tables or len({table.name for table in tables}) != len(tables):
            raise Error(f"expected tables of different names, got "
                        f"{[table.name for table in tables]}")
        self._folder, self._views = Path(path), list[Rows]()
        self._tables = {table.name: table for table in tables}
        self._folder.mkdir(parents=True, exist_ok=True)
        self._native = NativeStore(self._folder)
        self._lock = open(self._folder / "LOCK", "ab")  # noqa: SIM115
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise Error(f"the tables in {path} are trained by another process or store: close it, "
                        f"or name another folder") from None
        try:
            self._open(tail_bytes, segment_blocks, ring)
        except BaseException:
            self.close()
            raise

    def _open(self, tail_bytes: int, blocks: int | None, ring: bool) -> None:
        folder = self._folder
        for path in folder.glob("*.new"):
            path.unlink()
        known = numbers(folder)
        if not known and any(folder.glob("seg-*.log")):
            raise Error(f"the folder {folder} has segments and no commit-*.json: copy the manifest "
                        f"from where it is whole, or name an empty folder")
        if not known:
            tables = list(self._tables.values())
            size = block_bytes(tables)
            self._manifest: dict[str, Any] = {
                "format": 2, "store": os.urandom(16).hex(), "number": 0,
                "tables": [table.kept() for table in tables], "block_bytes": size,
                "segment_blocks": blocks or segment_blocks(tables, size), "next_segment": 1,
                "segments": [], "dense": None}
            write_manifest(folder, self._manifest)
        else:
            self._manifest = read_manifest(folder, known[-1])
        found = self._manifest
        self._compare(found["tables"])
        self._native.call(
            "open", os.fsencode(folder), bytes.fromhex(found["store"]), found["block_bytes"],
            found["segment_blocks"], tail_bytes, int.from_bytes(os.urandom(8)),
            found["next_segment"], found["number"] + 1, ring, True, byref(self._native.handle))
        self._numbers = {kept["name"]: at for at, kept in enumerate(found["tables"])}
        needed = sum(-(-table.rows // fitting(table.record, found["block_bytes"]))
                     for table in self._tables.values())
        for name in self._numbers:
            table = self._tables[name]
            self._native.call(
                "add", table.rows, table.row_bytes, table.memory_bytes, table.side_bytes,
                (needed * 9 // 4 + 2).bit_length(), table.seed & (1 << 64) - 1, table.bound,
                table.initial_state, table.dim, table.state_columns,
                list(ELEMENT_BYTES).index(table.dtype))
        named = {f"seg-{number:08d}.log" for number, *_ in found["segments"]}
        for number, nonce, count, live in found["segments"]:
            self._native.call("load", number, nonce, count, live)
        self._native.call("start")
        for path in folder.glob("seg-*.log"):
            if path.name not in named:
                path.unlink()

    def _compare(self, found: list[dict[str, Any]]) -> None:
        kept = {table["name"]: table for table in found}
        if kept.keys() != self._tables.keys():
            raise Error(f"the folder {self._folder} has tables {sorted(kept)}, and "
                        f"{sorted(self._tables)} were asked for")
        for name, table in self._tables.items():
            asked = table.kept()
            differing = [f"{key} is {kept[name].get(key)!r} and {asked.get(key)!r} was asked for"
                         for key in {**kept[name], **asked}
                         if kept[name].get(key) != asked.get(key)]
            if differing:
                raise Error(f"table {name!r} in {self._folder}: {'; '.join(differing)}: name "
                            f"another folder, or give the table these properties")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def number(self) -> int:
        """Of the last commit."""
        return int(self._manifest["number"])

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

    def commit(self, dense: bytes | None = None) -> int:
        """Make all appended rows, and `dense` with them, the state that survives: the number."""
        room, count = 4 * self.figures()["segments"], c_uint64()
        cut = np.empty(room, np.uint64)
        self._native.call("cut", cut.ctypes.data, room, byref(count))
        try:
            self._write(cut[:count.value].reshape(-1, 4), dense)
        except OSError as error:
            self._native.failure = (
                f"commit {self.number + 1} of the tables in {self._folder} could not be written: "
                f"{error}: make space or check the disk, and open the tables at their last commit")
            raise Error(self._native.failure) from error
        kept = np.ascontiguousarray(cut[:count.value:4])
        self._native.call("named", kept.ctypes.data, len(kept))
        return self.number

    def _write(self, segments: NDArray[np.uint64], dense: bytes | None) -> None:
        number = self.number + 1
        if dense is not None:
            replace(self._folder / f"commit-{number:012d}.dense", dense)
        following = 1 + max([self._manifest["next_segment"] - 1, *segments[:, 0].tolist()])
        manifest = {**self._manifest, "number": number, "next_segment": following,
                    "segments": segments.tolist(),
                    "dense": None if dense is None else [len(dense), zlib.crc32(dense)]}
        sync_folder(self._folder)
        write_manifest(self._folder, manifest)
        self._manifest = manifest
        for old in numbers(self._folder)[:-1]:
            for suffix in ("json", "dense"):
                (self._folder / f"commit-{old:012d}.{suffix}").unlink(missing_ok=True)
        sync_folder(self._folder)

    def dense(self) -> bytes | None:
        """What the last commit was given; raises Error if that is damaged."""
        if self._manifest["dense"] is None:
            return None
        path = self._folder / f"commit-{self.number:012d}.dense"
        found = path.read_bytes() if path.exists() else b""
        if [len(found), zlib.crc32(found)] != self._manifest["dense"]:
            raise Error(f"the file {path} is missing or damaged: copy it from where it is whole")
        return found

    def clean(self) -> None:
        """Move the live rows of segments that have few."""
        self._native.call("clean")

    def figures(self) -> dict[str, int]:
        """Counts since the opening, and the sizes of index and log.

        Returns
        -------
        dict
            `requests` to the disk and `rows_fetched` by tickets, `tail_hits` in memory;
            `bytes_written`, `bytes_trained` and `rows_moved` by cleaning; `index_bytes`,
            `log_blocks` in `segments`.
        """
        return self._native.figures()

    def close(self) -> None:
        """End without a commit; tickets end with it."""
        if os.getpid() != self._native.owner or self._lock.closed:
            return
        for view in self._views:
            view.end()
        self._native.close()
        fcntl.flock(self._lock, fcntl.LOCK_UN)
        self._lock.close()
