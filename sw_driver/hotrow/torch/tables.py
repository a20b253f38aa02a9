"""Embedding tables of one width in host memory, as one array that all of them share."""

import hashlib
from itertools import pairwise

import numpy as np
import torch

from .rows import Rows

ALIGNMENT = 16  # rows: each table, and its 4 bytes of state per row, starts on a 64-byte boundary


class EmbeddingTables:
    """Weights, and optimizer state where there is any, of several tables.

    A *flat row* is a row's place in the shared arrays.

    Parameters
    ----------
    cardinalities : sequence of int
        Rows of each table.
    dim : int
        Elements of a row.
    initial_state : float, optional
        What every row's state starts as; without it there is none.

    Members
    -------
    rows : Rows
        By flat row.
    first : int64[T]
        Flat row of each table's row 0.
    """

    def __init__(self, cardinalities, dim, initial_state=None):
        self.cardinalities, self.dim = tuple(cardinalities), dim
        padded = [-(-rows // ALIGNMENT) * ALIGNMENT for rows in self.cardinalities]
        self.first = np.cumsum([0, *padded[:-1]])
        state = None
        if initial_state is not None:
            state = torch.full((sum(padded),), initial_state)
        self.rows = Rows(torch.empty(sum(padded), dim), state)

    def initialise(self, seed):
        """Uniform in +-1/sqrt(rows), table after table, as DLRM starts its embeddings."""
        generator = torch.Generator().manual_seed(seed)
        ends = [*self.first, len(self.rows.weights)]
        for (start, end), rows in zip(pairwise(ends), self.cardinalities, strict=True):
            bound = rows**-0.5
            self.rows.weights[start:end].uniform_(-bound, bound, generator=generator)
        return self

    def copy(self):
        """The same contents in arrays of their own."""
        twin = EmbeddingTables.__new__(EmbeddingTables)
        twin.cardinalities, twin.dim, twin.first = self.cardinalities, self.dim, self.first
        twin.rows = self.rows.copy()
        return twin

    @property
    def count(self):
        """Number of tables."""
        return len(self.cardinalities)

    def table(self, number):
        """Views of one table: (weights float32[rows, dim], state float32[rows] or None)."""
        span = slice(self.first[number], self.first[number] + self.cardinalities[number])
        return self.rows.read(span)

    def flat_rows(self, samples):
        """Flat row of each lookup, in the order of the ids: int64[n]."""
        ids = samples.ids.astype(np.int64)
        if samples.lengths is None:
            return torch.from_numpy((ids + self.first).ravel())
        return torch.from_numpy(ids + self.first[samples.lookup_columns])

    def sha256(self):
        """Digest of all rows, table after table, then of all state."""
        digest = hashlib.sha256()
        parts = [self.table(number) for number in range(self.count)]
        for weights, _ in parts:
            digest.update(weights.numpy().data)
        for _, state in parts:
            if state is not None:
                digest.update(state.numpy().data)
        return digest.hexdigest()
