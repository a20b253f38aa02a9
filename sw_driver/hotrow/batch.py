"""Batches of ids: dense, jagged, or as PyTorch and TorchRec hold them."""

import numpy as np

from .contract import BatchFlag
from .errors import BatchError
from .integers import integers, join, vector
from .memory import as_array

LONGEST_BAG = 0xFFFF  # ids; the device takes lengths as uint16


class Batch:
    """Ids of a batch, one column per table; use the constructors `dense`, `jagged`, ....

    Members
    -------
    ids : int32, uint32, int64 or uint64 [lookups]
        In the order in which the device reads them.
    lengths : uint16 [samples * table_count] or None
        Ids of each bag; one each when None.
    samples, table_count, lookups : int
    feature_major : bool
        All samples of the first column, then of the second, ...; else sample after sample.
    tables : tuple of (Table or str) or None
        One per column; all registered tables when None.
    """

    def __init__(self, ids, lengths, samples, table_count, tables, feature_major):
        self.ids, self.lengths = ids, lengths
        self.samples, self.table_count = samples, table_count
        self.tables = None if tables is None else tuple(tables)
        self.feature_major = feature_major
        if self.lookups == 0:
            raise BatchError(f"empty batch: no ids in {samples} samples of {table_count} columns")
        if self.lookups >= 1 << 32:
            raise BatchError(f"{self.lookups} ids in one batch: the limit is 2**32 - 1")

    @classmethod
    def dense(cls, ids, tables=None, feature_major=False):
        """One id per sample and table.

        Parameters
        ----------
        ids : integers [samples, tables], or [tables, samples] when `feature_major`
            32- and 64-bit ids in C order are used as they are.
        tables : sequence of Table or str, optional
        feature_major : bool
        """
        array = integers(ids, "ids")
        if array.size == 0:
            raise BatchError(f"empty batch: ids of shape {array.shape}")
        if array.ndim != 2:
            expected = "[tables, samples]" if feature_major else "[samples, tables]"
            raise BatchError(f"expected ids as {expected}, got an array of shape {array.shape}")
        shape = array.shape[::-1] if feature_major else array.shape
        return cls(array.reshape(-1), None, *shape, tables, feature_major)

    @classmethod
    def jagged(cls, ids, lengths, samples, tables=None, feature_major=False):
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
        ids, lengths = vector(ids, "ids"), vector(lengths, "lengths")
        if samples == 0:
            raise BatchError("empty batch: no samples")
        if samples < 0 or len(lengths) == 0 or len(lengths) % samples:
            raise BatchError(
                f"expected one length per sample and table, got {len(lengths)} lengths for "
                f"{samples} samples")
        columns = len(lengths) // samples
        wrong = np.flatnonzero((lengths < 0) | (lengths > LONGEST_BAG))
        if wrong.size:
            at = int(wrong[0])
            sample, column = (at % samples, at // samples) if feature_major else (
                at // columns, at % columns)
            raise BatchError(
                f"a bag holds 0 to {LONGEST_BAG} ids, not {lengths[at]} "
                f"(sample {sample}, column {column})", sample=sample, column=column)
        total = int(lengths.sum(dtype=np.int64))
        if total != len(ids):
            raise BatchError(
                f"the lengths of the bags sum to {total}, but there are {len(ids)} ids")
        return cls(ids, lengths.astype(np.uint16, copy=False), samples, columns, tables,
                   feature_major)

    @classmethod
    def from_offsets(cls, bags, tables=None, include_last_offset=False):
        """The inputs of one `torch.nn.EmbeddingBag` per table.

        Parameters
        ----------
        bags : sequence of (indices, offsets)
            One pair per table: indices [n], and offsets [samples], the place in `indices` at
            which each sample's bag starts.
        tables : sequence of Table or str, optional
        include_last_offset : bool
            As in `nn.EmbeddingBag`: offsets [samples + 1] with the end of the last bag.
        """
        ids, lengths = [], []
        for column, (indices, offsets) in enumerate(bags):
            indices = vector(indices, f"indices of column {column}")
            offsets = vector(offsets, f"offsets of column {column}").astype(np.int64)
            ends = offsets if include_last_offset else np.append(offsets, len(indices))
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
    def from_keyed_jagged(cls, values, lengths, keys, tables=None):
        """The parts of a TorchRec KeyedJaggedTensor.

        Parameters
        ----------
        values : integers [lookups]
            All ids of the first key, then of the second, ....
        lengths : integers [keys * samples]
        keys : sequence of str
            Names of the tables, unless `tables` gives the tables.
        """
        keys = list(keys)
        count = len(as_array(lengths))
        if not keys or count % len(keys):
            raise BatchError(f"{count} lengths cannot be shared out among {len(keys)} keys")
        return cls.jagged(values, lengths, count // len(keys), keys if tables is None else tables,
                          feature_major=True)

    @property
    def lookups(self) -> int:
        return len(self.ids)

    @property
    def flags(self) -> BatchFlag:
        """The layout, as the device is told."""
        flags = BatchFlag(0)
        if self.ids.itemsize == 8:
            flags |= BatchFlag.ID64
        if self.feature_major:
            flags |= BatchFlag.FEATURE_MAJOR
        if self.lengths is not None:
            flags |= BatchFlag.JAGGED
        return flags

    @property
    def column_lookups(self) -> np.ndarray:
        """Lookups of each column: int64[table_count]."""
        if self.lengths is None:
            return np.full(self.table_count, self.samples)
        shape, axis = (((self.table_count, self.samples), 1) if self.feature_major
                       else ((self.samples, self.table_count), 0))
        return self.lengths.reshape(shape).sum(axis, dtype=np.int64)

    def locate(self, position) -> tuple[int, int]:
        """Sample and column of the id at a position."""
        bag = position
        if self.lengths is not None:
            ends = np.cumsum(self.lengths, dtype=np.int64)
            bag = int(np.searchsorted(ends, position, side="right"))
        if self.feature_major:
            return bag % self.samples, bag // self.samples
        return bag // self.table_count, bag % self.table_count

    def check(self, tables):
        """Raise BatchError if an id is not a row of its table."""
        kind = np.dtype(f"u{self.ids.itemsize}")
        # Seen as unsigned, a negative id is larger than any row: one comparison finds both.
        largest = np.iinfo(self.ids.dtype).max
        last_row = np.array([min(table.rows - 1, largest) for table in tables], kind)
        if self.lengths is None:
            last_row = last_row[:, None] if self.feature_major else last_row[None]
            shape = (-1, self.samples) if self.feature_major else (-1, self.table_count)
            wrong = (self.ids.view(kind).reshape(shape) > last_row).reshape(-1)
        else:
            per_bag = (np.repeat(last_row, self.samples) if self.feature_major
                       else np.tile(last_row, self.samples))
            wrong = self.ids.view(kind) > np.repeat(per_bag, self.lengths)
        position = int(wrong.argmax())
        if wrong[position]:
            raise self.refusal(position, tables)

    def refusal(self, position, tables) -> BatchError:
        """The error that the id at a position deserves."""
        sample, column = self.locate(position)
        table, row = tables[column], int(self.ids[position])
        what = "negative" if row < 0 else "out of range"
        return BatchError(
            f"id {row} is {what}: table {table.number} ({table.name!r}) has rows 0 to "
            f"{table.rows - 1} (sample {sample}, column {column})",
            position=position, table=table.number, row=row, sample=sample, column=column)
