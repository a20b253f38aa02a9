"""Bags of ids, feature after feature: the one form of what callers look up."""

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch.nn import functional

from ...contract.errors import BatchError
from ...kernels.ids import flatten_ids
from ...operands.batch import Batch
from ...operands.table import Table
from ...system.forks import cached_property
from .configs import TableConfig
from .inputs import integers, is_keyed, keyed_parts, lengths_of, paired_parts, weights_of


@dataclass(frozen=True, eq=False)
class Bags:
    """Bags of ids for some tables.

    Parameters
    ----------
    tables : tuple of int
        Number of the table of each feature.
    ids : int32[n] or int64[n]
        All bags of the first feature, then of the second, ....
    lengths : int64[features * samples]
        Ids of each bag.
    weights : float32[n], optional
        Weight of each lookup.
    """

    tables: tuple[int, ...]
    ids: torch.Tensor
    lengths: torch.Tensor
    weights: torch.Tensor | None = None

    @classmethod
    def of(cls, tables: Iterable[int], inputs: object, offsets: object = None,
           weights: object = None, names: Sequence[str] = (), padding: int | None = None,
           include_last_offset: bool = True, is_weighted: bool = False) -> "Bags":
        """Convert what PyTorch users pass.

        Parameters
        ----------
        tables : sequence of int
        inputs
            Ids [samples, features], one each; a sequence of (indices, offsets) or (indices,
            offsets, weights), one per feature; with `offsets`, indices [n] of all features;
            or a KeyedJaggedTensor.
        offsets : integers [features * samples + 1], optional
            First lookup of each bag, feature after feature, and the end of the last bag.
        weights : float32[n], optional
        names : sequence of str
            Names of the features in a KeyedJaggedTensor.
        padding : int, optional
            An id that is not looked up.
        include_last_offset : bool
            Whether `offsets` holds the end of the last bag; the offsets of pairs never do.
        is_weighted : bool
            Whether the weights of a KeyedJaggedTensor are used, as in TorchRec.

        Raises
        ------
        BatchError
        """
        if isinstance(inputs, cls):
            return inputs
        tables = tuple(tables)
        if ((is_keyed(inputs) or isinstance(inputs, (list, tuple)))
                and not (offsets is None and weights is None)):
            raise BatchError("offsets and weights belong to ids in one tensor: give pairs as "
                             "(indices, offsets, weights), and weights of a KeyedJaggedTensor with "
                             "it, and is_weighted=True")
        if is_keyed(inputs):
            keys, ids, lengths, given = keyed_parts(inputs, names, is_weighted)
            bags: Bags
            order = None
            if keys != [*names] or len({*keys}) < len(keys):
                places = {name: place for place, name in enumerate(keys)}  # the last of equal keys
                order = [places[name] for name in names]
            if lengths is None:
                bags = _grid(tables, ids.view(len(keys), -1),
                             None if given is None else given.view(len(keys), -1), order)
            else:
                bags = cls(tables, ids, lengths, given)
                if order is not None:
                    bags = replace(replace(bags, tables=tuple(range(len(keys)))).columns(order),
                                   tables=tables)
        elif isinstance(inputs, (list, tuple)):
            bags = cls(tables, *paired_parts(len(tables), inputs))
        elif offsets is not None:
            ids = integers(inputs, "indices")
            bags = cls(tables, ids, lengths_of(offsets, len(ids), len(tables), include_last_offset),
                       weights_of(weights))
        else:
            ids = integers(inputs, "ids", dimensions=2)
            if ids.shape[1] != len(tables):
                raise BatchError(f"expected ids as [samples, {len(tables)} features], got "
                                 f"{list(ids.shape)}")
            weights = weights_of(weights)
            if weights is not None and weights.shape != ids.shape:
                raise BatchError(f"expected weights of shape {list(ids.shape)}, as the ids, got "
                                 f"{list(weights.shape)}")
            bags = GridBags(tables, ids, None if weights is None else weights.T.reshape(-1))
        if bags.weights is not None and bags.weights.shape != (bags.lookups,):
            raise BatchError(f"expected a weight for each of {bags.lookups} lookups, got shape "
                             f"{list(bags.weights.shape)}")
        return bags if padding is None else bags._without_padding(padding)

    @property
    def features(self) -> int:
        return len(self.tables)

    @property
    def lookups(self) -> int:
        return self.ids.shape[0]

    @property
    def samples(self) -> int:
        return self.lengths.shape[0] // max(1, len(self.tables))

    @property
    def dense(self) -> bool:
        """Whether the caller gave one id for each bag."""
        lengths = self.lengths
        return lengths.shape[0] > 0 and not lengths.stride(0)

    @cached_property
    def counts(self) -> list[int]:
        """Lookups of each feature."""
        if self.dense:
            return [self.samples] * self.features
        return self.lengths.view(self.features, self.samples).sum(1).tolist()

    def equals(self, other: "Bags") -> bool:
        """Whether other Bags look up the same, weights aside."""
        return (self.tables == other.tables and torch.equal(self.lengths, other.lengths)
                and (torch.equal(self.ids, other.ids) if self.ids.dtype == other.ids.dtype
                     else bool((self.ids == other.ids).all())))

    def snapshot(self) -> "Bags":
        """The same Bags in memory that the caller cannot change."""
        return replace(self, ids=self.ids.clone(),
                       lengths=self.lengths.clone() if self.lengths.stride(0) else self.lengths)

    def columns(self, order: Sequence[int]) -> "Bags":
        """Some features, in the given order: Bags."""
        if list(order) == list(range(self.features)):
            return self
        ids, lengths = self.ids.split(self.counts), self.lengths.view(self.features, self.samples)
        return Bags(tuple(self.tables[each] for each in order),
                    torch.cat([ids[each] for each in order]),
                    torch.cat([lengths[each] for each in order]), self.weights_in(order))

    def weights_in(self, order: Sequence[int]) -> torch.Tensor | None:
        """Weights of the lookups of some features, in the given order: float32[n] or None."""
        if self.weights is None or list(order) == list(range(self.features)):
            return self.weights
        weights = self.weights.split(self.counts)
        return torch.cat([weights[each] for each in order])

    def rows(self, samples: torch.Tensor) -> "Bags":
        """Some samples int64[k], in the given order: Bags."""
        chosen = (torch.arange(self.features)[:, None] * self.samples + samples).ravel()
        lookups = lookups_of(self.lengths, chosen)
        return Bags(self.tables, self.ids[lookups], self.lengths[chosen],
                    None if self.weights is None else self.weights[lookups])

    def with_rows(self, rows: Iterable[torch.Tensor | None]) -> "Bags":
        """These Bags with rows int64[n] of each feature in place of its ids; None keeps them."""
        ids = zip(self.ids.split(self.counts), rows, strict=True)
        return Bags(self.tables, torch.cat([own.long() if new is None else new
                                            for own, new in ids]), self.lengths, self.weights)

    def grouped(self, order: Sequence[int], rows: torch.Tensor) -> "Bags | None":
        """Some features, in the given order, without weights, in memory that no caller has.

        Parameters
        ----------
        order : sequence of int
        rows : int64[features]
            Of their tables, in that order. Ids are int32 if those of all tables are.

        Returns
        -------
        Bags, or None if an id is no row of its table
        """
        narrow = not self.features or int(rows.max()) <= NARROW
        ids, wrong = self._flat(order, rows, torch.int32 if narrow else torch.int64)
        if wrong >= 0:
            return None
        lengths = self.lengths
        if lengths.stride(0) and list(order) != list(range(self.features)):
            lengths = lengths.view(self.features, self.samples)[list(order)].view(-1)
        return Bags(tuple(map(self.tables.__getitem__, order)), ids, lengths)

    def _flat(self, order: Sequence[int], rows: torch.Tensor,
              dtype: torch.dtype) -> tuple[torch.Tensor, int]:
        return flatten_ids(self.ids, rows, counts=torch.tensor(self.counts, dtype=torch.int64),
                           dtype=dtype, order=order)

    def bounded(self, configs: Sequence[TableConfig], batch: str, mode: str) -> "Bags":
        """These Bags, of which an id is no row of its table, with row 0 in its place.

        Parameters
        ----------
        configs : sequence of TableConfig
        batch : str
            The batch in words, for errors.
        mode : str
            As FBGEMM's BoundsCheckMode: "fatal" raises, "warning" warns, "ignore" does neither.

        Raises
        ------
        BatchError
        """
        rows = torch.tensor([configs[table].num_embeddings for table in self.tables])
        wrong = (self.ids < 0) | (
            self.ids >= torch.repeat_interleave(rows, torch.tensor(self.counts)))
        error = self._wrong(int(wrong.nonzero()[0]), configs, batch)
        if mode == "fatal":
            raise error
        if mode == "warning":
            count = int(wrong.sum()) - 1
            more = f"; {count} more ids are rows of no table" if count else ""
            warnings.warn(f"{error}{more}: row 0 is looked up instead", stacklevel=2)
        return Bags(self.tables, self.ids.masked_fill(wrong, 0), self.lengths, self.weights)

    def _wrong(self, position: int, configs: Sequence[TableConfig], batch: str) -> BatchError:
        """The error for an id that is not a row of its table."""
        bag = int(torch.searchsorted(self.lengths.cumsum(0), position, right=True))
        feature, sample = divmod(bag, self.samples)
        table = configs[self.tables[feature]]
        return BatchError(
            f"{batch}: id {int(self.ids[position])} of sample {sample} is no row of table "
            f"{table.name!r}, which has rows 0 to {table.num_embeddings - 1}; with ids='any' it "
            f"has any id",
            position=position, table=self.tables[feature], row=int(self.ids[position]),
            sample=sample, column=feature)

    def device_batch(self, registered: Mapping[int, Table]) -> Batch:
        """The device's form of these Bags, which are `grouped`: Batch.

        A device knows tables and no features. Bags of several features of a table follow one
        another as bags of further samples, and tables with fewer features get empty bags at the
        end; so do tables without a feature between others.

        Parameters
        ----------
        registered : dict of int to Table
            The device's tables, by number.
        """
        numbers = list(dict.fromkeys(self.tables))
        first, last = registered[numbers[0]].number, registered[numbers[-1]].number
        if last - first >= len(numbers):
            numbers = sorted((each for each in registered
                              if first <= registered[each].number <= last),
                             key=lambda each: registered[each].number)
        tables = [registered[each] for each in numbers]
        if self.dense and tuple(numbers) == self.tables:
            batch = Batch(self.ids.numpy(), None, self.samples, len(tables), tables, True)
        else:
            batch = self._padded_batch(numbers, tables)
        batch.checked = tuple(each.rows for each in tables)
        return batch

    def _padded_batch(self, numbers: Sequence[int], tables: Sequence[Table]) -> Batch:
        """Batch of tables, by their numbers, that have as many features as the one with most."""
        features, lengths = Counter(self.tables), self.lengths
        most = max(features.values())
        if any(features[each] < most for each in numbers):
            lengths = torch.cat([
                functional.pad(part, (0, (most - features[each]) * self.samples))
                for each, part in zip(numbers, lengths.split(
                    [features[each] * self.samples for each in numbers]), strict=True)])
        ids = self.ids.numpy()
        if not lengths.stride(0) or bool((lengths == 1).all()):
            return Batch.dense(ids.reshape(len(numbers), -1), tables, feature_major=True)
        return Batch.jagged(ids, lengths.numpy(), most * self.samples, tables, feature_major=True)

    def _without_padding(self, padding: int) -> "Bags":
        kept = self.ids != padding
        bags = torch.repeat_interleave(torch.arange(len(self.lengths)), self.lengths)
        return Bags(self.tables, self.ids[kept],
                    torch.bincount(bags[kept], minlength=len(self.lengths)),
                    None if self.weights is None else self.weights[kept])


