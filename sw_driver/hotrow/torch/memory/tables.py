"""Embedding tables of one kind of row in host memory, in one array that all of them share."""

import hashlib
from itertools import pairwise

import numpy as np
import torch

from ...operands.results import RowList
from .rows import RowKind

ALIGNMENT = 16  # rows: each table, and its 4 bytes of state per row, starts on a 64-byte boundary


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

    Attributes
    ----------
    kind : RowKind
    rows : Rows
        By flat row.
    first : int64[T]
        Flat row of each table's row 0.
    """

    def __init__(self, cardinalities, dim, initial_state=None, state="row", dtype=torch.float32,
                 device="cpu", columns=None):
        self.cardinalities, self.dim = tuple(cardinalities), dim
        padded = [-(-rows // ALIGNMENT) * ALIGNMENT for rows in self.cardinalities]
        self.first = np.cumsum([0, *padded[:-1]])
        self.kind = RowKind(dim, None if initial_state is None else state, dtype, columns)
        self.rows = self.kind.allocate(sum(padded), device)
        if initial_state is not None:
            self.rows.state.fill_(initial_state)

    def initialise(self, generator):
        """Uniform in +-1/sqrt(rows), table after table, as DLRM starts its embeddings.

        Parameters
        ----------
        generator : torch.Generator or int
            Source of the numbers, or a seed.
        """
        if isinstance(generator, int):
            generator = torch.Generator().manual_seed(generator)
        ends = [*self.first, len(self.rows.weights)]
        for (start, end), rows in zip(pairwise(ends), self.cardinalities, strict=True):
            bound = rows**-0.5
            self.rows.weights[start:end].uniform_(-bound, bound, generator=generator)
        return self

    def copy(self):
        """The same contents in arrays of their own."""
        twin = EmbeddingTables.__new__(EmbeddingTables)
        twin.cardinalities, twin.dim, twin.first = self.cardinalities, self.dim, self.first
        twin.kind, twin.rows = self.kind, self.kind.allocate(len(self.rows))
        twin.rows.put(slice(None), self.rows)
        return twin

    @property
    def count(self):
        """Number of tables."""
        return len(self.cardinalities)

    def table(self, number):
        """Views of one table: (weights [rows, dim], state or None)."""
        return self.rows.read(self._span(number))

    def device_arrays(self, number):
        """Views of one table as a device carries it: (rows [rows, width], state [rows] or None)."""
        rows = self.rows.take(self.kind, self._span(number))
        return rows.array, rows.side

    def locate(self, flat):
        """Table and row of flat rows int64[n]: RowList."""
        flat = flat.numpy()
        table = np.searchsorted(self.first, flat, side="right") - 1
        row = flat - self.first[table]
        return RowList(table.astype(np.uint32), row.astype(np.uint32))

    def flat(self, rows):
        """Flat rows int64[n] of a RowList."""
        return torch.from_numpy(
            self.first[rows.table.astype(np.int64)] + rows.row.astype(np.int64))

    def flat_rows(self, samples):
        """Flat row of each lookup of Samples, in the order of the ids: int64[n]."""
        ids = samples.ids.astype(np.int64)
        if samples.lengths is None:
            return torch.from_numpy((ids + self.first).ravel())
        return torch.from_numpy(ids + self.first[samples.lookup_columns])

    def _span(self, number):
        return slice(self.first[number], self.first[number] + self.cardinalities[number])

    def sha256(self):
        """Digest of all rows, table after table, then of all state."""
        parts = [self.table(number) for number in range(self.count)]
        return digest_of(each[part] for part in range(2) for each in parts)


def digest_of(tensors):
    """SHA-256 of the contents of tensors, without those that are None: str."""
    digest = hashlib.sha256()
    for tensor in tensors:
        if tensor is not None:
            digest.update(tensor.contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()
