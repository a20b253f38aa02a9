"""The slots as a cache of the tables: access counts, and rows that get slots between two steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from ...contract.errors import BatchError, Error
from ...operands.integers import whole
from ...operands.results import HotRows, RowList
from ..features.configs import TableConfig
from ..features.inputs import integers
from ..features.layout import Result
from ..store.base import Store
from .lifecycle import Lifecycle

WARMUP_RATIO = 0.7  # of the slots, as CachedEmbedding warms them

# A table's number, rows of it, each once, and the rank of each: the lowest is wanted most.
RankedRows: TypeAlias = tuple[int, NDArray[np.int64], NDArray[np.float64]]


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
        """As `HotEmbeddingBagCollection.learn`; all is checked before anything changes.

        Raises
        ------
        BatchError
            What is given for a table is no list, array or tensor of one dimension of integers, a
            row is no row of its table, or one is listed twice.
        Error
            There is no such table, `ids_freq_mapping` has no count, from 0 on, of each row of a
            table, `warmup_ratio` is none of 0 to 1, `limit` is negative or more than the slots,
            the collection is closed, or batches are in flight.
        """
        number, ranked = self.agree(
            lambda: self._checked(rows, warmup_ratio, ids_freq_mapping, limit, decay),
            "no slots were given, because of the arguments")
        if self._store.card is None:
            return 0
        self._lifecycle.finish()
        return self.agree(lambda: self._give(number, ranked, decay),
                          "no slots were given, because of the card")

    def _checked(self, rows: Mapping[str, Any] | None, warmup_ratio: float | None,
                 ids_freq_mapping: Mapping[str, Any] | None, limit: int | None,
                 decay: int) -> tuple[int, list[RankedRows] | None]:
        """The slots to fill, and the rows to choose from; None for those that the device counted.

        Raises
        ------
        Error
        """
        card = self._store.card
        if card is not None and card.closed:
            raise Error("the collection is closed, and its rows have no slots: call learn() before "
                        "close()")
        if whole(decay, "decay") < 0:
            raise Error(f"decay is a number of binary places, 0 or more, not {decay}")
        number = self._number(warmup_ratio, limit)
        if ids_freq_mapping is not None:
            return number, [self._counted(*each) for each in self._given(
                ids_freq_mapping, "ids_freq_mapping")]
        if rows is not None:
            return number, [self._listed(*each) for each in self._given(rows, "rows")]
        return number, None

    def _number(self, warmup_ratio: float | None, limit: int | None) -> int:
        """The slots to fill."""
        if warmup_ratio is not None and not _is_share(warmup_ratio):
            raise Error(f"warmup_ratio is a share of the slots, 0 to 1, not {warmup_ratio!r}")
        slots = 0 if self._store.card is None else self._store.card.slots
        if limit is None:
            if warmup_ratio is None:
                warmup_ratio = 1.0 if self._mode == "hotline" else WARMUP_RATIO
            return max(1, int(warmup_ratio * slots))
        limit = whole(limit, "limit")
        if limit < 0:
            raise Error(f"limit is a number of slots, 0 or more, not {limit}: leave it out for "
                        f"warmup_ratio")
        if limit > slots and self._store.card is not None:
            raise Error(f"{limit:,} hot rows do not fit: the card's directory holds {slots:,}")
        return limit

    def _given(self, arrays: Mapping[str, Any], what: str) -> list[tuple[int, TableConfig, Any]]:
        """What a mapping has for each table that it names: list of (number, TableConfig, it)."""
        if not isinstance(arrays, Mapping):
            raise Error(f"{what} is a dict by the names of tables, not {type(arrays).__name__}")
        names = [config.name for config in self._tables]
        for name in arrays:
            if name not in names:
                raise Error(f"there is no table {name!r}: expected some of {', '.join(names)}")
        return [(number, config, arrays[config.name])
                for number, config in enumerate(self._tables) if config.name in arrays]

    def _listed(self, number: int, config: TableConfig, values: Any) -> RankedRows:
        """Rows of a table that the caller listed, the first ones wanted most."""
        rows = _listed_rows(number, config, values)
        _, own = self.owned(config.name, rows)
        return number, own, np.arange(len(own), dtype=np.float64)

    def _counted(self, number: int, config: TableConfig, values: Any) -> RankedRows:
        """Rows of a table that were accessed, the most accessed wanted most."""
        counts = _counts(config, values)
        rows = np.flatnonzero(counts > 0)
        mine, own = self.owned(config.name, rows)
        return number, own, -counts[rows[mine]].astype(np.float64)

    def _give(self, number: int, ranked: list[RankedRows] | None, decay: int) -> int:
        """Give slots to at most so many rows: how many have one."""
        card = self._store.card
        assert card is not None, "there are slots"
        card.window.need_idle("give slots to other rows")
        if ranked is None:
            hot = card.filling.hottest(max(1, number), decay)
            return card.filling.warm(RowList(hot.table[:number], hot.row[:number]))
        return card.filling.warm(_first(
            [(card.device_table(table), rows, ranks) for table, rows, ranks in ranked], number))

    # Parts that are others where several processes share the rows.

    def agree(self, call: Callable[[], Result], what: str) -> Result:
        """The result of `call()`, which all processes make; `what` says what failed."""
        return call()

    def owned(self, name: str, rows: NDArray[np.int64]) -> tuple[NDArray[np.bool_],
                                                                 NDArray[np.int64]]:
        """Which of a table's rows int64[n] this process has, bool[n], and their numbers here."""
        return np.ones(len(rows), np.bool_), rows

    def access_counts(self) -> torch.Tensor | None:
        """The device's access counts: int64[3, n], tables, rows and counts; None without any, and
        after `close`."""
        card = self._store.card
        counted = None if card is None or card.closed else card.device.counts()
        if not counted:
            return None
        return torch.from_numpy(
            np.stack((counted.table, counted.row, counted.count)).astype(np.int64))

    def set_access_counts(self, counts: torch.Tensor) -> None:
        """Set the device's access counts, if there is a device, to those of `access_counts`."""
        if self._store.card is not None:
            table, row, count = counts.numpy().astype(np.uint32)
            self._store.card.device.set_counts(HotRows(table, row, count, cycles=0))


