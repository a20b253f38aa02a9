"""The tables of a collection in state dicts: rows for modules, state for their optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ...contract.errors import Error
from ..features.configs import TableConfig
from .contents import TableContents


class SavedState:
    """Puts tables into state dicts and loads them, while no slot holds a row.

    Parameters
    ----------
    tables : sequence of TableConfig
    contents : TableContents

    Attributes
    ----------
    allow_fewer_rows : bool
        Whether loading takes tables of fewer rows, and leaves the others as they are.
    """

    def __init__(self, tables: tuple[TableConfig, ...], contents: TableContents) -> None:
        self._tables = {config.name: config for config in tables}
        self.contents, self.allow_fewer_rows = contents, False

    def load(self, prefixes: Mapping[str, str], state_dict: Mapping[str, Any], prefix: str,
             strict: bool, missing_keys: list[str], unexpected_keys: list[str],
             error_msgs: list[str]) -> None:
        """Load rows of tables, by name with the prefix of their keys, as `nn.Module` loads."""
        # "rows" is of no elements, where somebody adds all parameters.
        known = {prefix + "_extra_state", prefix + "rows"}
        for name, of_table in prefixes.items():
            key, config = of_table + "weight", self._tables[name]
            known.add(key)
            given, shape = state_dict.get(key), [config.num_embeddings, config.embedding_dim]
            if given is None:
                missing_keys.append(key)
            elif self._takes(given, shape):
                self.contents.assign(name, given)
            else:
                fewer = given.shape[1:] == torch.Size(shape[1:]) and len(given) < shape[0]
                error_msgs.append(
                    f"{key} has shape {list(given.shape)}, and the table {shape}"
                    + "; allow_fewer_rows of the collection takes the first rows" * fewer)
        if strict:
            unexpected_keys += [key for key in state_dict
                                if key.startswith(prefix) and key not in known]

    def row_states(self) -> dict[str, torch.Tensor]:
        """State of each table that has any, by name; contiguous."""
        states = {name: self.contents.table(name)[1] for name in self._tables}
        return {name: self.contents.contiguous(name, state) for name, state in states.items()
                if state is not None}

    def load_row_states(self, states: Mapping[str, torch.Tensor]) -> None:
        """Set the state of every table."""
        own = self.row_states()
        if set(own) != set(states):
            raise Error(f"expected the state of tables {sorted(own)}, got {sorted(states)}")
        for name, state in states.items():
            if not self._takes(state, list(own[name].shape)):
                raise Error(f"the state of table {name!r} has shape {list(state.shape)}, and the "
                            f"table's has {list(own[name].shape)}")
        for name, state in states.items():
            self.contents.assign(name, state=state)

    def _takes(self, given: torch.Tensor, expected: list[int]) -> bool:
        """Whether loading takes a tensor of that shape."""
        shape = list(given.shape)
        return shape == expected or (
            self.allow_fewer_rows and shape[1:] == expected[1:] and shape < expected)
