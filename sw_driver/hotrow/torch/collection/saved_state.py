"""The tables of a collection in state dicts: rows for modules, state for their optimizer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import nn

from ...contract.errors import Error
from ..features.configs import TableConfig
from ..optim.interrupts import raise_saying, uninterrupted
from ..store.base import Store
from .cache import Cache
from .contents import NamedTables, TableContents
from .lifecycle import Lifecycle
from .result_dtype import unchanged
from .rows_parameter import RowsParameter

_Given: TypeAlias = tuple[torch.Tensor | None, torch.Tensor | None]  # weights and state
_INTEGERS = frozenset((torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64))
_MOST = (1 << 32) - 1  # lookups of a row that a count holds
_WITHOUT = "take access_counts out of the state to load it without"


class SavedState:
    """Puts tables into state dicts, up to date, and loads them into tables without slots.

    Parameters
    ----------
    tables : sequence of TableConfig
    contents : TableContents
    shown : NamedTables
    lifecycle : Lifecycle
    cache : Cache
        Its access counts are state of the optimizer.

    Attributes
    ----------
    tables, cache
        As given.
    allow_fewer_rows : bool
        Whether loading takes tables of fewer rows, and leaves the others as they are.
    whole : bool
        False after a load that failed when it had begun to write tables.
    """

    def __init__(self, tables: Sequence[TableConfig], contents: TableContents,
                 shown: NamedTables, lifecycle: Lifecycle, cache: Cache) -> None:
        self.tables, self.cache = tables, cache
        self._contents, self._shown, self._lifecycle = contents, shown, lifecycle
        self.allow_fewer_rows, self.whole = False, True
        self._messages: list[str] | None = None  # of the last load
        self._loaded: list[str] = []  # tables of that load

    def save(self, prefixes: Mapping[str, str], destination: dict[str, Any],
             rows: RowsParameter | None = None) -> None:
        """Save rows of tables, by name with the prefix of their keys."""
        for name, of_table in prefixes.items():
            destination[of_table + "weight"] = self._shown.saved(name, rows)

    def load(self, prefixes: Mapping[str, str], state_dict: Mapping[str, Any], prefix: str,
             strict: bool, missing_keys: list[str], unexpected_keys: list[str],
             error_msgs: list[str], *, also: Callable[[], None] | None = None) -> None:
        """Load rows of tables, by name with the prefix of their keys, as `nn.Module` loads, and
        `also` what belongs to them; nothing if this or an earlier module has found an error."""
        self._lifecycle.reset()
        if error_msgs is not self._messages:
            self._messages, self._loaded = error_msgs, []
        found: dict[str, _Given] = {}
        messages: list[str] = []
        tables = {config.name: config for config in self.tables}
        # "rows" of a collection shows tables, where somebody adds all parameters.
        known = {prefix + "rows"}
        if any(config.ids == "any" for config in self.tables):
            known.add(prefix + "_extra_state")
        for name, of_table in prefixes.items():
            key, config = of_table + "weight", tables[name]
            known.add(key)
            given: Any = state_dict.get(key)
            shape = [config.num_embeddings, config.embedding_dim]
            if key not in state_dict:
                missing_keys.append(key)
            elif _refusal(given):
                messages.append(f"{key} {_refusal(given)}")
            elif self._takes(given, shape):
                found[name] = given, None
            else:
                fewer = given.shape[1:] == torch.Size(shape[1:]) and len(given) < shape[0]
                messages.append(
                    f"{key} has shape {list(given.shape)}, and the table {shape}"
                    + "; allow_fewer_rows of the collection takes the first rows" * fewer)
        if strict:
            unexpected_keys += [key for key in state_dict
                                if key.startswith(prefix) and key not in known]
        error_msgs += messages
        if not error_msgs:
            self._write(found, self._loaded, also)
            self._loaded += found
        elif self._loaded:
            error_msgs.append(f"{_quoted(self._loaded)} were loaded before, and no other table of "
                              f"their collection")
            self._loaded = []

    def row_states(self) -> dict[str, torch.Tensor]:
        """State of each table that has any, by name; contiguous."""
        self._lifecycle.flush()
        states = {config.name: self._contents.table(config.name)[1] for config in self.tables}
        return {name: self._contents.contiguous(name, state) for name, state in states.items()
                if state is not None}

    def load_row_states(self, states: Mapping[str, torch.Tensor]) -> None:
        """Set the state of every table, or of none with an error that says nothing else."""
        self._lifecycle.reset()
        own = self.row_states()
        if set(own) != set(states):
            raise Error(f"expected the state of tables {sorted(own)}, got "
                        f"{sorted(states, key=str)}")
        for name, state in states.items():
            if _refusal(state):
                raise Error(f"the state of table {name!r} {_refusal(state)}")
            if not self._takes(state, list(own[name].shape)):
                raise Error(f"the state of table {name!r} has shape {list(state.shape)}, and the "
                            f"table's has {list(own[name].shape)}")
        self._write({name: (None, state) for name, state in states.items()})

    def _write(self, tables: Mapping[str, _Given], before: Sequence[str] = (),
               also: Callable[[], None] | None = None) -> None:
        """Write (weights, state) of tables; an interrupt waits, and an error names the tables that
        have changed, with those of `before`."""
        changed = [*before]
        try:
            with uninterrupted():
                self._check_files()
                for name, given in tables.items():
                    changed.append(name)
                    self.whole = False
                    self._contents.assign(name, *given)
                if also is not None:
                    also()
                self.whole = True
        except BaseException as error:
            if not changed:
                raise
            raise_saying(error, f"{_quoted(changed)} were loaded before, the last perhaps in part, "
                                f"and no other table: load again")

    def _check_files(self) -> None:
        """Raise Error if a table's file is closed or belongs to another process."""
        for file in filter(None, (self._contents.file(config.name) for config in self.tables)):
            file.check_owner()

    def _takes(self, given: torch.Tensor, expected: list[int]) -> bool:
        """Whether loading takes a tensor of that shape."""
        shape = list(given.shape)
        return shape == expected or (
            self.allow_fewer_rows and shape[1:] == expected[1:] and shape < expected)


