"""The interface of a trace: batches of ids, dense features and labels, by number."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..contract.errors import Error

Ids: TypeAlias = NDArray[np.uint32] | NDArray[np.int64]  # rows, or any ids


class TraceError(Error):
    """A trace that cannot be opened or read; the message names the place and a remedy."""


@dataclass(frozen=True)
class Samples:
    """Consecutive samples of a trace.

    Attributes
    ----------
    ids : uint32[B, T], or uint32[n] when `lengths` is given
        Row of each lookup; flat ids are ordered by sample, then by column. int64 where ids may be
        any.
    lengths : uint16[B, T] or None
        Ids per bag; None when every bag holds one id.
    dense : float32[B, D]
        Dense features, already scaled; D may be 0.
    label : float32[B] or None
        0 or 1.
    """

    ids: Ids
    lengths: NDArray[np.uint16] | None
    dense: NDArray[np.float32]
    label: NDArray[np.float32] | None

    def __len__(self) -> int:
        return len(self.dense)

    @property
    def nbytes(self) -> int:
        """Bytes of the ids and lengths."""
        return self.ids.nbytes + (0 if self.lengths is None else self.lengths.nbytes)

    @property
    def bag_lengths(self) -> NDArray[np.int64]:
        """int64[B * T]: ids per bag, sample-major."""
        if self.lengths is None:
            return np.ones(self.ids.size, np.int64)
        return self.lengths.astype(np.int64).ravel()

    @property
    def lookup_columns(self) -> NDArray[np.int64]:
        """int64[n]: the column of each id, in the order of the flat ids."""
        bags = self.bag_lengths
        columns = (self.ids if self.lengths is None else self.lengths).shape[1]
        return np.repeat(np.arange(len(bags)) % columns, bags)


class Trace(ABC):
    """A source of samples.

    Attributes
    ----------
    name : str
        The specification of the trace.
    columns : tuple of str
        Names of the id columns.
    cardinalities : tuple of int
        Rows of the table of each column; every id of the column is lower, unless ids may be any.
    dense_columns : int
    labelled : bool
    synthetic : bool
        Generated, not recorded.
    samples : int or None
        None for an endless trace.
    """

    name: str
    columns: tuple[str, ...]
    cardinalities: tuple[int, ...]
    dense_columns: int
    labelled: bool
    synthetic: bool
    samples: int | None

    @property
    def rows(self) -> int:
        """Rows of all tables together."""
        return sum(self.cardinalities)

    def batch_count(self, batch_size: int) -> int | None:
        """Batches in one pass, with a shorter last one; None for an endless trace."""
        return None if self.samples is None else -(-self.samples // batch_size)

    @abstractmethod
    def batch(self, index: int, batch_size: int) -> Samples:
        """Batch number `index` of the trace in batches of `batch_size` samples."""

    def batches(self, batch_size: int, count: int) -> Iterator[Samples]:
        """`count` batches from the start of the trace, which repeats after its end."""
        every = self.batch_count(batch_size)
        for index in range(count):
            yield self.batch(index if every is None else index % every, batch_size)


class StoredTrace(Trace):
    """A recorded trace held in memory.

    Parameters
    ----------
    name : str
    columns : sequence of str
    ids : uint32[N, T], or uint32[n] with `lengths`
        int64 where ids may be any.
    dense : float32[N, D]
    label : float32[N] or None
    lengths : uint16[N, T], optional
    cardinalities : sequence of int, optional
        Default: the largest id of each column plus one.
    """

    synthetic = False

    def __init__(self, name: str, columns: Iterable[str], ids: Ids,
                 dense: NDArray[np.float32], label: NDArray[np.float32] | None,
                 lengths: NDArray[np.uint16] | None = None,
                 cardinalities: Sequence[int] | None = None):
        self.name, self.columns = name, tuple(columns)
        self.samples, self.dense_columns = dense.shape
        self.labelled = label is not None
        self._ids, self._dense, self._label, self._lengths = ids, dense, label, lengths
        if lengths is not None:
            self._first = np.r_[0, np.cumsum(lengths.astype(np.int64).sum(axis=1))]
        self.cardinalities = tuple(cardinalities or self._largest_ids())

    def batch(self, index: int, batch_size: int) -> Samples:
        first = index * batch_size
        last = min(first + batch_size, len(self._dense))
        span = slice(first, last)
        ids, lengths = self._ids[span], None
        if self._lengths is not None:
            ids, lengths = self._ids[self._first[first]:self._first[last]], self._lengths[span]
        label = None if self._label is None else self._label[span]
        return Samples(ids, lengths, self._dense[span], label)

    def _largest_ids(self) -> Iterator[int]:
        if self._lengths is None:
            return (int(largest) + 1 for largest in self._ids.max(axis=0))
        column = np.repeat(np.tile(np.arange(len(self.columns)), len(self._dense)),
                           self._lengths.ravel())
        largest = np.zeros(len(self.columns), np.int64)
        np.maximum.at(largest, column, self._ids)
        return (int(number) + 1 for number in largest)


def check_most_rows(what: str, rows: int | None) -> None:
    """Raise TraceError unless a table can have so many rows."""
    if rows is not None and not 1 <= rows <= 1 << 32:
        raise TraceError(f"{what} is 1 to 2**32, the rows of a table, not {rows}")


def rows_for_any(ids: NDArray[np.int64], most: int) -> tuple[int, ...]:
    """Rows of a table for each column of ids int64[N, T]: one an id and the default row, at most
    `most`."""
    return tuple(min(most, len(np.unique(column)) + 1) for column in ids.T)


def by_first_appearance(values: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Number the distinct values from 0 in order of first appearance: uint32[N]."""
    _, first, group = np.unique(values, return_index=True, return_inverse=True)
    number = np.empty(len(first), np.uint32)
    number[np.argsort(first)] = np.arange(len(first), dtype=np.uint32)
    return number[group]
