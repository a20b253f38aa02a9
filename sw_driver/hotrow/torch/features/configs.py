"""What a collection's tables are, and which of them lie in one array."""

from dataclasses import dataclass

import torch

from ...errors import Error
from ..memory.tables import EmbeddingTables

POOLINGS = ("sum", "mean", "none")
_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class TableConfig:
    """One embedding table.

    Parameters
    ----------
    name : str
    num_embeddings : int
        Rows.
    embedding_dim : int
        Elements of a row, any number.
    pooling : str
        "sum" or "mean" of each bag; "none" for the row of each lookup, as it is.
    dtype : torch.dtype
        float32, float16 or bfloat16; sums and updates are fp32 whatever it is.
    feature_names : sequence of str
        Features that look up in the table; one of the table's name unless they are given.

    Raises
    ------
    Error
    """

    name: str
    num_embeddings: int
    embedding_dim: int
    pooling: str = "sum"
    dtype: torch.dtype = torch.float32
    feature_names: tuple = ()

    def __post_init__(self):
        if isinstance(self.feature_names, str):
            raise Error(f"table {self.name!r}: feature_names is a sequence of names, not "
                        f"{self.feature_names!r}")
        object.__setattr__(self, "feature_names", tuple(self.feature_names) or (self.name,))
        if self.num_embeddings < 1 or self.embedding_dim < 1:
            raise Error(f"table {self.name!r} needs at least one row and one element, not "
                        f"{self.num_embeddings} x {self.embedding_dim}")
        if self.pooling not in POOLINGS:
            raise Error(f"table {self.name!r}: pooling is {', '.join(map(repr, POOLINGS))}, not "
                        f"{self.pooling!r}")
        if self.dtype not in _DTYPES:
            raise Error(f"table {self.name!r}: rows are float32, float16 or bfloat16, not "
                        f"{self.dtype}")
        if "." in self.name:
            raise Error(f"the name {self.name!r} of a table may not hold a dot: it is part of the "
                        f"keys of state_dict()")


class TableGroup:
    """Tables whose rows are alike, in one array.

    Parameters
    ----------
    numbers : sequence of int
        Which of the collection's tables.
    configs : sequence of TableConfig
        Of all of the collection's tables.
    rule : SGD, RowwiseAdagrad or Adagrad
    tables : EmbeddingTables, optional
        That are there already.

    Members
    -------
    tables : EmbeddingTables
        Of the group, in the order of `numbers`.
    """

    def __init__(self, numbers, configs, rule, tables=None):
        self.numbers = tuple(numbers)
        self.configs = tuple(configs[number] for number in numbers)
        first = self.configs[0]
        if rule.state == "element" and first.dtype != torch.float32:
            raise Error(f"table {first.name!r}: {rule.name} keeps a number beside every element, "
                        f"and so needs float32 rows, not {first.dtype}")
        self.tables = tables or EmbeddingTables(
            [config.num_embeddings for config in self.configs], first.embedding_dim,
            rule.initial if rule.state else None, rule.state, first.dtype)

    @property
    def kind(self):
        return self.tables.kind


@dataclass(frozen=True, eq=False)
class Segment:
    """The part of a batch's bags that looks up in one group.

    Members
    -------
    group : int
        Its place among the groups.
    flat : int64[n]
        Flat row of each lookup.
    lengths : int64[bags]
    lookups : slice
        Where among the batch's lookups they are.
    features : int
    """

    group: int
    flat: torch.Tensor
    lengths: torch.Tensor
    lookups: slice
    features: int


def group_tables(configs, rule):
    """TableGroups of tables with one dim and dtype, in order of first appearance."""
    kinds = {}
    for number, config in enumerate(configs):
        kinds.setdefault((config.embedding_dim, config.dtype), []).append(number)
    return [TableGroup(numbers, configs, rule) for numbers in kinds.values()]


class Places:
    """Which group each table belongs to, and where in it.

    Parameters
    ----------
    groups : sequence of TableGroup

    Members
    -------
    order : tuple of int
        Tables, group after group.
    """

    def __init__(self, groups):
        self.groups = tuple(groups)
        self.order = tuple(number for group in groups for number in group.numbers)
        self._group, self._first = {}, {}
        for at, group in enumerate(groups):
            for local, number in enumerate(group.numbers):
                self._group[number], self._first[number] = at, int(group.tables.first[local])

    def sorted(self, bags):
        """Bags with the features group after group, and where each was before: list of int."""
        rank = {number: at for at, number in enumerate(self.order)}
        order = sorted(range(bags.features), key=lambda each: rank[bags.tables[each]])
        return bags.columns(order), order

    def segments(self, bags):
        """Of sorted bags: list of Segment."""
        segments, lookup, feature = [], 0, 0
        counts, samples = bags.counts, bags.samples
        while feature < bags.features:
            group, last = self._group[bags.tables[feature]], feature
            while last < bags.features and self._group[bags.tables[last]] == group:
                last += 1
            span = slice(lookup, lookup + sum(counts[feature:last]))
            first = torch.tensor([self._first[table] for table in bags.tables[feature:last]])
            flat = bags.ids[span] + torch.repeat_interleave(
                first, torch.tensor(counts[feature:last]))
            segments.append(Segment(group, flat, bags.lengths[feature * samples:last * samples],
                                    span, last - feature))
            lookup, feature = span.stop, last
        return segments
