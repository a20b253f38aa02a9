"""The compiled part of a store: its calls, and their errors."""

import ctypes
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from ctypes import (
    POINTER,
    byref,
    c_char_p,
    c_float,
    c_int32,
    c_int64,
    c_uint32,
    c_uint64,
    c_void_p,
)
from pathlib import Path
from threading import get_ident
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..contract.errors import Error
from ..kernels import native
from . import bases
from .table import Table, fitting

_ARGUMENTS: dict[str, list[Any]] = {
    "open": [c_char_p, c_char_p, c_uint32, c_uint32, c_uint64, c_uint64, c_uint64, c_uint64,
             c_uint64, c_int32, c_int32, POINTER(c_void_p)],
    "add": [c_void_p, c_uint64, c_uint32, c_uint32, c_uint32, c_int32, c_uint64, c_float, c_float,
            c_int64, c_int64, c_int32],
    "part": [c_void_p, c_uint64, c_uint64],
    "base": [c_void_p, c_char_p, c_uint64, c_uint64, c_uint64, c_int32, c_uint32, c_int64],
    "view": [c_void_p, c_void_p, c_void_p, c_uint64, POINTER(c_uint64)],
    "load": [c_void_p, c_uint64, c_uint64, c_uint32, c_uint64],
    "start": [c_void_p],
    "begin": [c_void_p, c_uint64, c_void_p, c_uint64, POINTER(c_void_p)],
    "finish": [c_void_p, c_void_p, c_void_p, c_int64, c_void_p],
    "append": [c_void_p, c_uint64, c_void_p, c_uint64, c_void_p, c_int64, c_void_p],
    "cut": [c_void_p, c_int32, POINTER(c_uint64)],
    "taken": [c_void_p, c_void_p],
    "named": [c_void_p, c_uint64, *[c_void_p, c_uint64] * 2],
    "segments": [c_void_p, c_void_p, c_uint64, POINTER(c_uint64)],
    "changed": [c_void_p, c_uint32, c_uint64, POINTER(c_uint64)],
    "taken_rows": [c_void_p, c_void_p],
    "verify": [c_void_p],
    "clean": [c_void_p],
    "reserve": [c_void_p, c_uint64],
    "room": [c_void_p],
    "cancel": [c_void_p, c_void_p],
    "figures": [c_void_p, c_void_p],
}
_FIGURES = ("requests", "rows_fetched", "tail_hits", "bytes_written", "bytes_trained",
            "rows_moved", "index_bytes", "log_blocks", "segments", "read_nanoseconds")