class SavedCounts:
    """The device's access counts in the state dict of the optimizer, by the names of tables.

    Parameters
    ----------
    tables : sequence of TableConfig
    cache : Cache
    store : Store
    """

    def __init__(self, tables: Sequence[TableConfig], cache: Cache, store: Store) -> None:
        self._tables, self._cache, self._store = tables, cache, store

    def saved(self) -> tuple[list[str], torch.Tensor]:
        """Names of the tables, and int64[3, n]: places of tables among these names, rows and
        counts. Without a device, and after `close`, there are no counts."""
        counts, numbers = self._cache.access_counts(), self._numbers()
        if counts is None or not numbers:
            counts = torch.zeros(3, 0, dtype=torch.int64)
        else:
            device, places = torch.tensor(numbers).sort()
            counts = counts[:, torch.isin(counts[0], device)]
            counts[0] = places[torch.searchsorted(device, counts[0].contiguous())]
        return [config.name for config in self._tables], counts

    def given(self, saved: Any) -> torch.Tensor | None:
        """What `saved` returned, by the device's tables: int64[3, n], for `load`. None without a
        device, and after `close`.

        Raises
        ------
        Error
            It is nothing that `saved` returned, or of rows that these tables have not.
        """
        names, counts = _parts(saved)
        numbers = self._numbers()
        if not numbers:
            return None
        own = list(zip(numbers, self._tables, strict=True))
        if names is None:  # of an older state, with the device's numbers
            return _renumbered(
                counts, {f"number {number}": (number, config) for number, config in own}, {})
        return _renumbered(counts, {config.name: (number, config) for number, config in own},
                           dict(enumerate(names)))

    def load(self, counts: torch.Tensor | None) -> None:
        """Set the device's access counts to those of `given`, and all others to zero."""
        if counts is not None:
            self._cache.set_access_counts(counts)

    def _numbers(self) -> list[int]:
        """The device's number of each table; none without a device, and after `close`."""
        if self._store.device is None or self._store.closed:
            return []
        return [self._store.device_table(number) for number in range(len(self._tables))]


