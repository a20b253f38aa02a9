"""The tables of a collection, and groups of tables that share an array."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from ...contract.errors import Error
from ...ids import Expiry, LeastCount, Probability
from ...ids.policies import check_policies
from ...operands.integers import whole
from ...tables.memory import memory_bytes
from ..memory.rows import RowKind
from ..memory.tables import EmbeddingTables, first_rows

_TORCHREC_DTYPES = {"FP32": torch.float32, "FP16": torch.float16, "BF16": torch.bfloat16}
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
        Elements of a row, any number; row and optimizer state together have at most the bytes that
        the card carries, but in mode "resident".
    pooling : str
        "sum" or "mean" of each bag; "none" returns the row of each lookup.
    dtype : torch.dtype
        float32, float16 or bfloat16; sums and updates are always fp32.
    feature_names : sequence of str
        Features that look up in the table; by default one with the table's name.
    ids : str
        "rows": ids are 0 to num_embeddings - 1. "any": 64-bit integers, any of them, which an
        `hotrow.ids.IdMap` gives rows. Row 0 is looked up for ids without a row.
    admission : LeastCount or Probability, optional
        With "any", when an id gets a row; by default at its first lookup.
    expiry : Expiry, optional
        With "any", when an id loses its row; by default never.
    path : str or os.PathLike, optional
        Folder of the tables on disk, one for all of a collection: the rows, the optimizer's state
        of each, and the ids of rows. A folder with tables keeps them; else it is made. By default
        the table is in memory.
    base : sequence of path, optional
        With `path`: files with the rows before any training, which are never written. With
        `tensor` they are shards of a safetensors checkpoint, whose rows follow each other, else
        one file of the format "hotrow table 1".
    tensor : str, optional
        Name of the tensor in each shard.
    memory : int or str, optional
        With `path`: limit in bytes, or such as "640MB", for all tables of its folder, by which
        `hotrow.tables.plan_memory` chooses the slots of a device that the collection opens, and the
        part of the log in memory. The rest of the process comes on top.

    Raises
    ------
    Error
    """

    name: str
    num_embeddings: int
    embedding_dim: int
    pooling: str = "sum"
    dtype: torch.dtype = torch.float32
    feature_names: tuple[str, ...] = ()
    ids: str = "rows"
    admission: LeastCount | Probability | None = None
    expiry: Expiry | None = None
    path: str | os.PathLike[str] | None = None
    base: Sequence[str | os.PathLike[str]] = ()
    tensor: str | None = None
    memory: int | str | None = None

    def __post_init__(self) -> None:
        self._check_names()
        for size in ("num_embeddings", "embedding_dim"):
            object.__setattr__(self, size, whole(getattr(self, size),
                                                 f"table {self.name!r}: {size}"))
        if self.num_embeddings < 1 or self.embedding_dim < 1:
            raise Error(f"table {self.name!r} needs at least one row and one element, not "
                        f"{self.num_embeddings} x {self.embedding_dim}")
        if self.pooling not in POOLINGS:
            raise Error(f"table {self.name!r}: pooling is {', '.join(map(repr, POOLINGS))}, not "
                        f"{self.pooling!r}")
        if self.dtype not in _DTYPES:
            raise Error(f"table {self.name!r}: rows are float32, float16 or bfloat16, not "
                        f"{self.dtype}")
        if self.ids not in ("rows", "any"):
            raise Error(f"table {self.name!r}: ids are 'rows' or 'any', not {self.ids!r}")
        if self.ids == "rows" and (self.admission or self.expiry):
            raise Error(f"table {self.name!r}: admission and expiry need ids='any'")
        if self.ids == "any":
            try:
                check_policies(self.num_embeddings, self.admission, self.expiry)
            except Error as error:
                raise Error(f"table {self.name!r}: {error}") from None
        if self.path is not None:
            given = self.path
            if not isinstance(given, (str, bytes, os.PathLike)) or "\0" in os.fsdecode(given):
                raise Error(f"table {self.name!r}: path is the name of a folder, not {given!r}")
            object.__setattr__(self, "path", os.fsdecode(given))
        self._check_base()

    def _check_base(self) -> None:
        given = [self.base] if isinstance(self.base, (str, os.PathLike)) else list(self.base)
        if not all(isinstance(each, (str, os.PathLike)) for each in given) or (
                given and self.path is None) or (self.tensor is not None and not given) or (
                len(given) > 1 and self.tensor is None):
            raise Error(f"table {self.name!r}: expected base as the files of a table with a path: "
                        f"shards with the name of their tensor, or one file of the format "
                        f"'hotrow table 1' without, got base={self.base!r}, tensor="
                        f"{self.tensor!r} and path={self.path!r}")
        if self.memory is not None:
            if self.path is None:
                raise Error(f"table {self.name!r}: memory={self.memory!r} is for tables with a "
                            f"path: leave it out")
            object.__setattr__(self, "memory", memory_bytes(self.memory))
        object.__setattr__(self, "base", tuple(os.fsdecode(each) for each in given))

    def _check_names(self) -> None:
        if not isinstance(self.name, str):
            raise Error(f"the name of a table is a str, not {self.name!r}")
        if "." in self.name:
            raise Error(f"the name {self.name!r} of a table may not hold a dot: it is part of the "
                        f"keys of state_dict()")
        if (not isinstance(self.feature_names, Sequence) or isinstance(self.feature_names, str)
                or not all(isinstance(each, str) for each in self.feature_names)):
            raise Error(f"table {self.name!r}: feature_names is a sequence of names, not "
                        f"{self.feature_names!r}")
        object.__setattr__(self, "feature_names", tuple(self.feature_names) or (self.name,))


