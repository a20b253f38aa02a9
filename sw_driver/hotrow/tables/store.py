"""The store that one process trains: open, begin, finish, append, commit."""

import ctypes
import fcntl
import os
import zlib
from ctypes import POINTER, byref, c_char_p, c_float, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..contract.errors import Error
from ..kernels import native
from .manifest import numbers, read_manifest, replace, sync_folder, write_manifest

_ARGUMENTS = {
    "tables_open": [c_char_p, c_char_p, c_char_p, c_uint32, c_uint32, c_uint64, c_uint64, c_uint64,
                    c_uint64, c_int32, c_int32, POINTER(c_void_p)],
    "tables_add": [c_char_p, c_void_p, c_uint64, c_uint32, c_uint32, c_int32, c_uint64, c_float,
                   c_float, c_int64, c_int32],
    "tables_load": [c_char_p, c_void_p, c_uint64, c_uint64, c_uint32, c_uint64],
    "tables_start": [c_char_p, c_void_p],
    "tables_begin": [c_char_p, c_void_p, c_void_p, c_void_p, c_uint64, POINTER(c_void_p)],
    "tables_finish": [c_char_p, c_void_p, c_void_p, c_void_p, c_int64, c_void_p, c_int64, c_void_p],
    "tables_append": [c_char_p, c_void_p, c_void_p, c_void_p, c_uint64, c_void_p, c_int64, c_void_p,
                      c_int64, c_void_p],
    "tables_cut": [c_char_p, c_void_p, c_void_p, c_uint64, POINTER(c_uint64)],
    "tables_named": [c_char_p, c_void_p, c_void_p, c_uint64],
    "tables_clean": [c_char_p, c_void_p],
    "tables_cancel": [c_char_p, c_void_p, c_void_p],
    "tables_figures": [c_char_p, c_void_p, c_void_p],
}
_FIGURES = ("requests", "rows_fetched", "tail_hits", "bytes_written", "bytes_trained",
            "rows_moved", "index_bytes", "log_blocks", "segments")
_ELEMENTS = {"float32": 0, "float16": 1, "bfloat16": 2}


@dataclass(frozen=True)
class Table:
    """A table whose rows start as `hotrow.ids.initial_rows([row], dim, seed, bound)`.

    Parameters
    ----------
    name : str
    rows, dim : int
    seed : int
    bound : float
    dtype : str
        "float32", "float16" or "bfloat16".
    state : bool
        Whether each row has one fp32 number of state.
    initial_state : float
    """

    name: str
    rows: int
    dim: int
    seed: int
    bound: float
    dtype: str = "float32"
    state: bool = False
    initial_state: float = 0.0

    def __post_init__(self) -> None:
        if not 1 <= self.rows < 1 << 32 or self.dim < 1 or self.dtype not in _ELEMENTS:
            raise Error(f"table {self.name!r}: expected 1 to 2^32 - 1 rows of at least one element "
                        f"of {', '.join(_ELEMENTS)}, got {self.rows} rows of {self.dim} elements "
                        f"of {self.dtype!r}")