def _parts(saved: Any) -> tuple[Sequence[str] | None, torch.Tensor]:
    """Names of tables, and access counts int64[3, n] in host memory of rows that were counted.

    Raises
    ------
    Error
        It is no pair of these, nor counts alone, as older states have them.
    """
    if saved is None:
        return None, torch.zeros(3, 0, dtype=torch.int64)
    names, counts = saved if isinstance(saved, (list, tuple)) and len(saved) == 2 else (None, saved)
    if names is not None and not (
            isinstance(names, (list, tuple)) and all(isinstance(each, str) for each in names)):
        raise Error(f"expected access_counts with a list of names of tables, got {names!r}")
    refusal = _refusal(counts)
    if refusal:
        raise Error(f"access_counts {refusal}")
    if counts.dtype not in _INTEGERS or counts.dim() != 2 or len(counts) != 3:
        raise Error(f"expected access_counts int64[3, n], tables, rows and counts, got "
                    f"{counts.dtype} {list(counts.shape)}")
    counts = counts.detach().cpu().long()
    wrong = counts[2][(counts[2] < 0) | (counts[2] > _MOST)].tolist()
    if wrong:
        raise Error(f"expected access_counts from 0 to {_MOST}, got {wrong[0]}")
    return names, counts[:, counts[2] > 0]


def _renumbered(counts: torch.Tensor, own: Mapping[str, tuple[int, TableConfig]],
                names: Mapping[int, str]) -> torch.Tensor:
    """Access counts int64[3, n] with the device's numbers of their tables.

    Parameters
    ----------
    counts : int64[3, n]
    own : mapping of str to (int, TableConfig)
        The device's number of each table, and the table, by name.
    names : mapping of int to str
        The names of the tables that `counts` has; others are called "number" and theirs.

    Raises
    ------
    Error
        There is no such table, or it has no such row.
    """
    found = counts.clone()
    for table in counts[0].unique().tolist():
        chosen, name = counts[0] == table, names.get(table, f"number {table}")
        if name not in own:
            raise Error(f"the access counts are of table {name!r}, and there is none: expected "
                        f"some of {_quoted(list(own))}; {_WITHOUT}")
        number, config = own[name]
        rows = counts[1, chosen]
        strange = rows[(rows < 0) | (rows >= config.num_embeddings)].tolist()
        if strange:
            raise Error(f"the access counts are of row {strange[0]} of table {config.name!r}, "
                        f"which has {config.num_embeddings}; {_WITHOUT}")
        found[0, chosen] = number
    return found


def _refusal(given: Any) -> str:
    """Why what is to be loaded cannot be copied into a table, in words; empty if it can."""
    if not isinstance(given, torch.Tensor):
        return f"is no tensor with contents, but {type(given).__name__}"
    if given.is_meta:
        return "is no tensor with contents, but one on 'meta'"
    if given.layout != torch.strided or given.is_nested:
        kind = "nested" if given.is_nested else str(given.layout)
        return f"is a tensor of layout {kind}, and not strided: load a dense copy, as to_dense()"
    if given.is_quantized:
        return f"is a quantized tensor, {given.dtype}: load its dequantize()"
    return ""


def load_others(module: nn.Module, state_dict: Mapping[str, Any], prefix: str,
                local_metadata: Any, strict: bool, missing_keys: list[str],
                error_msgs: list[str]) -> dict[str, Any]:
    """Call the hooks of a module, load what it has beside its tables, and return the others' part
    of the state dict."""
    with unchanged(module):
        nn.Module._load_from_state_dict(
            module, state_dict, prefix, local_metadata, strict, missing_keys, [], error_msgs)
        own = {*module._parameters, *module._buffers, *module._modules}
    return {key: value for key, value in state_dict.items()
            if not key.startswith(prefix) or key[len(prefix):].partition(".")[0] not in own}


def _quoted(names: list[str]) -> str:
    return ", ".join(map(repr, names))
