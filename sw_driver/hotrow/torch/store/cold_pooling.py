"""Mode `hotline` with cold="pooled": the card pools and updates rows without a slot in the tables.

The card sums the bags whose rows are all cold, and takes the step on each cold row, by the
gradients of its bags. So a bag of cold rows crosses the link once each way, however many they are.
The trainer sums the other bags, whose cold rows it fetches: a sum has one order of additions,
wherever it is made.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...device import Device
from ..features.configs import TableGroup
from ..features.grouping import Segment
from ..optim.card_bags import StagedBags
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
from .in_flight import GroupTransfer
from .slot_map import SlotMap
from .statistics import CacheStatistics

_GATHER = "gather them (cold='gathered')"


class ColdPooling:
    """Pools the cold bags of batches and updates cold rows; statistics count a bag as a row.

    Raises
    ------
    Error
        The card has no arithmetic, or does not pool and update such tables exactly.
    """

    def __init__(self, groups: Sequence[TableGroup], device: Device, slot_map: SlotMap,
                 statistics: CacheStatistics, rule: Rule) -> None:
        need_arithmetic(device, "cold rows", _GATHER)
        check_rule(rule, "cold rows", _GATHER)
        for group in groups:
            check_tables(group.configs, "leave cold='pooled' out")
        self._device, self._slot_map, self._statistics = device, slot_map, statistics
        self._sums = [BagBuffer(device, group.kind.dim) for group in groups]
        self._gradients = [BagBuffer(device, group.kind.dim) for group in groups]
        # A row of zeros in the place of every cold row.
        self._zeros = [storage.reserve(1) for storage in slot_map.storages]
        for storage, place in zip(slot_map.storages, self._zeros, strict=True):
            storage.rows.array[place] = 0

    def separate(self, transfer: GroupTransfer) -> None:
        """Find the cold lookups of a GroupTransfer, of whose rows those of bags with a hot row are
        fetched."""
        segment, group, count = transfer.segment, transfer.segment.group, transfer.fills.bypassed
        storage, zero = self._slot_map.storages[group], self._zeros[group]
        transfer.cold = cold = transfer.places >= storage.slots
        if not count:
            return
        bags = _bags(segment)
        hot = torch.zeros(len(segment.lengths), dtype=torch.bool)
        hot[bags[~cold]] = True
        beside = cold & hot[bags]  # a hot row
        wanted = torch.unique(transfer.places[beside].long() - storage.slots)
        place_of = zero.expand(count).clone()
        transfer.bypass_places = place_of[wanted] = storage.reserve(len(wanted))

        def put(places: torch.Tensor, which: torch.Tensor) -> None:
            places[which] = place_of[places[which].long() - storage.slots].int()

        put(transfer.places, beside)
        transfer.places[cold & ~beside] = zero.int()
        put(transfer.fill_places, transfer.fill_places >= storage.slots)
        fetched, fills = transfer.fill_places != zero, transfer.fills
        transfer.fill_places, flat = transfer.fill_places[fetched], fills.flat[fetched]
        cold_rows = self._slot_map.counts(group, flat[transfer.fill_places >= storage.slots])
        transfer.fills = replace(fills, flat=flat, with_slot=fills.with_slot + cold_rows,
                                 without_slot=0 * fills.without_slot, bypassed=0, listed=None)

    def start(self, transfer: GroupTransfer) -> None:
        """Begin to pool the cold bags of a batch."""
        segment = transfer.segment
        sums = self._sums[segment.group].zeros(len(segment.lengths))
        transfer.sums = torch.from_numpy(sums)
        pooled = transfer.places == self._zeros[segment.group]
        bags = _bags(segment)[pooled]
        if not len(bags):
            return
        rows = self._slot_map.listed(segment.group, segment.flat[pooled], distinct=False)
        used, lengths = torch.unique_consecutive(bags, return_counts=True)
        if self._device.reaches_host:
            transfer.pooling = self._device.pool_async(rows, lengths, out=sums, slots=used), None
        else:  # over the link come the sums alone
            transfer.pooling = self._device.pool_async(rows, lengths), used
        first = (lengths.cumsum(0) - lengths).numpy()
        self._count_bags(segment.group, rows.table[first])
        self._statistics.sent(
            ENTRY_BYTES * len(rows) + (LENGTH_BYTES + NUMBER_BYTES) * len(used))

    def finish(self, transfer: GroupTransfer) -> None:
        """Wait for the sums of a batch."""
        if transfer.pooling is not None:
            pooling, used = transfer.pooling
            found = pooling.result()
            if used is not None and transfer.sums is not None:
                transfer.sums[used] = torch.from_numpy(found)
            transfer.pooling = None

    def apply(self, group: int, staged: StagedBags, rule: Rule) -> None:
        """Update the rows of StagedBags in the tables of a group."""
        values = staged.values
        assert values is not None, "nothing is staged"
        gradients = self._gradients[group].rows(len(values))
        torch.from_numpy(gradients).copy_(values)
        rows = self._slot_map.listed(group, staged.rows, distinct=False)
        self._device.update(rows, gradients, rule.lr, optimizer=rule.name,
                            eps=getattr(rule, "eps", 0.0), slots=staged.bags)
        used = np.unique(staged.bags.numpy(), return_index=True)[1]
        self._count_bags(group, rows.table[used])
        self._statistics.sent((ENTRY_BYTES + NUMBER_BYTES + LENGTH_BYTES) * len(rows))

    def close(self) -> None:
        for buffer in (*self._sums, *self._gradients):
            buffer.release()

    def _count_bags(self, group: int, tables: NDArray[Any]) -> None:
        self._statistics.moved(np.bincount(tables, minlength=len(self._slot_map.names)),
                               4 * self._slot_map.groups[group].kind.dim)


def _bags(segment: Segment) -> torch.Tensor:
    """Bag of each lookup: int64[n]."""
    return torch.repeat_interleave(torch.arange(len(segment.lengths)), segment.lengths)
