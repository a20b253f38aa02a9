"""The tables of a collection in state dicts: rows for modules, state for their optimizer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import nn

from ...contract.errors import Error
from ...system.interrupts import uninterrupted
from ..features.configs import TableConfig
from ..features.inputs import no_elements
from .cache import Cache
from .commits import Commits
from .contents import TableContents
from .id_maps import IdMaps
from .lifecycle import Lifecycle
from .named_tables import NamedTables, without_weight

_EXTRA = "_extra_state"  # key of what is no row
_Given: TypeAlias = tuple[torch.Tensor | None, torch.Tensor | None]  # weights and state


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
    disk : Commits
    id_maps : IdMaps or None

    Attributes
    ----------
    tables, cache
        As given.
    allow_fewer_rows : bool
        Whether loading takes tables of fewer rows, and leaves the others as they are.
    """

    def __init__(self, tables: Sequence[TableConfig], contents: TableContents,
                 shown: NamedTables, lifecycle: Lifecycle, cache: Cache, disk: Commits,
                 id_maps: IdMaps | None) -> None:
        self.tables, self.cache, self._disk, self._id_maps = tables, cache, disk, id_maps
        self._contents, self._shown, self._lifecycle = contents, shown, lifecycle
        self.allow_fewer_rows = False
        self._loaded: set[str] = set()  # tables, since a step or load was left half done

    def save_all(self, prefix: str, prefixes: Mapping[str, str], destination: dict[str, Any],
                 keep_vars: bool) -> None:
        """`save` rows, and under `prefix` the ids of rows and the commit of tables on disk."""
        self.save(prefixes, destination, keep_vars)
        ids = None if self._id_maps is None else self._id_maps.state()
        if self._disk.any:
            destination[prefix + _EXTRA] = {"ids": ids, "tables": self._disk.reference()}
        elif ids is not None:
            destination[prefix + _EXTRA] = ids

    def load_all(self, prefix: str, prefixes: Mapping[str, str], state_dict: Mapping[str, Any],
                 strict: bool, missing_keys: list[str], unexpected_keys: list[str],
                 error_msgs: list[str]) -> None:
        """`load` what `save_all` saved."""
        key, maps, reference = prefix + _EXTRA, None, None
        if self._disk.any:
            state_dict, reference = self._disk.given(key, prefixes, state_dict, missing_keys,
                                                     error_msgs)
        if self._id_maps is not None:
            maps = self._id_maps.loading_saved(key, prefixes, state_dict, missing_keys, error_msgs)
        elif isinstance(state_dict.get(key), bytes):
            error_msgs.append(f"{key} has the ids of rows, and no table here has any: give "
                              f"TableConfig(ids='any') to the tables that had it")

        def also() -> None:
            if reference is not None:
                self._disk.resume(reference)
            if maps is not None:
                maps()

        self.load(prefixes, state_dict, prefix, strict, missing_keys, unexpected_keys,
                  error_msgs, also=also)

    def save(self, prefixes: Mapping[str, str], destination: dict[str, Any],
             keep_vars: bool) -> None:
        """Save rows of tables in memory, by name with the prefix of their keys; contiguous, but
        for parameters themselves with `keep_vars`."""
        for name, of_table in prefixes.items():
            if not self._contents.on_disk(name):
                weight = self._shown[name].weight
                destination[of_table + "weight"] = (
                    weight if keep_vars else weight.detach().contiguous())

    def load(self, prefixes: Mapping[str, str], state_dict: Mapping[str, Any], prefix: str,
             strict: bool, missing_keys: list[str], unexpected_keys: list[str],
             error_msgs: list[str], *, also: Callable[[], None] | None = None) -> None:
        """Load rows of tables, by name with the prefix of their keys, as `nn.Module` loads, and
        `also` what belongs to them; nothing if this or an earlier module has found an error."""
        self._lifecycle.reset()
        found: dict[str, _Given] = {}
        messages: list[str] = []
        tables = {config.name: config for config in self.tables}
        known = set()
        if any(config.ids == "any" or config.path is not None for config in self.tables):
            known.add(prefix + _EXTRA)
        for name, of_table in prefixes.items():
            key, config = of_table + "weight", tables[name]
            known.add(key)
            given: Any = state_dict.get(key)
            shape = [config.num_embeddings, config.embedding_dim]
            if key not in state_dict:
                if not self._contents.on_disk(name):  # which has a commit in place of rows
                    missing_keys.append(key)
            elif refusal(given):
                messages.append(f"{key} {refusal(given)}")
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
            self._write(found, "rows", also)

    def row_states(self) -> dict[str, torch.Tensor]:
        """State of each table in memory that has any, by name; contiguous."""
        self._lifecycle.flush()
        states = {config.name: self._contents.table(config.name)[1] for config in self.tables
                  if not self._contents.on_disk(config.name)}
        return {name: state.contiguous() for name, state in states.items() if state is not None}

    def load_row_states(self, states: Mapping[str, torch.Tensor]) -> None:
        """Set the state of every table."""
        self._lifecycle.reset()
        own = {config.name: shape for config in self.tables
               if (shape := self._contents.state_shape(config.name)) is not None}
        needed = [name for name in own if not self._contents.on_disk(name)]
        if not set(needed) <= set(states) <= set(own):  # those on disk have a commit in its place
            raise Error(f"expected the state of tables {sorted(needed or own)}, got "
                        f"{sorted(states, key=str)}")
        for name, state in states.items():
            if refusal(state):
                raise Error(f"the state of table {name!r} {refusal(state)}")
            if not self._takes(state, own[name]):
                raise Error(f"the state of table {name!r} has shape {list(state.shape)}, and the "
                            f"table's has {own[name]}")
        self._write({name: (None, state) for name, state in states.items()}, "state")

    def _write(self, tables: Mapping[str, _Given], what: str,
               also: Callable[[], None] | None = None) -> None:
        """Write (weights, state) of tables; an interrupt waits, and after an error nothing trains
        until all tables are loaded."""
        staging = self._lifecycle.staging
        with uninterrupted():
            self._contents.check_open()
            try:
                for name, given in tables.items():
                    self._contents.assign(name, *given)
                if also is not None:
                    also()
            except BaseException as error:
                staging.broken = f"a load of {what} failed ({error or type(error).__name__})"
                self._loaded.clear()
                raise
            if what == "rows" or staging.broken.startswith(f"a load of {what}"):
                self._loaded |= tables.keys()
                if also is not None:
                    self._loaded |= {each.name for each in self.tables
                                     if self._contents.on_disk(each.name)}
                if what != "rows" or len(self._loaded) == len(self.tables):
                    staging.broken = ""
            if not staging.broken:
                self._loaded.clear()

    def _takes(self, given: torch.Tensor, expected: list[int]) -> bool:
        """Whether loading takes a tensor of that shape."""
        shape = list(given.shape)
        return shape == expected or (
            self.allow_fewer_rows and shape[1:] == expected[1:] and shape < expected)


def refusal(given: Any) -> str:
    """Why what is to be loaded cannot be copied into a table, in words; empty if it can."""
    what = no_elements(given) if isinstance(given, torch.Tensor) else type(given).__name__
    return what and f"is no dense tensor with contents, but {what}"


def load_others(module: nn.Module, state_dict: Mapping[str, Any], prefix: str,
                local_metadata: Any, strict: bool, missing_keys: list[str],
                error_msgs: list[str]) -> dict[str, Any]:
    """Call the hooks of a module, load what it has beside its tables, and return the others' part
    of the state dict."""
    with without_weight(module):
        nn.Module._load_from_state_dict(
            module, state_dict, prefix, local_metadata, strict, missing_keys, [], error_msgs)
        own = {*module._parameters, *module._buffers, *(
            name for name, each in module._modules.items() if not isinstance(each, NamedTables))}
    return {key: value for key, value in state_dict.items()
            if not key.startswith(prefix) or key[len(prefix):].partition(".")[0] not in own}