class GridBags(Bags):
    """Bags of one id each, from ids [samples, features].

    Attributes
    ----------
    grid : int32 or int64 [samples, features]
    """

    grid: torch.Tensor

    def __init__(self, tables: tuple[int, ...], grid: torch.Tensor,
                 weights: torch.Tensor | None = None):
        # Without `ids` and `lengths`, which are made when somebody asks.
        self.__dict__.update(tables=tables, grid=grid, weights=weights)

    @cached_property
    def ids(self) -> torch.Tensor:
        return self.grid.T.reshape(-1)

    @cached_property
    def lengths(self) -> torch.Tensor:
        return _ONE.expand(self.grid.numel())  # takes no memory

    @property
    def samples(self) -> int:
        return self.grid.shape[0]

    @property
    def dense(self) -> bool:
        return self.grid.numel() > 0

    @property
    def lookups(self) -> int:
        return self.grid.numel()

    def equals(self, other: Bags) -> bool:
        if not isinstance(other, GridBags) or self.grid.dtype != other.grid.dtype:
            return super().equals(other)
        return self.tables == other.tables and torch.equal(self.grid, other.grid)

    def snapshot(self) -> "GridBags":
        return GridBags(self.tables, self.grid.clone(), self.weights)

    def rows(self, samples: torch.Tensor) -> Bags:
        if self.weights is not None:
            return super().rows(samples)
        return GridBags(self.tables, self.grid[samples])

    def _flat(self, order: Sequence[int], rows: torch.Tensor,
              dtype: torch.dtype) -> tuple[torch.Tensor, int]:
        own = list(order) == list(range(len(self.tables)))
        return flatten_ids(self.grid, rows, dtype=dtype, order=None if own else order)


def _grid(tables: tuple[int, ...], ids: torch.Tensor, weights: torch.Tensor | None,
          order: Sequence[int] | None) -> GridBags:
    """Some features, in the given order or all, of ids [features, samples] with weights."""
    if order is not None:
        ids, weights = ids[order], None if weights is None else weights[order]
    return GridBags(tables, ids.T, None if weights is None else weights.reshape(-1))


_ONE = torch.ones((), dtype=torch.int64)
NARROW = 1 << 31  # rows of a table whose ids int32 holds


def lookups_of(lengths: torch.Tensor, bags: torch.Tensor) -> torch.Tensor:
    """Indices of the lookups of some bags int64[k], bag after bag: int64[n]."""
    starts, lengths = (lengths.cumsum(0) - lengths)[bags], lengths[bags]
    within = torch.arange(int(lengths.sum())) - torch.repeat_interleave(
        lengths.cumsum(0) - lengths, lengths)
    return torch.repeat_interleave(starts, lengths) + within