def table_config(given: Any) -> TableConfig:
    """A TableConfig from one, or from TorchRec's EmbeddingBagConfig or EmbeddingConfig.

    Raises
    ------
    Error
        TorchRec's config has a property that tables here have not.
    """
    if isinstance(given, TableConfig):
        return given
    if not hasattr(given, "data_type"):
        raise Error(f"expected TableConfigs, or TorchRec's EmbeddingBagConfigs or "
                    f"EmbeddingConfigs, not {type(given).__name__}")
    dtype = _TORCHREC_DTYPES.get(given.data_type.name)
    if dtype is None:
        raise Error(f"table {given.name!r}: data_type is {', '.join(_TORCHREC_DTYPES)}, not "
                    f"{given.data_type.name}")
    for name in ("num_embeddings_post_pruning", "use_virtual_table", "total_num_buckets"):
        if getattr(given, name, None):
            raise Error(f"table {given.name!r}: {name} of TorchRec's config has no counterpart "
                        f"here: leave it out")
    pooling = getattr(given, "pooling", None)
    return TableConfig(given.name, given.num_embeddings, given.embedding_dim,
                       "none" if pooling is None else pooling.name.lower(), dtype,
                       given.feature_names)


class TableNameError(Error, ValueError):
    """A name of several tables: a ValueError, as TorchRec's."""


def check_tables(configs: Sequence[TableConfig]) -> None:
    """Raise Error if tables do not fit in one collection."""
    if not configs:
        raise Error("a collection needs at least one table")
    names = [config.name for config in configs]
    for name in names:
        if names.count(name) > 1:
            raise TableNameError(f"there are {names.count(name)} tables named {name!r}")
    paths = {os.path.realpath(config.path): str(config.path)
             for config in configs if config.path is not None}
    if len(paths) > 1:
        raise Error(f"the tables on disk have the paths {', '.join(map(repr, paths.values()))}: "
                    f"give all of a collection one folder, so that one commit has all rows")
    limits = {config.memory for config in configs if config.memory is not None}
    if len(limits) > 1:
        raise Error(f"the tables on disk have the limits of memory {sorted(limits, key=str)}: give "
                    f"one, which is that of all of them")
    unpooled = [config for config in configs if config.pooling == "none"]
    if unpooled and len(unpooled) < len(configs):
        raise Error(f"table {unpooled[0].name!r} is not pooled, and others are: make one "
                    f"collection of tables with pooling 'none', and one of the others")
    dims = {config.embedding_dim for config in unpooled}
    if len(dims) > 1:
        raise Error(f"tables with pooling 'none' need one dim, not "
                    f"{', '.join(map(str, sorted(dims)))}")