class Store:
    """Rows of one table in a folder, locked until `close`; its last commit survives any kill.

    Parameters
    ----------
    path : str or Path
        A folder, made if it does not exist.
    table : Table
    tail_bytes : int
        Memory for the last blocks of the log.
    segment_blocks : int
        Blocks of a segment, of a new store.
    ring : bool
        Whether io_uring reads where the system allows it, else threads.

    Raises
    ------
    Error
        Another process has the store, it holds another table, a file is damaged or cannot be
        written, or no block of memory or of a segment was asked for.
    """

    def __init__(self, path: str | Path, table: Table, tail_bytes: int = 64 << 20,
                 segment_blocks: int = 16384, ring: bool = True) -> None:
        if tail_bytes < 0 or segment_blocks < 1:
            raise Error(f"expected tail_bytes from 0 and segment_blocks from 1, got {tail_bytes} "
                        f"and {segment_blocks}")
        self._folder, self._table, self._owner = Path(path), table, os.getpid()
        self._handle = c_void_p()
        self._tickets: set[int] = set()
        self._failure: str | None = None
        self._library = native.native_library()
        self._width = table.dim * (4 if table.dtype == "float32" else 2)
        self._folder.mkdir(parents=True, exist_ok=True)
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

    def _open(self, tail_bytes: int, segment_blocks: int, ring: bool) -> None:
        folder, table = self._folder, self._table
        for path in folder.glob("*.new"):
            path.unlink()
        known = numbers(folder)
        if not known and any(folder.glob("seg-*.log")):
            raise Error(f"the folder {folder} has segments and no commit-*.json: copy the manifest "
                        f"from where it is whole, or name an empty folder")
        if not known:
            record = self._width + 4 * table.state
            block = 4096 * -(-(record + 68) // 4096)
            self._manifest: dict[str, Any] = {
                "format": 2, "store": os.urandom(16).hex(), "number": 0, "table": asdict(table),
                "block_bytes": block, "segment_blocks": segment_blocks, "next_segment": 1,
                "segments": [], "dense": None}
            write_manifest(folder, self._manifest)
        else:
            self._manifest = read_manifest(folder, known[-1])
        found = self._manifest
        if found["table"] != asdict(table):
            raise Error(f"the tables in {folder} are {found['table']}, and {asdict(table)} was "
                        f"asked for")
        block = found["block_bytes"]
        blocks = int(2.25 * table.rows / max(1, (block - 64) // (self._width + 8))) + 2
        self._call("open", os.fsencode(folder), bytes.fromhex(found["store"]), block,
                   found["segment_blocks"], tail_bytes, int.from_bytes(os.urandom(8)),
                   found["next_segment"], found["number"] + 1, ring, True, byref(self._handle))
        self._call("add", self._handle, table.rows, self._width, 4 * table.state,
                   blocks.bit_length(), table.seed & (1 << 64) - 1, table.bound,
                   table.initial_state, table.dim, _ELEMENTS[table.dtype])
        named = {f"seg-{number:08d}.log" for number, *_ in found["segments"]}
        for number, nonce, count, live in found["segments"]:
            self._call("load", self._handle, number, nonce, count, live)
        self._call("start", self._handle)
        for path in folder.glob("seg-*.log"):
            if path.name not in named:
                path.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def number(self) -> int:
        """Of the last commit."""
        return int(self._manifest["number"])

    def begin(self, rows: ArrayLike) -> tuple[int, int]:
        """Begin to read rows, integers [n]: a ticket for one `finish`."""
        listed, ticket = self._rows(rows), c_void_p()
        zeros = np.zeros(len(listed), np.uint16)
        self._call("begin", self._handle, zeros.ctypes.data, listed.ctypes.data, len(listed),
                   byref(ticket))
        self._tickets.add(ticket.value or 0)
        return ticket.value or 0, len(listed)

    def finish(self, ticket: tuple[int, int], out: NDArray[Any],
               side: NDArray[np.float32] | None = None) -> None:
        """Write the rows of a ticket, as they are now, to the first rows of out and side."""
        self._check(out, ticket[1], side)
        self._take(ticket)
        self._call("finish", self._handle, ticket[0], out.ctypes.data, out.strides[0],
                   side.ctypes.data if side is not None else None, 4, None)

    def cancel(self, ticket: tuple[int, int]) -> None:
        """Give a ticket back in place of `finish`."""
        self._take(ticket)
        self._call("cancel", self._handle, ticket[0])

    def append(self, rows: ArrayLike, source: NDArray[Any],
               side: NDArray[np.float32] | None = None) -> None:
        """Write trained rows: source [n, dim] and side [n] are the newest from then on."""
        listed = self._rows(rows)
        self._check(source, len(listed), side)
        zeros = np.zeros(len(listed), np.uint16)
        self._call("append", self._handle, zeros.ctypes.data, listed.ctypes.data, len(listed),
                   source.ctypes.data, source.strides[0],
                   side.ctypes.data if side is not None else None, 4, None)

    def commit(self, dense: bytes | None = None) -> int:
        """Make all appended rows, and `dense` with them, the state that survives: the number."""
        room, count = 4 * self.figures()["segments"], c_uint64()
        cut = np.empty(room, np.uint64)
        self._call("cut", self._handle, cut.ctypes.data, room, byref(count))
        try:
            self._write(cut[:count.value].reshape(-1, 4), dense)
        except OSError as error:
            self._failure = (f"commit {self.number + 1} of the tables in {self._folder} could not "
                             f"be written: {error}: make space or check the disk, and open the "
                             f"tables at their last commit")
            raise Error(self._failure) from error
        kept = np.ascontiguousarray(cut[:count.value:4])
        self._call("named", self._handle, kept.ctypes.data, len(kept))
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
        self._call("clean", self._handle)

    def figures(self) -> dict[str, int]:
        """Counts since the opening, and the sizes of index and log.

        Returns
        -------
        dict
            `requests` to the disk and `rows_fetched` by tickets, `tail_hits` in memory;
            `bytes_written`, `bytes_trained` and `rows_moved` by cleaning; `index_bytes`,
            `log_blocks` in `segments`.
        """
        found = np.zeros(len(_FIGURES), np.uint64)
        self._call("figures", self._handle, found.ctypes.data)
        return dict(zip(_FIGURES, found.tolist(), strict=True))

    def close(self) -> None:
        """End without a commit; tickets end with it."""
        if os.getpid() != self._owner or self._lock.closed:
            return
        if self._handle:
            for ticket in self._tickets.copy():
                self.cancel((ticket, 0))
            self._library.tables_close(self._handle)
            self._handle = c_void_p()
        fcntl.flock(self._lock, fcntl.LOCK_UN)
        self._lock.close()

    def _take(self, ticket: tuple[int, int]) -> None:
        if ticket[0] not in self._tickets:
            raise Error(f"this ticket has ended, or is none of the tables in {self._folder}: call "
                        f"begin() for each finish() or cancel()")
        self._tickets.remove(ticket[0])

    def _rows(self, rows: ArrayLike) -> NDArray[np.uint32]:
        found = np.asarray(rows)
        if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
            raise Error(f"expected rows as integers [n], got {found.dtype} {list(found.shape)}")
        if found.size and not 0 <= found.min() <= found.max() < self._table.rows:
            raise Error(f"expected rows from 0 to {self._table.rows - 1}, got {found.min()} to "
                        f"{found.max()}")
        return np.ascontiguousarray(found, np.uint32)

    def _check(self, array: NDArray[Any], count: int, side: NDArray[np.float32] | None) -> None:
        bytes_of = array.shape[1] * array.itemsize if array.ndim == 2 else 0
        if (bytes_of != self._width or len(array) < count or array.strides[1] != array.itemsize
                or (side is not None) != self._table.state or (side is not None and (
                    side.dtype != np.float32 or side.strides != (4,) or len(side) < count))):
            raise Error(f"expected {count} rows of {self._width} contiguous bytes, and float32 "
                        f"state exactly where the table has it, got {array.dtype} "
                        f"{list(array.shape)}")

    def _call(self, name: str, *arguments: Any) -> None:
        if os.getpid() != self._owner:
            raise Error(f"the tables in {self._folder} belong to process {self._owner}: open them "
                        f"after the fork")
        if self._lock.closed or (name != "open" and not self._handle):
            raise Error(f"the tables in {self._folder} are closed: open them")
        if self._failure is not None and name in ("append", "cut"):
            raise Error(self._failure)
        function = getattr(self._library, f"tables_{name}")
        function.argtypes, function.restype = _ARGUMENTS[f"tables_{name}"], c_int64
        message = ctypes.create_string_buffer(1024)
        if function(message, *arguments) < 0:
            raise Error(message.value.decode(errors="replace"))
