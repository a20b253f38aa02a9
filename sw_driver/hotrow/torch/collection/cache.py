"""The slots as a cache of the tables: access counts, and rows that get slots between two steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...contract.errors import Error
from ...operands.results import HotRows, RowList
from ..features.configs import TableConfig
from ..store.base import Store
from .lifecycle import Lifecycle

WARMUP_RATIO = 0.7  # of the slots, as CachedEmbedding warms them


class Cache:
    """The slots as a cache of the tables.

    Parameters
    ----------
    tables : sequence of TableConfig
    mode : str
        Of the collection.
    store : Store
    lifecycle : Lifecycle
    """

    def __init__(self, tables: Sequence[TableConfig], mode: str, store: Store,
                 lifecycle: Lifecycle) -> None:
        self._tables, self._mode = tables, mode
        self._store, self._lifecycle = store, lifecycle

    def learn(self, rows: Mapping[str, Any] | None = None, warmup_ratio: float | None = None,
              ids_freq_mapping: Mapping[str, Any] | None = None, limit: int | None = None,
              decay: int = 0) -> int:
        """As `HotEmbeddingBagCollection.learn`."""
        if self._mode == "resident":
            return 0
        store = self._store
        if limit is None:
            if warmup_ratio is None:
                warmup_ratio = 1.0 if self._mode == "hotline" else WARMUP_RATIO
            limit = max(1, int(warmup_ratio * store.slots))
        if limit > store.slots:
            raise Error(f"{limit:,} hot rows do not fit: the card's directory holds "
                        f"{store.slots:,}")
        self._lifecycle.finish()
        if ids_freq_mapping is not None:
            return store.warm(_first([(number, np.flatnonzero(counts > 0),
                                       -counts[counts > 0].astype(np.float64))
                                      for number, counts in self._by_number(ids_freq_mapping)],
                                     limit))
        if rows is not None:
            return store.warm(_first([(number, ranked, np.arange(len(ranked)))
                                      for number, ranked in self._by_number(rows)], limit))
        return store.warm(store.hottest(limit, decay))

    def _by_number(self, arrays: Mapping[str, Any]) -> list[tuple[int, NDArray[Any]]]:
        """Arrays by the tables' names, as (the device's number, array) in order of the tables."""
        names = [config.name for config in self._tables]
        unknown = set(arrays) - set(names)
        if unknown:
            raise Error(f"there is no table {sorted(unknown)[0]!r}: expected some of "
                        f"{', '.join(names)}")
        return [(self._store.device_table(number), np.asarray(arrays[name]))
                for number, name in enumerate(names) if name in arrays]

    @property
    def counters(self) -> int:
        """Access counters of the device, 0 without one."""
        return self._store.device.geometry.counter_entries if self._store.device else 0

    def access_counts(self) -> torch.Tensor | None:
        """The device's access counts: int64[3, n], tables, rows and counts; None without any."""
        counted = self._store.device and self._store.device.counts()
        if not counted:
            return None
        return torch.from_numpy(
            np.stack((counted.table, counted.row, counted.count)).astype(np.int64))

    def set_access_counts(self, counts: torch.Tensor) -> None:
        """Set the device's access counts, if there is a device, to those of `access_counts`."""
        if self._store.device is not None:
            table, row, count = counts.numpy().astype(np.uint32)
            self._store.device.set_counts(HotRows(table, row, count, cycles=0))


def _first(lists: Sequence[tuple[int, NDArray[Any], NDArray[Any]]], limit: int) -> RowList:
    """At most `limit` rows, the lowest ranks first: RowList. On a tie the first table wins, and of
    one table the row that is listed first.

    Parameters
    ----------
    lists : sequence of (int, integers [n], numbers [n])
        Number of a table, rows of it, and the rank of each.
    limit : int

    Raises
    ------
    Error
        A number is no row of any table.
    """
    table = np.concatenate([np.full(len(rows), number) for number, rows, _ in lists])
    row = np.concatenate([rows for _, rows, _ in lists])
    rank = np.concatenate([ranks for _, _, ranks in lists])
    strange = row[row != row.astype(np.uint32)]
    if strange.size:
        raise Error(f"{strange[0]} is no row: hot rows are numbers of rows, also of tables with "
                    f"ids='any', whose id_maps.maps[table's number].find(ids) has them")
    first = np.argsort(rank, kind="stable")[:limit]
    return RowList(table[first].astype(np.uint32), row[first].astype(np.uint32))
