"""Embedding tables of one kind of row in host memory, or in files that are mapped there, in one
array that all of them share."""

import hashlib
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from ...contract.errors import Error
from ...kernels.drawing import draw_rows
from ...operands.results import RowList
from .rows import RowKind, Rows
from .table_file import FILE_ALIGNMENT, TableFile, copy_on_disk, mapped_rows

if TYPE_CHECKING:  # with the readers of click logs
    from ...traces.trace import Samples

ALIGNMENT = 16  # rows: each table, and its 4 bytes of state per row, starts on a 64-byte boundary
_CHUNK = 1 << 16  # rows of a digest's step: copies of their parts take little memory


class EmbeddingTables:
    """Weights, and optimizer state if there is any, of several tables.

    A *flat row* is a row's index in the shared arrays.

    Parameters
    ----------
    cardinalities : sequence of int
        Rows of each table.
    dim : int
        Elements of a row.
    initial_state : float, optional
        Value with which every row's state starts; None without state.
    state : str
        Whether state belongs to a "row" or to an "element", with `initial_state`.
    dtype : torch.dtype
    columns : int, optional
        As in `RowKind`.
    device : torch device
        "meta" for tables that number flat rows and have no contents.
    paths : sequence of str or None
        File of each table that lies in one.
    names : sequence of str, optional
        Of the tables, with `paths`.
    optimizer : str
        Name of the rule whose state the tables have, with `paths`.
    ids : sequence of str
        As in `TableFile`, of each table, with `paths`.

    Attributes
    ----------
    kind : RowKind
    rows : Rows
        By flat row.
    first : int64[T]
        Flat row of each table's row 0.
    files : list of TableFile or None
        Of each table.
    spans : int64[files, 2] or None
        First flat row, and the one after the last, of each table in a file; None without any.

    Raises
    ------
    Error
        A file cannot hold its table, as `TableFile` says.
    """

    def __init__(self, cardinalities: Iterable[int], dim: int, initial_state: float | None = None,
                 state: str | None = "row", dtype: torch.dtype = torch.float32,
                 device: str | torch.device = "cpu", columns: int | None = None,
                 paths: Sequence[str | os.PathLike[str] | None] = (), names: Sequence[str] = (),
                 optimizer: str = "", ids: Sequence[str] = ()):
        self.cardinalities, self.dim = tuple(cardinalities), dim
        self._initial_state = initial_state
        in_files = any(path is not None for path in paths)
        padded = self._padded(FILE_ALIGNMENT if in_files else ALIGNMENT)
        self.first = np.cumsum([0, *padded[:-1]])
        self.kind = RowKind(dim, None if initial_state is None else state, dtype, columns)
        self.files: list[TableFile | None] = [None] * len(padded)
        self.spans: torch.Tensor | None = None
        if in_files:
            self._open_files(paths, names, optimizer, ids or ["rows"] * len(padded), padded)
        else:
            self.rows = self.kind.allocate(sum(padded), device)
        if initial_state is not None and self.rows.state is not None:
            for number, count in enumerate(padded):
                if not self.has_contents(number):
                    first = self.first[number]
                    self.rows.state[first:first + count].fill_(initial_state)

    def _padded(self, alignment: int) -> list[int]:
        """Rows of each table, with those up to the next table: list of int."""
        return [-(-rows // alignment) * alignment for rows in self.cardinalities]

    def _open_files(self, paths: Sequence[str | os.PathLike[str] | None], names: Sequence[str],
                    optimizer: str, ids: Sequence[str], padded: Sequence[int]) -> None:
        try:
            for number, path in enumerate(paths):
                if path is not None:
                    self.files[number] = TableFile(path, names[number], self.cardinalities[number],
                                                   self.kind, optimizer, ids[number])
            self.rows, self.spans = self._mapped(padded)
        except BaseException:
            self.discard()
            raise

    def _mapped(self, padded: Sequence[int]) -> tuple[Rows, torch.Tensor]:
        """Rows of which some are in files, and `spans`."""
        return mapped_rows(self.kind, padded, self.files), torch.tensor([
            [first, first + count] for first, count, file in zip(
                self.first, padded, self.files, strict=True) if file is not None])

    def initialise(self, seed: int, numbers: Sequence[int] | None = None) -> "EmbeddingTables":
        """Draw the rows of each table, uniform in +-1/sqrt(rows), as DLRM starts its embeddings:
        `hotrow.ids.initial_rows` with the seed of the table; rows of a file that existed stay.

        Parameters
        ----------
        seed : int
        numbers : sequence of int, optional
            Of the tables: each is drawn with seed + its number.
        """
        for local, number in enumerate(range(self.count) if numbers is None else numbers):
            if not self.has_contents(local):
                rows = self.cardinalities[local]
                draw_rows(self.table(local)[0], seed + number, rows**-0.5)
        return self

    def whole_rows(self, flat: torch.Tensor) -> torch.Tensor:
        """Flat rows int64[n] as tables in memory number them."""
        if self.spans is None or len(self.first) == 1:
            return flat
        shift = np.cumsum([0, *self._padded(ALIGNMENT)[:-1]]) - self.first
        return flat + torch.from_numpy(shift[self.locate(flat).table])

    def has_contents(self, number: int) -> bool:
        """Whether a table is in a file whose rows have contents."""
        file = self.files[number]
        return file is not None and file.filled

    def filled(self) -> None:
        """Record that the rows of all files have contents."""
        for file in self._opened:
            file.fill()

    def check_owner(self) -> None:
        """Raise Error if the files are closed or belong to another process."""
        for file in self._opened:
            file.check_owner()

    def expect(self, scattered: bool) -> None:
        """As `TableFile.expect`, of all files."""
        for file in self._opened:
            file.expect(scattered)

    def contiguous(self, tensor: torch.Tensor) -> torch.Tensor:
        """A part of these tables as a contiguous tensor: itself, or a copy, of tables in files on
        the same disk."""
        if self.spans is None or tensor.is_contiguous():
            return tensor.contiguous()
        return copy_on_disk(tensor, os.path.dirname(self._opened[0].path))

    @property
    def _opened(self) -> list[TableFile]:
        return [file for file in self.files if file is not None]

    def close(self, complete: bool = True) -> None:
        """As `TableFile.close`, of all files; the first error is raised after the last."""
        failure = None
        for file in self._opened:
            try:
                file.close(complete)
            except Error as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def discard(self) -> None:
        """As `TableFile.discard`, of all files."""
        for file in self._opened:
            file.discard()

    def copy(self) -> "EmbeddingTables":
        """The same contents in arrays of their own."""
        twin = EmbeddingTables.__new__(EmbeddingTables)
        twin.cardinalities, twin.dim, twin.first = self.cardinalities, self.dim, self.first
        twin.kind, twin.rows = self.kind, self.kind.allocate(len(self.rows))
        twin._initial_state = self._initial_state
        twin.files, twin.spans = [None] * len(self.files), None
        twin.rows.put(slice(None), self.rows)
        return twin

    @property
    def count(self) -> int:
        """Number of tables."""
        return len(self.cardinalities)

    def table(self, number: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Views of one table: (weights [rows, dim], state or None)."""
        self.expect(scattered=False)
        return self.rows.read(self._span(number))

    def device_arrays(self, number: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Views of one table as a device carries it: (rows [rows, width], state [rows] or None)."""
        rows = self.rows.take(self.kind, self._span(number))
        return rows.array, rows.side

    def locate(self, flat: torch.Tensor) -> RowList:
        """Table and row of flat rows int64[n]: RowList."""
        numbers = flat.numpy()
        table = np.searchsorted(self.first, numbers, side="right") - 1
        row = numbers - self.first[table]
        return RowList(table.astype(np.uint32), row.astype(np.uint32))

    def flat(self, rows: RowList) -> torch.Tensor:
        """Flat rows int64[n] of a RowList."""
        return torch.from_numpy(
            self.first[rows.table.astype(np.int64)] + rows.row.astype(np.int64))

    def flat_rows(self, samples: "Samples") -> torch.Tensor:
        """Flat row of each lookup of Samples, in the order of the ids: int64[n]."""
        ids = samples.ids.astype(np.int64)
        if samples.lengths is None:
            return torch.from_numpy((ids + self.first).ravel())
        return torch.from_numpy(ids + self.first[samples.lookup_columns])

    def _span(self, number: int) -> slice:
        return slice(self.first[number], self.first[number] + self.cardinalities[number])

    def sha256(self) -> str:
        """Digest of all rows, table after table, then of all state."""
        parts = [self.table(number) for number in range(self.count)]
        return digest_of(each[part] for part in range(2) for each in parts)


def digest_of(tensors: Iterable[torch.Tensor | None]) -> str:
    """SHA-256 of the contents of tensors, without those that are None: str."""
    digest = hashlib.sha256()
    for tensor in tensors:
        for part in () if tensor is None else tensor.split(_CHUNK):
            digest.update(part.contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()