class NativeStore:
    """An open store of the compiled library, of one process."""

    def __init__(self, folder: Path):
        self.folder, self.handle = folder, c_void_p()
        self.owner, self.failure = os.getpid(), ""
        self._users, self._alone = set[int](), 0  # threads within `using`, and the one in `alone`
        self._library = native.native_library()

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the library.

        Raises
        ------
        Error
            It failed, the store is closed, or it belongs to the parent of this process.
        """
        self.check_process()
        with self.using():
            if name != "open":
                self.check_open()
            if self.failure and name in ("append", "cut"):
                raise Error(self.failure)
            function = getattr(self._library, f"tables_{name}")
            function.argtypes, function.restype = [c_char_p, *_ARGUMENTS[name]], c_int64
            message = ctypes.create_string_buffer(1024)
            first = () if name == "open" else (self.handle,)
            if function(message, *first, *arguments) < 0:
                raise Error(message.value.decode(errors="replace"))

    @contextmanager
    def using(self) -> Iterator[None]:
        """What a thread does here ends before another one is `alone`, else it raises Error."""
        me = get_ident()
        first = me not in self._users
        try:
            self._users.add(me)
            if self._alone not in (0, me):
                raise Error(f"the tables in {self.folder} are closed: open them")
            yield
        finally:
            if first:
                self._users.discard(me)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Close, or open again, without other threads; the caller has a lock."""
        self.check_process()
        try:
            self._alone = get_ident()
            while self._users - {self._alone}:
                time.sleep(0.001)
            yield
        finally:
            self._alone = 0

    def check_open(self) -> None:
        """Raise Error after `close`."""
        if not self.handle:
            raise Error(f"the tables in {self.folder} are closed: open them")

    def check_process(self) -> None:
        """Raise Error in a child of the process that opened the store."""
        if os.getpid() != self.owner:
            raise Error(f"the tables in {self.folder} belong to process {self.owner}: open them "
                        f"after the fork")

    def open(self, manifest: dict[str, Any], tables: Mapping[str, Table], epoch: int,
             tail: int = 0, next_segment: int = 0, ring: bool = True, trains: bool = False) -> None:
        """Open the rows of a commit, whose epoch is the number of the next one.

        Raises
        ------
        Error
            A file is missing or damaged: the store is closed.
        """
        try:
            self._open(manifest, tables, epoch, tail, next_segment, ring, trains)
        except BaseException:
            self.close()
            raise

    def _open(self, manifest: dict[str, Any], tables: Mapping[str, Table], epoch: int, tail: int,
              next_segment: int, ring: bool, trains: bool) -> None:
        block = manifest["block_bytes"]
        self.call("open", os.fsencode(self.folder), bytes.fromhex(manifest["store"]), block,
                  manifest["segment_blocks"], tail, int.from_bytes(os.urandom(8)), next_segment,
                  epoch, manifest["history_from"], ring, trains, byref(self.handle))
        ordered = [tables[kept["name"]] for kept in manifest["tables"]]
        needed = sum(-(-table.rows // fitting(table.record, block)) for table in ordered)
        for table, kept in zip(ordered, manifest["tables"], strict=True):
            self.call("add", table.rows, table.row_bytes, table.memory_bytes, table.side_bytes,
                      (needed * 9 // 4 + 2).bit_length(), table.seed & (1 << 64) - 1, table.bound,
                      table.initial_state, table.dim, table.state_columns,
                      bases.DTYPES.index(table.dtype))
            if table.part is not None:
                self.call("part", *table.part[:2])
            for file in kept["base"].get("files", ()):
                self.call("base", os.fsencode(file["path"]), file["rows"], file["offset"],
                          file["state"], bases.DTYPES.index(file["dtype"]),
                          file["row_bytes"], file["columns"])
        self.load(manifest)

    def load(self, manifest: dict[str, Any]) -> None:
        """Take what a commit has beyond the one that is open."""
        for segment in manifest["segments"]:
            self.call("load", *segment)
        self.call("start")

    def changed(self, table: int, since: int) -> NDArray[np.int64]:
        """Rows of a table whose newest copy is of an epoch after one, ascending."""
        count = c_uint64()
        self.call("changed", table, since, byref(count))
        found = np.empty(count.value, np.uint32)
        self.call("taken_rows", found.ctypes.data)
        return found.astype(np.int64)

    def cut(self, keep: bool) -> tuple[list[list[int]], int]:
        """End the epoch for a commit that is kept or not, and force all rows to the disk: number,
        nonce, blocks and newest rows of each segment of the commit, and the first commit after
        which epochs are apart."""
        count = c_uint64()
        self.call("cut", keep, byref(count))
        taken = np.empty(count.value, np.uint64)
        self.call("taken", taken.ctypes.data)
        found: list[list[int]] = taken[:-1].reshape(-1, 4).tolist()
        return found, int(taken[-1])

    def segments(self) -> set[int]:
        """Numbers of the segments whose files the store has."""
        count, found = c_uint64(), np.empty(512, np.uint64)
        self.call("segments", found.ctypes.data, len(found), byref(count))
        while count.value > len(found):
            found = np.empty(2 * count.value, np.uint64)
            self.call("segments", found.ctypes.data, len(found), byref(count))
        return set(found[:count.value].tolist())

    def name(self, commit: int, last: Iterable[int], kept: Iterable[int]) -> None:
        """Say which commit is open, which segments it or the last one has, and which those have
        that are kept."""
        lists = [np.array(sorted(each), np.uint64) for each in (last, kept)]
        self.call("named", commit,
                  *(value for each in lists for value in (each.ctypes.data, len(each))))

    def figures(self) -> dict[str, int]:
        """Counts since the opening, and the sizes of index and log."""
        found = np.zeros(len(_FIGURES), np.uint64)
        self.call("figures", found.ctypes.data)
        return dict(zip(_FIGURES, found.tolist(), strict=True))

    def close(self) -> None:
        """End the threads and free the memory; no ticket may be open."""
        if self.handle and os.getpid() == self.owner:
            self._library.tables_close.argtypes = [c_void_p]
            self._library.tables_close(self.handle)
            self.handle = c_void_p()