class Rule(Protocol):
    """What `optim.rules.Rule` says about the state of a row."""

    name: str
    state: str | None
    initial: float

    def columns(self, dim: int) -> int:
        """Numbers of state that follow the `dim` elements of a row."""


class TableGroup:
    """Tables with one kind of row, in one array.

    Parameters
    ----------
    numbers : sequence of int
        Indices of the group's tables in `configs`.
    configs : sequence of TableConfig
        All tables of the collection.
    rule : Rule
    tables : EmbeddingTables, optional
        Existing tables.
    in_memory : bool
        Whether tables have contents in memory.

    Attributes
    ----------
    tables : EmbeddingTables
        Of the group, in the order of `numbers`.
    kind_number : int
        Number of this kind of rows among those of the collection.
    whole_rows : callable
        From flat rows int64[n] to those of all whole tables of this kind, which number the random
        bits of rounding.
    """

    def __init__(self, numbers: Sequence[int], configs: Sequence[TableConfig], rule: Rule,
                 tables: EmbeddingTables | None = None, in_memory: bool = True):
        self.numbers = tuple(numbers)
        self.configs = tuple(configs[number] for number in numbers)
        first = self.configs[0]
        if rule.state == "element" and first.dtype != torch.float32:
            raise Error(f"table {first.name!r}: {rule.name} keeps a number beside every element, "
                        f"and so needs float32 rows, not {first.dtype}")
        self.tables = tables or EmbeddingTables(
            [config.num_embeddings for config in self.configs], first.embedding_dim,
            rule.initial if rule.state else None, rule.state, first.dtype,
            "cpu" if in_memory else "meta", columns=rule.columns(first.embedding_dim) or None)
        kinds = {(config.embedding_dim, config.dtype): None for config in configs}
        self.kind_number = list(kinds).index((first.embedding_dim, first.dtype))
        self._shift = self._shift_to_whole(configs)
        self.whole_rows: Callable[[torch.Tensor], torch.Tensor] = self._whole_rows

    def _shift_to_whole(self, configs: Sequence[TableConfig]) -> NDArray[np.int64]:
        """Of each table's flat rows to those where tables of one kind follow each other."""
        own = self.configs[0]
        kind = [number for number, config in enumerate(configs) if (
            config.embedding_dim, config.dtype) == (own.embedding_dim, own.dtype)]
        first = first_rows([configs[number].num_embeddings for number in kind])
        own_first: NDArray[np.int64] = self.tables.first
        return first[[kind.index(number) for number in self.numbers]] - own_first

    def _whole_rows(self, flat: torch.Tensor) -> torch.Tensor:
        if not self._shift.any():
            return flat
        return flat + torch.from_numpy(self._shift[self.tables.locate(flat).table])

    @property
    def kind(self) -> RowKind:
        return self.tables.kind


def group_tables(configs: Sequence[TableConfig], rule: Rule,
                 whole: bool = True) -> list[TableGroup]:
    """TableGroups of tables with one dim, dtype and place, in order of first appearance.

    Those on disk are in memory as well if they are to be there as a `whole`.
    """
    kinds: dict[tuple[int, torch.dtype, bool], list[int]] = {}
    for number, config in enumerate(configs):
        kinds.setdefault((config.embedding_dim, config.dtype, config.path is not None),
                         []).append(number)
    return [TableGroup(numbers, configs, rule, in_memory=whole or not on_disk)
            for (_, _, on_disk), numbers in kinds.items()]
