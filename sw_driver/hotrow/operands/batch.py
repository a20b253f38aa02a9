"""Batches of ids: dense, jagged, or as PyTorch and TorchRec hold them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..contract.errors import BatchError
from ..contract.generated import BatchFlag
from ..contract.geometry import Geometry
from .integers import Integers, integers, join, vector, whole

if TYPE_CHECKING:
    from .table import Table

_ID64, _FEATURE_MAJOR, _JAGGED = map(int, (
    BatchFlag.ID64, BatchFlag.FEATURE_MAJOR, BatchFlag.JAGGED))
LONGEST_BAG = 0xFFFF  # ids; the device takes lengths as uint16


class Batch:
    """Ids of a batch, one column per table; made by `dense`, `jagged` and the other constructors.

    Attributes
    ----------
    ids : int32, uint32, int64 or uint64 [lookups]
        In the order in which the device reads them, of the caller's type.
    lengths : uint16 [samples * table_count] or None
        Ids of each bag; one each when None.
    samples, table_count, lookups : int
    feature_major : bool
        All samples of the first column, then of the second, ...; else sample after sample.
    tables : tuple of (Table or str) or None
        One per column; all registered tables when None.
    fits : Geometry or None
        The card that takes as many samples and lookups, if that is known.
    checked : tuple of int
        Rows of the tables of which all ids are known to be rows; empty if nobody has checked them.
    """

    def __init__(self, ids: Integers, lengths: NDArray[np.uint16] | None, samples: int,
                 table_count: int, tables: Sequence[Table | str] | None, feature_major: bool):
        self.ids, self.lengths = ids, lengths
        self.samples, self.table_count = samples, table_count
        self.tables = None if tables is None else tuple(tables)
        self.feature_major = bool(feature_major)
        self.checked: tuple[int, ...] = ()
        self.fits: Geometry | None = None
        if self.lookups == 0:
            raise BatchError(f"empty batch: no ids in {samples} samples of {table_count} columns")
        if self.lookups >= 1 << 32:
            raise BatchError(f"{self.lookups} ids in one batch: the limit is 2**32 - 1")

    @classmethod
    def dense(cls, ids: ArrayLike, tables: Sequence[Table | str] | None = None,
              feature_major: bool = False) -> Batch:
        """One id per sample and table.

        Parameters
        ----------
        ids : integers [samples, tables], or [tables, samples] when `feature_major`
            32- and 64-bit ids in C order are used without conversion.
        tables : sequence of Table or str, optional
        feature_major : bool
        """
        array = integers(ids, "ids")
        if array.size == 0:
            raise BatchError(f"empty batch: ids of shape {array.shape}")
        if array.ndim != 2:
            expected = "[tables, samples]" if feature_major else "[samples, tables]"
            raise BatchError(f"expected ids as {expected}, got an array of shape {array.shape}")
        samples, columns = array.shape[::-1] if feature_major else array.shape
        return cls(array.reshape(-1), None, samples, columns, tables, feature_major)

    @classmethod
    def jagged(cls, ids: ArrayLike, lengths: ArrayLike, samples: int,
               tables: Sequence[Table | str] | None = None, feature_major: bool = False) -> Batch:
        """A bag of any length, empty ones included, per sample and table.

        Parameters
        ----------
        ids : integers [lookups]
            Bag after bag.
        lengths : integers [samples * tables]
            Ids of each bag, at most 65535, in the order of the bags.
        samples : int
        tables : sequence of Table or str, optional
        feature_major : bool
            Whether all bags of the first table come first; else all bags of the first sample.
        """
        flat, bags = vector(ids, "ids"), vector(lengths, "lengths")
        samples = whole(samples, "samples")
        if samples == 0:
            raise BatchError("empty batch: no samples")
        if samples < 0 or len(bags) == 0 or len(bags) % samples:
            raise BatchError(
                f"expected one length per sample and table, got {len(bags)} lengths for "
                f"{samples} samples")
        columns = len(bags) // samples
        wrong = np.flatnonzero((bags < 0) | (bags > LONGEST_BAG))
        if wrong.size:
            at = int(wrong[0])
            sample, column = (at % samples, at // samples) if feature_major else (
                at // columns, at % columns)
            raise BatchError(
                f"a bag holds 0 to {LONGEST_BAG} ids, not {bags[at]} "
                f"(sample {sample}, column {column})", sample=sample, column=column)
        total = int(bags.sum(dtype=np.int64))
        if total != len(flat):
            raise BatchError(
                f"the lengths of the bags sum to {total}, but there are {len(flat)} ids")
        return cls(flat, bags.astype(np.uint16, copy=False), samples, columns, tables,
                   feature_major)

    @classmethod
    def from_offsets(cls, bags: Sequence[tuple[ArrayLike, ArrayLike]],
                     tables: Sequence[Table | str] | None = None,
                     include_last_offset: bool = False) -> Batch:
        """The inputs of one `torch.nn.EmbeddingBag` per table.

        Parameters
        ----------
        bags : sequence of (indices, offsets)
            One pair per table: indices [n], and offsets [samples], the place in `indices` where
            the bag of each sample starts.
        tables : sequence of Table or str, optional
        include_last_offset : bool
            As in `nn.EmbeddingBag`: offsets [samples + 1] with the end of the last bag.
        """
        ids, lengths = [], []
        for column, (given, offsets) in enumerate(bags):
            indices = vector(given, f"indices of column {column}")
            ends = vector(offsets, f"offsets of column {column}").astype(np.int64)
            if not include_last_offset:
                ends = np.append(ends, len(indices))
            bags_fit = len(ends) > 1 and ends[0] == 0 and ends[-1] == len(indices)
            if not bags_fit or (np.diff(ends) < 0).any():
                raise BatchError(
                    f"the offsets of column {column} must start at 0, not decrease, and end "
                    f"within its {len(indices)} indices", column=column)
            ids.append(indices)
            lengths.append(np.diff(ends))
        samples = {len(each) for each in lengths}
        if len(samples) != 1:
            raise BatchError(
                f"every table needs the same number of bags, got "
                f"{', '.join(str(len(each)) for each in lengths) or 'no table'}")
        return cls.jagged(join(ids), np.concatenate(lengths), samples.pop(), tables,
                          feature_major=True)

    @classmethod
    def from_keyed_jagged(cls, values: ArrayLike, lengths: ArrayLike, keys: Sequence[str],
                          tables: Sequence[Table | str] | None = None) -> Batch:
        """The parts of a TorchRec KeyedJaggedTensor.

        Parameters
        ----------
        values : integers [lookups]
            All ids of the first key, then of the second, ...
        lengths : integers [keys * samples]
        keys : sequence of str
            Names of the tables, unless `tables` gives the tables.
        """
        keys = list(keys)
        bags = vector(lengths, "lengths")
        count = len(bags)
        if not keys or count % len(keys):
            raise BatchError(f"{count} lengths cannot be shared out among {len(keys)} keys")
        return cls.jagged(values, bags, count // len(keys), keys if tables is None else tables,
                          feature_major=True)

    @property
    def lookups(self) -> int:
        """Ids of the batch."""
        return len(self.ids)

    @property
    def flags(self) -> int:
        """The layout as flags of a command."""
        return (_ID64 * (self.ids.itemsize == 8) | _FEATURE_MAJOR * self.feature_major
                | _JAGGED * (self.lengths is not None))

    def locate(self, position: int) -> tuple[int, int]:
        """Sample and column of the id at a position."""
        bag = position
        if self.lengths is not None:
            ends = np.cumsum(self.lengths, dtype=np.int64)
            bag = int(np.searchsorted(ends, position, side="right"))
        if self.feature_major:
            return bag % self.samples, bag // self.samples
        return bag // self.table_count, bag % self.table_count

    def check(self, tables: Sequence[Table]) -> None:
        """Raise BatchError if an id is not a row of its table; ids are checked once."""
        rows = tuple(table.rows for table in tables)
        if rows == self.checked:
            return
        kind = np.dtype(f"u{self.ids.itemsize}")
        # Seen as unsigned, a negative id is larger than any row: one comparison finds both.
        ids, largest = self.ids.view(kind), np.iinfo(self.ids.dtype).max
        last_row = np.array([min(count - 1, largest) for count in rows], kind)
        if ids.max() > last_row.min():
            wrong = ids > self._per_id(last_row)
            position = int(wrong.argmax())
            if wrong[position]:
                raise self.refusal(position, tables)
        self.checked = rows

    def _per_id(self,
                columns: NDArray[np.unsignedinteger[Any]]) -> NDArray[np.unsignedinteger[Any]]:
        """A value of each column, repeated for each id."""
        samples = self.samples
        per_bag = np.repeat(columns, samples) if self.feature_major else np.tile(columns, samples)
        return per_bag if self.lengths is None else np.repeat(per_bag, self.lengths)

    def refusal(self, position: int, tables: Sequence[Table]) -> BatchError:
        """The error about the id at a position."""
        sample, column = self.locate(position)
        table, row = tables[column], int(self.ids[position])
        what = "negative" if row < 0 else "out of range"
        return BatchError(
            f"id {row} is {what}: table {table.number} ({table.name!r}) has rows 0 to "
            f"{table.rows - 1} (sample {sample}, column {column})",
            position=position, table=table.number, row=row, sample=sample, column=column)
