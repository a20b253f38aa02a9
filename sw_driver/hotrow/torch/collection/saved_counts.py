"""Access counts of a device in the state dict of the optimizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ...contract.errors import Error
from ..features.configs import TableConfig
from ..store.base import Store
from .cache import Cache
from .saved_state import refusal

_INTEGERS = frozenset((torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64))
_MOST = (1 << 32) - 1  # lookups of a row that a count holds
_WITHOUT = "take access_counts out of the state to load it without"


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
        card = self._store.card
        if card is None or card.closed:
            return []
        return [card.device_table(number) for number in range(len(self._tables))]


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
    if refusal(counts):
        raise Error(f"access_counts {refusal(counts)}")
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
                        f"some of {', '.join(map(repr, own))}; {_WITHOUT}")
        number, config = own[name]
        rows = counts[1, chosen]
        strange = rows[(rows < 0) | (rows >= config.num_embeddings)].tolist()
        if strange:
            raise Error(f"the access counts are of row {strange[0]} of table {config.name!r}, "
                        f"which has {config.num_embeddings}; {_WITHOUT}")
        found[0, chosen] = number
    return found
