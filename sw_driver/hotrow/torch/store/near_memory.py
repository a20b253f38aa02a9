"""Mode `near_memory`: the tables lie on the card, which pools bags and takes the step there.

A pooled row crosses the link for each bag, and its gradient goes back, with the bag's ids one way
and the list of its rows the other. A card adds in the order of the compiled passes, so that the
bits are those of mode `resident`. On the device `cpu`, whose memory is the host's, the mode is
`ResidentStore` itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from ...calls.batch_operands import StagedBatch
from ...calls.row_operands import StagedRows
from ...contract.errors import Error, HostWriteError, TransportError
from ...device import Device
from ...kernels.grouping import Grouper
from ...operands.batch import Batch
from ...operands.results import RowList
from ...system.interrupts import call_all, uninterrupted
from ..features.bags import Bags
from ..features.configs import TableConfig, TableGroup
from ..features.grouping import Request, Segment
from ..memory.slot_memory import SlotMemory
from ..optim.arithmetic import Stepping
from ..optim.card_bags import CardBags
from ..optim.gradients import LocatedRows, Staged, StagedGradients
from ..optim.rules import Rule
from .card_arithmetic import (
    ENTRY_BYTES,
    LENGTH_BYTES,
    NUMBER_BYTES,
    BagBuffer,
    check_rule,
    check_tables,
    need_arithmetic,
)
from .device_tables import DeviceTables, need_no_tables
from .in_flight import PendingBackward
from .statistics import CacheStatistics

_INSTEAD = "take mode 'resident' or 'scratchpipe'"
_WHAT = "rows of mode near_memory"
_Staged: TypeAlias = StagedBatch | StagedRows


def check_near(configs: Iterable[TableConfig], rule: Rule, several_ranks: bool) -> None:
    """Raise Error unless a card pools such tables and takes the step of the rule exactly.

    Parameters
    ----------
    configs : iterable of TableConfig
    rule : Rule
    several_ranks : bool
        Whether the tables are shared by ranks.
    """
    if several_ranks:
        raise Error(f"mode near_memory pools whole bags on one card, and ranks share the rows of a "
                    f"bag: {_INSTEAD}")
    mapped = next((config for config in configs if config.ids == "any"), None)
    if mapped is not None:
        raise Error(f"table {mapped.name!r} has ids='any', whose new rows the host writes: "
                    f"{_INSTEAD}")
    check_tables(configs, _INSTEAD)
    check_rule(rule, _WHAT, _INSTEAD)


@dataclass(eq=False)
class _Batch:
    """A batch between `prefetch` and `finish`."""

    request: Request
    staged: list[_Staged | None]  # bags of each segment on the card
    located: list[LocatedRows] = field(default_factory=list)
    pending: PendingBackward = field(default_factory=PendingBackward)

    def release(self) -> None:
        for each in self.staged:
            if each is not None:
                each.release()


class NearMemoryStore:
    """Pools and updates rows on a card; `flush` brings the tables in the host's memory up to date.

    Parameters
    ----------
    groups : sequence of TableGroup
    device : Device
        Without tables of its own.
    owns_device : bool
        Whether `close` closes the device.

    Attributes
    ----------
    statistics : CacheStatistics
        Lookups of batches that trained; `rows_moved` are pooled bags and gradients. There are no
        slots, and no hits.
    """

    several_ranks, card, ahead = False, None, 1

    def __init__(self, groups: Sequence[TableGroup], device: Device,
                 owns_device: bool = False) -> None:
        need_arithmetic(device, _WHAT, _INSTEAD)
        need_no_tables(device)
        device.clear_directory()  # rows of earlier tables would keep their numbers
        self.groups, self.device, self._owns_device = tuple(groups), device, owns_device
        self.slot_memory = SlotMemory()
        self._tables = DeviceTables(groups, device, [(0, 1)] * len(groups), card_only=True)
        self.on_card, self.statistics = self._tables.on_card, CacheStatistics(self._tables.names)
        self._groupers = [Grouper(len(group.tables.rows)) for group in self.groups]
        self._sums = [BagBuffer(device, group.kind.dim) for group in self.groups]
        self._gradients = [BagBuffer(device, group.kind.dim) for group in self.groups]
        self._coming: deque[_Batch] = deque()
        self._taken: deque[_Batch] = deque()

    # Batches.

    @property
    def waiting(self) -> int:
        return len(self._coming)

    def coming(self, bags: Bags | None = None) -> Request | None:
        if not self._coming or (bags is not None and not bags.lookups):
            return None
        return self._coming[0].request

    def open_batches(self) -> Iterator[tuple[Request, list[LocatedRows], PendingBackward]]:
        for batch in reversed(self._taken):
            yield batch.request, batch.located, batch.pending

    def prefetch(self, request: Request) -> None:
        """Send the rows of a batch to the card."""
        if not request.bags.lookups:
            return
        self._tables.check_open()
        batch = _Batch(request, [])
        try:
            for segment in request.segments:
                batch.staged.append(self._staged(segment) if segment.count else None)
        except BaseException:
            batch.release()
            raise
        self._coming.append(batch)

    def take(self, request: Request,
             begin: Callable[[], None] | None = None) -> tuple[list[LocatedRows], PendingBackward]:
        if not request.bags.lookups:
            return self.look(request), PendingBackward()
        if not self._coming:
            self.prefetch(request)
        if self.coming() is not request:
            raise Error("another batch was prefetched before this one: batches train in the order "
                        "of prefetch()")
        with uninterrupted():
            batch = self._coming.popleft()
            batch.located = [
                self._located(segment, _Pooler(self, segment, staged, counts=True))
                for segment, staged in zip(request.segments, batch.staged, strict=True)]
            self._taken.append(batch)
        if begin is not None:
            begin()
        return batch.located, batch.pending

    def look(self, request: Request) -> list[LocatedRows]:
        return [self._located(segment, None if self.closed else _Pooler(self, segment))
                for segment in request.segments]

    def _located(self, segment: Segment, pooler: _Pooler | None) -> LocatedRows:
        rows = self.groups[segment.group].tables.rows
        ids = segment.bags.ids[segment.lookups]
        if ids.dtype == torch.int32 and len(rows) <= torch.iinfo(torch.int32).max:
            flat = torch.empty_like(ids)  # of which `segment.flat` would be twice as large
            for part, own, first in zip(flat.split(segment.counts), ids.split(segment.counts),
                                        segment.first.tolist(), strict=True):
                torch.add(own, first, out=part)
        else:
            flat = segment.flat
        return LocatedRows(rows, flat, grouper=self._groupers[segment.group], pooler=pooler)

    def finish(self, holds_gradients: bool = False) -> None:
        while self._taken and not holds_gradients and self._taken[0].pending.done:
            self._taken.popleft().release()

    def abandon(self) -> None:
        while self._coming:
            self._coming.popleft().release()

    def observe(self, request: Request) -> None: ...

    # Rows.

    def _staged(self, segment: Segment) -> _Staged:
        """Send the ids of a segment, or a list of its rows to a card that reads no such ids."""
        tables = [self._tables.registered[table] for table in segment.tables]
        ids, geometry = segment.bags.ids[segment.lookups], self.device.geometry
        first, samples = tables[0].number, segment.bags.samples
        if (geometry.pools_batches and ids.dtype == torch.int32
                and samples <= geometry.batch_samples and segment.count <= geometry.batch_lookups
                and all(table.number == first + column for column, table in enumerate(tables))):
            batch = Batch.jagged(ids.numpy(), segment.lengths.numpy(), samples, tables,
                                 feature_major=True)
            batch.checked = tuple(table.rows for table in tables)
            return self.device.stage(batch)
        return self.device.stage_rows(self._tables.listed_lookups(segment), segment.lengths.numpy())

    def pool(self, segment: Segment, staged: _Staged | None, weights: torch.Tensor | None,
             counts: bool) -> torch.Tensor:
        """Sums of the bags of a segment: float32[bags, D].

        Parameters
        ----------
        segment : Segment
        staged : StagedBatch or StagedRows or None
            Its bags, if they are on the card.
        weights : float32[n], optional
        counts : bool
            Whether the batch trains.
        """
        bags, dim = len(segment.lengths), self.groups[segment.group].kind.dim
        if not segment.count:
            return torch.zeros(bags, dim)
        rows = staged or self._staged(segment)
        try:
            out = self._sums[segment.group].rows(bags) if self.device.reaches_host else None
            factors = None if weights is None else weights.detach().numpy()
            found = self.device.pool(rows, weights=factors, out=out)
        finally:
            if staged is None:
                rows.release()
        if counts:
            self._count(segment, NUMBER_BYTES if isinstance(rows, StagedBatch) else ENTRY_BYTES)
        return torch.from_numpy(found)

    def read(self, segment: Segment) -> torch.Tensor:
        """Rows of the lookups of a segment: float32[n, D]."""
        distinct, at = torch.unique(segment.flat, return_inverse=True)
        rows = self.device.gather(self._tables.listed(segment.group, distinct))
        return torch.from_numpy(rows)[at]

    def _count(self, segment: Segment, lookup_bytes: int) -> None:
        """Count a segment whose bags a batch that trains has pooled."""
        numbers = [self._tables.registered[table].number for table in segment.tables]
        bags = np.bincount(numbers, minlength=len(self._tables.names)) * segment.bags.samples
        self.statistics.looked_up(np.array(numbers), np.array(segment.counts))
        self.statistics.moved(bags, 4 * self.groups[segment.group].kind.dim)
        self.statistics.sent(lookup_bytes * segment.count + LENGTH_BYTES * len(segment.lengths))

    def step(self, staged: Sequence[StagedGradients], rule: Rule,
             finite: torch.Tensor | None = None) -> Callable[[], None]:
        self._tables.check_open()
        check_rule(rule, _WHAT, _INSTEAD)

        def change() -> None:
            for group, each in enumerate(staged):
                if each.values is not None:
                    flat = each.rows if each.places is None else each.places
                    self.apply(group, flat, each.values, rule, finite)
        return change

    def apply(self, group: int, flat: torch.Tensor, sums: torch.Tensor, rule: Stepping,
              finite: torch.Tensor | None = None) -> None:
        assert isinstance(rule, Rule), "a card takes steps of optimizers"
        self._update(group, flat, sums, rule, np.ones(len(flat), np.uint16),
                     lambda rows: rows.table)

    def apply_bags(self, group: int, staged: Staged, rule: Rule) -> None:
        assert isinstance(staged, CardBags) and staged.bags and staged.values is not None
        groups, lengths = staged.bags.groups, staged.bags.lengths
        places = groups.bags(lengths, len(staged.values))

        def tables_of(rows: RowList) -> NDArray[np.uint32]:
            numbers = groups.numbers
            if lengths is not None:  # those of the first lookup of each bag
                numbers = numbers[(lengths.cumsum(0) - lengths)[lengths > 0]]
            found: NDArray[np.uint32] = rows.table[numbers.numpy()]
            return found

        self._update(group, groups.distinct, staged.values, rule, groups.counts.numpy(), tables_of,
                     places)

    def _update(self, group: int, flat: torch.Tensor, values: torch.Tensor, rule: Rule,
                counts: NDArray[Any], tables_of: Callable[[RowList], NDArray[np.uint32]],
                places: NDArray[np.uint32] | None = None) -> None:
        """Take the step of flat rows int64[u], each with `counts` gradients of `values`, of tables
        that `tables_of` finds by the list of rows."""
        gradients = self._gradients[group].rows(len(values))
        torch.from_numpy(gradients).copy_(values)
        listed = self._tables.listed(group, flat.long())
        self.device.update(listed, gradients, rule.lr, optimizer=rule.name,
                           eps=getattr(rule, "eps", 0.0), slots=places, lengths=counts)
        self.statistics.moved(np.bincount(tables_of(listed), minlength=len(self._tables.names)),
                              4 * self.groups[group].kind.dim)
        self.statistics.sent((ENTRY_BYTES + LENGTH_BYTES) * len(listed)
                             + (0 if places is None else NUMBER_BYTES * len(places)))

    def flush(self) -> None:
        if self.closed:
            return
        with uninterrupted():
            try:
                self.device.flush()
            except HostWriteError:
                raise
            except Exception as error:
                if not self.on_card:
                    raise
                names = ", ".join(map(repr, self.on_card))
                raise TransportError(
                    f"{error}; rows of {names} that have trained since the last flush() are on "
                    f"the card alone, and the tables have their values of then") from error

    def upload(self) -> None:
        if not self.closed:
            self.device.upload()

    def reset(self) -> None: ...

    def reload(self) -> None: ...

    @property
    def closed(self) -> bool:
        """Whether the device was given back: rows are in the tables, and do not train."""
        return self._tables.closed

    def close(self) -> None:
        try:
            self._give_back()
        finally:
            if self._owns_device:
                self.device.close()

    def _give_back(self) -> None:
        """Leave the device without the collection's tables, as far as it answers; then raise the
        first error."""
        if self.closed:
            return
        buffers = (each.release for each in (*self._sums, *self._gradients))
        call_all((self.abandon, self._drop_taken, self.flush, *buffers, *self._tables.leave(),
                  self._tables.registered.clear))

    def _drop_taken(self) -> None:
        while self._taken:
            self._taken.popleft().release()


class _Pooler:
    """Pools the bags of one segment; other segments are parts of it, which a backward repeats."""

    def __init__(self, store: NearMemoryStore, segment: Segment,
                 staged: _Staged | None = None, counts: bool = False) -> None:
        self._store, self._segment, self._staged = store, segment, staged
        self._counts = counts

    def pool(self, segment: Segment, weights: torch.Tensor | None) -> torch.Tensor:
        counts, self._counts = self._counts, False
        return self._store.pool(
            segment, self._staged if segment is self._segment else None, weights, counts)

    def read(self, segment: Segment) -> torch.Tensor:
        return self._store.read(segment)
