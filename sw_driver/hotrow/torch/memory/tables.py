"""Embedding tables of one kind of row, in one array of host memory that all of them share."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from ...contract.errors import Error
from ...kernels.drawing import draw_rows
from ...operands.results import RowList
from .disk_rows import DiskRows
from .rows import RowKind

ALIGNMENT = 16  # rows: each table, and its 4 bytes of state per row, starts on a 64-byte boundary
_CHUNK = 1 << 16  # rows of a digest's step: copies of their parts take little memory


def first_rows(cardinalities: Sequence[int], end: bool = False) -> NDArray[np.int64]:
    """Flat row of each table's row 0, and the one after all if `end`."""
    padded = [-(-rows // ALIGNMENT) * ALIGNMENT for rows in cardinalities]
    return np.cumsum([0, *padded] if end else [0, *padded[:-1]])


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
        "meta" for tables that number flat rows and have no contents in memory.

    Attributes
    ----------
    kind : RowKind
    rows : Rows
        By flat row.
    first : int64[T]
        Flat row of each table's row 0.
    disk : DiskRows or None
        The rows in a store on disk, of which `rows` is a copy, or has no contents.
    """

    def __init__(self, cardinalities: Iterable[int], dim: int, initial_state: float | None = None,
                 state: str | None = "row", dtype: torch.dtype = torch.float32,
                 device: str | torch.device = "cpu", columns: int | None = None):
        self.cardinalities, self.dim = tuple(cardinalities), dim
        *first, end = first_rows(self.cardinalities, end=True)
        self.first = np.array(first)
        self.kind = RowKind(dim, None if initial_state is None else state, dtype, columns)
        self.rows = self.kind.allocate(int(end), device)
        self._tables: dict[int, tuple[torch.Tensor, torch.Tensor | None]] = {}
        self.disk: DiskRows | None = None
        if self.in_memory:
            for begin, rows, after in zip(first, self.cardinalities, [*first[1:], end],
                                          strict=True):
                self.rows.array[begin + rows:after].zero_()  # between two tables
        if initial_state is not None and self.rows.state is not None:
            self.rows.state.fill_(initial_state)

    @property
    def in_memory(self) -> bool:
        """Whether `rows` has contents."""
        return self.rows.array.device.type != "meta"

    def initialise(self, seed: int, numbers: Sequence[int] | None = None) -> "EmbeddingTables":
        """Draw the rows of each table, uniform in +-1/sqrt(rows), as DLRM starts its embeddings:
        `hotrow.ids.initial_rows` with the seed of the table.

        Parameters
        ----------
        seed : int
        numbers : sequence of int, optional
            Of the tables: each is drawn with seed + its number.
        """
        for local, number in enumerate(range(self.count) if numbers is None else numbers):
            rows = self.cardinalities[local]
            draw_rows(self.table(local)[0], seed + number, rows**-0.5)
        return self

    def copy(self) -> "EmbeddingTables":
        """The same contents in arrays of their own."""
        twin = EmbeddingTables.__new__(EmbeddingTables)
        twin.cardinalities, twin.dim, twin.first = self.cardinalities, self.dim, self.first
        twin.kind, twin.rows = self.kind, self.kind.allocate(len(self.rows))
        twin.disk, twin._tables = None, {}
        twin.rows.put(slice(None), self.rows)
        return twin

    @property
    def count(self) -> int:
        """Number of tables."""
        return len(self.cardinalities)

    def table(self, number: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        """One table: (weights [rows, dim], state or None) on its memory, of which each is a storage
        of its own, as if it shared no array."""
        if not self.in_memory:
            raise Error("a table on disk is not in memory as a whole: look its rows up in eval(), "
                        "or read those of a commit with hotrow.tables.open(path)")
        if number not in self._tables:
            weights, state = self.rows.read(self._span(number))
            self._tables[number] = _alone(weights), None if state is None else _alone(state)
        return self._tables[number]

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

    def _span(self, number: int) -> slice:
        return slice(self.first[number], self.first[number] + self.cardinalities[number])

    def sha256(self) -> str:
        """Digest of all rows, table after table, then of all state."""
        return digest_of(each for part in range(2) for number in range(self.count)
                         for each in self.parts(number, part))

    def parts(self, number: int, part: int) -> Iterator[torch.Tensor | None]:
        """Weights (0) or state (1) of a table, in parts."""
        if self.in_memory or self.disk is None:
            yield self.table(number)[part]
            return
        span = self._span(number)
        for _, rows in self.disk.scan(int(span.start), int(span.stop - span.start)):
            yield (rows.weights, rows.state)[part]


def _alone(part: torch.Tensor) -> torch.Tensor:
    """The same elements as a tensor whose storage has no others before or after them."""
    begin = part.storage_offset()
    end = begin + 1 + sum((n - 1) * step for n, step in zip(part.shape, part.stride(), strict=True))
    storage = part.untyped_storage()[begin * part.itemsize:end * part.itemsize]
    alone = torch.empty(0, dtype=part.dtype, device=part.device)
    return alone.set_(storage, 0, part.shape, part.stride())


def digest_of(tensors: Iterable[torch.Tensor | None]) -> str:
    """SHA-256 of the contents of tensors, without those that are None: str."""
    digest = hashlib.sha256()
    for tensor in tensors:
        for part in () if tensor is None else tensor.split(_CHUNK):
            digest.update(part.contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()
