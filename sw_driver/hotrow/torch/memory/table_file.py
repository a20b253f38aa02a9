"""A table in a file: its header, its place on the disk, and the one process that may have it."""

import ctypes
import errno
import fcntl
import json
import mmap
import os
import shutil
import stat
import tempfile
import warnings
from collections.abc import Sequence
from io import FileIO
from itertools import accumulate

import numpy as np
import torch
from numpy.typing import NDArray

from ...contract.errors import Error
from .rows import RowKind, Rows

FILE_ALIGNMENT = mmap.PAGESIZE // 4  # rows: theirs, and their 4 bytes of state, fill whole pages
_FORMAT = "hotrow table 1"
_NORESERVE = 0x4000  # of mmap(2): memory is counted when it is written
_FIXED, _FAILED = 0x10, ctypes.c_void_p(-1).value
_NORMAL, _RANDOM = 0, 1  # of madvise(2)

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_int64]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class TableFile:
    """A file [header page | rows | state of each row], locked until `close`.

    The header is JSON that names the table, its rows and their layout. All blocks of the file are
    allocated before it is mapped: a write to mapped memory that finds no space on the disk would
    end the process.

    Parameters
    ----------
    path : str
        A file that exists keeps its rows; else one is made, whose rows the caller writes.
    table : str
        Name of the table.
    rows : int
    kind : RowKind
    optimizer : str
        Name of the rule whose state the file holds.
    ids : str
        "rows", or "any" for a table whose rows belong to the ids of a file beside it.

    Attributes
    ----------
    filled : bool
        Whether the rows have contents.
    complete : bool
        Whether its rows were those of one step when it was opened.
    closed : bool
        Whether another process may have the file.
    mapped : list of (int, int)
        Addresses of `map`, and bytes there.
    opening, before : str
        Drawn for this opening, and for the one whose close completed the file: a file beside it
        names the opening that wrote both.

    Raises
    ------
    Error
        Another process or table has the file, it holds another table, is no such file or
        incomplete, it cannot be written, or the disk has no space.
    """

    def __init__(self, path: str | os.PathLike[str], table: str, rows: int, kind: RowKind,
                 optimizer: str, ids: str = "rows"):
        self.path, self.table = os.path.abspath(path), table
        self._row_bytes = kind.width * kind.dtype.itemsize
        self._state_bytes = 4 * (kind.state == "row")
        self._lay_out(rows)
        self._header = {
            "format": _FORMAT, "table": table, "rows": rows, "dim": kind.dim,
            "dtype": str(kind.dtype).removeprefix("torch."), "elements": kind.width,
            "state": kind.state, "optimizer": optimizer, "page": mmap.PAGESIZE,
            "ids": ids}
        self.filled, self.closed, self._owner = False, False, os.getpid()
        self.mapped: list[tuple[int, int]] = []
        self._random = False  # as `expect`
        self._owns = False  # whether a file without contents may be removed
        self.complete = False
        self.opening, self.before = os.urandom(8).hex(), ""
        self._file = self._open()
        try:
            self._lock()
            self._read_header()
            self._allocate()
        except BaseException:
            self.discard()
            raise

    @property
    def owned(self) -> bool:
        """Whether this process has the file."""
        return not self.closed and os.getpid() == self._owner

    def _lay_out(self, rows: int) -> None:
        self._rows = rows
        self._padded = -(-rows // FILE_ALIGNMENT) * FILE_ALIGNMENT
        self._size = mmap.PAGESIZE + self._padded * (self._row_bytes + self._state_bytes)

    def map(self, rows: int, state: int | None = None) -> None:
        """Put the file's pages in place of memory that begins at addresses `rows` and `state`."""
        self.mapped = []
        parts = [(rows, mmap.PAGESIZE, self._padded * self._row_bytes)]
        if state is not None:
            parts.append((state, parts[0][1] + parts[0][2], self._padded * self._state_bytes))
        for address, offset, size in parts:
            found = _libc.mmap(address, size, mmap.PROT_READ | mmap.PROT_WRITE,
                               mmap.MAP_SHARED | _FIXED, self._file.fileno(), offset)
            if found == _FAILED:
                raise self._error(f"cannot be mapped: {os.strerror(ctypes.get_errno())}")
            self.mapped.append((address, size))
            if self._random:
                _libc.madvise(address, size, _RANDOM)

    def expect(self, scattered: bool) -> None:
        """Tell the system whether single rows are read, or the whole file from its begin."""
        if scattered != self._random:
            self._random = scattered
            for address, size in self.mapped:
                _libc.madvise(address, size, _RANDOM if scattered else _NORMAL)

    def fill(self) -> None:
        """Record that all rows have contents."""
        if not self.filled:
            self.filled = True
            self._write_header()

    def check_owner(self) -> None:
        """Raise Error in a process that was forked from the one that opened the file, or after
        `close`."""
        if os.getpid() != self._owner:
            raise self._error(f"belongs to process {self._owner}, and process {os.getpid()} was "
                              f"forked from it: both would train its rows; open the table after "
                              f"the fork, or with another path")
        if self.closed:
            raise Error("the collection is closed: it evaluates, and does not train")

    def close(self, complete: bool = True) -> None:
        """Write all pages to the disk, and let others have the file. The memory stays mapped.

        Parameters
        ----------
        complete : bool
            Whether the rows are those of one step.
        """
        if not self.owned:
            return
        self.closed = True
        try:
            if complete:
                os.fsync(self._file.fileno())
                self._write_header(closed=True)
                os.fsync(self._file.fileno())
        except OSError as error:
            raise self._error(f"may lack rows that were trained, because the disk refused them "
                              f"({error.strerror}): train again from the last checkpoint"
                              ) from error
        finally:
            self._release()

    def discard(self) -> None:
        """Let others have the file, in which nothing was trained; it is removed if its rows have
        no contents."""
        if not self.closed:
            self.closed = True
            if not self.filled and self._owns:
                os.unlink(self.path)
            elif self.complete:
                self.opening = self.before
                self._write_header(closed=True)
            self._release()

    def _release(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)  # which the mapped memory would keep
        self._file.close()

    def _open(self) -> FileIO:
        try:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            advice = {
                errno.ENOENT: "make its folder", errno.ENOTDIR: "its folder is a file",
                errno.EISDIR: "name a file in that folder",
            }.get(error.errno or 0, "training writes rows: name a file that this user may write")
            raise self._error(f"cannot be opened for writing ({error.strerror}): {advice}"
                              ) from error
        file = os.fdopen(handle, "r+b", buffering=0)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            file.close()
            raise self._error("is a device or a pipe: name a file")
        return file

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise self._error("is in use by another process or by another table, and a row has "
                              "one owner: close() the collection that has it, or name another "
                              "file") from None
        self._owns = True

    def _read_header(self) -> None:
        size = os.fstat(self._file.fileno()).st_size
        if not size:
            return
        self._owns = False
        try:
            found = json.loads(os.pread(self._file.fileno(), mmap.PAGESIZE, 0))
            known = found.get("format") == _FORMAT
        except (ValueError, AttributeError):
            known = False
        if not known:
            raise self._error("is no table of hotrow: name another file, or move this one away")
        if not found.get("filled"):  # the process that made it ended before
            self._owns = True
            os.ftruncate(self._file.fileno(), 0)
            return
        found.setdefault("ids", "any" if os.path.exists(self.path + ".ids") else "rows")
        differing = [f"{name} is {found.get(name)!r}, and the table's {value!r}"
                     for name, value in self._header.items() if found.get(name) != value]
        if differing:
            raise self._error(f"holds another table: {'; '.join(differing)}. Name another file, "
                              f"or give the table these properties")
        if found.get("growing") and size > self._size:  # the process that let it grow ended before
            os.ftruncate(self._file.fileno(), self._size)
            size = self._size
        if size != self._size:
            raise self._error(f"has {size} bytes, and its header promises {self._size}: it was "
                              f"cut or copied in part; copy it again, or load a checkpoint into "
                              f"another file")
        self.filled = True
        self.complete, self.before = bool(found.get("closed")), found.get("opening", "")
        if not self.complete:
            warnings.warn(f"the file {self.path} of table {self.table!r} was not closed by the "
                          f"process that trained it: its rows are of different steps. Load the "
                          f"last checkpoint, or go on with these rows", stacklevel=8)

    def _allocate(self, growing: bool = False) -> None:
        try:
            self._write_header(growing=growing)
            # All of it, also where a copy of the file has holes.
            os.posix_fallocate(self._file.fileno(), 0, self._size)
        except OSError as error:
            free = shutil.disk_usage(os.path.dirname(self.path)).free
            raise self._error(f"needs {self._size:,} bytes, and the disk has {free:,} free "
                              f"({error.strerror}): make space, or name a file on another disk"
                              ) from error

    def _write_header(self, closed: bool = False, growing: bool = False) -> None:
        header = json.dumps({**self._header, "filled": self.filled, "closed": closed,
                             "growing": growing, "opening": self.opening}) + "\n"
        os.pwrite(self._file.fileno(), header.ljust(mmap.PAGESIZE).encode(), 0)

    def _error(self, what: str) -> Error:
        return Error(f"the file {self.path} of table {self.table!r} {what}")


def mapped_rows(kind: RowKind, counts: Sequence[int], files: Sequence[TableFile | None]) -> Rows:
    """Rows of several tables, one after the other, those of files in the memory of these.

    Parameters
    ----------
    kind : RowKind
    counts : sequence of int
        Rows of each table, multiples of FILE_ALIGNMENT.
    files : sequence of TableFile or None
        Of each table; memory without a file is zero.

    Returns
    -------
    Rows
    """
    total, size = sum(counts), kind.width * kind.dtype.itemsize
    array = _reserved(total * size).reshape(total, size)
    side = _reserved(total * 4).view(np.float32) if kind.state == "row" else None
    for file, first in zip(files, accumulate(counts, initial=0), strict=False):
        if file is not None:
            file.map(array.ctypes.data + first * size,
                     None if side is None else side.ctypes.data + first * 4)
    return Rows.of(kind, torch.from_numpy(array).view(kind.dtype),
                   None if side is None else torch.from_numpy(side))


def copy_on_disk(tensor: torch.Tensor, folder: str) -> torch.Tensor:
    """A contiguous copy of a tensor, in an unnamed file of a folder that goes with the copy.

    Raises
    ------
    Error
        The disk has no space.
    """
    size = tensor.numel() * tensor.element_size()
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, size)
            memory = mmap.mmap(file.fileno(), size)
    except OSError as error:
        raise Error(f"a copy of a table in a file needs {size:,} bytes in {folder} "
                    f"({error.strerror}): make space there") from error
    copied = torch.from_numpy(np.frombuffer(memory, np.uint8)).view(tensor.dtype)
    return copied.view(tensor.shape).copy_(tensor)


def _reserved(size: int) -> NDArray[np.uint8]:
    """uint8[size] of zeros, of which a page is taken when it is first written."""
    try:
        memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE)
    except (OSError, ValueError) as error:
        raise Error(f"{size:,} bytes of addresses for tables in files are not to be had ({error}): "
                    f"raise the limit of this process's address space (ulimit -v)") from error
    return np.frombuffer(memory, np.uint8)