def _is_share(ratio: Any) -> bool:
    try:
        return bool(0 <= ratio <= 1)
    except (TypeError, ValueError, RuntimeError):  # no number
        return False


def _listed_rows(number: int, config: TableConfig, values: Any) -> NDArray[np.int64]:
    """Rows of a table as a caller lists them: int64[n].

    Raises
    ------
    BatchError
        They are no integers of one dimension, one is no row of the table, or one is listed twice.
    """
    if isinstance(values, range):
        values = np.arange(values.start, values.stop, values.step)
    rows: NDArray[np.int64] = integers(values, f"rows of table {config.name!r}").long().numpy()
    wrong = np.flatnonzero((rows < 0) | (rows >= config.num_embeddings))
    if wrong.size:
        at = int(wrong[0])
        ids = (f". The rows of its ids are id_maps.maps[{number}].find(ids)"
               if config.ids == "any" else "")
        raise BatchError(f"{rows[at]} is no row of table {config.name!r} (position {at} of its "
                         f"list): expected 0 to {config.num_embeddings - 1}{ids}", position=at,
                         table=number, row=int(rows[at]))
    order = np.argsort(rows, kind="stable")
    again = order[1:][rows[order[1:]] == rows[order[:-1]]]
    if again.size:
        at = int(again.min())
        first = int(np.flatnonzero(rows == rows[at])[0])
        raise BatchError(f"row {rows[at]} of table {config.name!r} is listed twice (positions "
                         f"{first} and {at} of its list): list each row once, the most accessed "
                         f"first", position=at, table=number, row=int(rows[at]))
    return rows


def _counts(config: TableConfig, values: Any) -> NDArray[Any]:
    """How often each row of a table is accessed: numbers [rows].

    Raises
    ------
    Error
        They are no numbers from 0 on, or not as many as the table has rows.
    """
    expected = (f"expected how often each of the {config.num_embeddings} rows of table "
                f"{config.name!r} is accessed")
    try:
        counts = np.asarray(values.detach().to("cpu", torch.float64)
                            if isinstance(values, torch.Tensor) else values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise Error(f"{expected}, got {type(values).__name__} ({error})") from error
    if counts.dtype.kind not in "biuf" or counts.shape != (config.num_embeddings,):
        raise Error(f"{expected}, got {type(values).__name__} of shape {list(counts.shape)} and "
                    f"{counts.dtype}")
    wrong = np.flatnonzero(~(counts >= 0))
    if wrong.size:
        raise Error(f"{expected}, a number from 0 on, got {counts[wrong[0]]} for row {wrong[0]}")
    return counts


def _first(lists: Sequence[RankedRows], limit: int) -> RowList:
    """At most `limit` rows, the lowest ranks first: RowList. On a tie the first table wins, and of
    one table the row that is listed first.

    Parameters
    ----------
    lists : sequence of (int, int64[n], float64[n])
        The device's number of a table, rows of it, each once, and the rank of each.
    limit : int
    """
    none = np.empty(0, np.int64)
    table = np.concatenate([none, *(np.full(len(rows), number) for number, rows, _ in lists)])
    row = np.concatenate([none, *(rows for _, rows, _ in lists)])
    rank = np.concatenate([none.astype(np.float64), *(ranks for _, _, ranks in lists)])
    first = np.argsort(rank, kind="stable")[:limit]
    return RowList(table[first].astype(np.uint32), row[first].astype(np.uint32))
