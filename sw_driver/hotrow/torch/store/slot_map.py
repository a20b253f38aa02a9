"""Between a device's numbers of tables and slots and those of each group."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...contract.errors import Error
from ...device import Device
from ...kernels.copying import Places, place_slots
from ...kernels.listing import ListedRows, select_rows
from ...operands.batch import Batch
from ...operands.results import PlacedRows, RowList, Words
from ..features.bags import Bags
from ..features.configs import TableGroup
from ..features.grouping import Segment
from ..memory.slot_memory import SlotMemory
from ..memory.slots import SlotStorage
from .device_tables import DeviceTables
from .in_flight import GroupTransfer
from .placement_policy import Placement

_FIRST_AREA = 64  # rows of a group's bypass area at first
_NO_PLACES = torch.empty(0, dtype=torch.int64, device="cpu")


class SlotMap(DeviceTables):
    """Puts the groups' tables on a device; every group gets a part of the directory.

    Attributes
    ----------
    storages : list of SlotStorage
        One per group.
    slots, directory_slots : int
        Slots of all groups, and of the whole directory.

    Raises
    ------
    Error
        The directory of the device has too few parts.
    """

    def __init__(self, groups: Sequence[TableGroup], device: Device, share: int,
                 memory: SlotMemory) -> None:
        geometry, parts = device.geometry, share
        while parts < share * len(groups):
            parts *= 2
        if parts > geometry.directory_partitions:
            raise Error(f"{len(groups)} kinds of tables, {share} parts of the directory: this "
                        f"card's directory has {geometry.directory_partitions} parts")
        super().__init__(groups, device, [(index, parts) for index in range(len(groups))])
        self.directory_slots = geometry.slots
        self._per_choice = geometry.slots // geometry.directory_choices
        self._part = self._per_choice // parts
        self.storages = [SlotStorage(geometry.slots // parts, _FIRST_AREA, group.kind,
                                     len(group.tables.rows), memory) for group in self.groups]
        self._first = np.concatenate([group.tables.first for group in self.groups])
        self._group_of = np.array([index for index, group in enumerate(self.groups)
                                   for _ in group.numbers], np.int32)
        self._none = select_rows(np.empty(0, np.uint64), np.empty(0, np.uint32), self._group_of,
                                 self._first, 0, self.directory_slots)
        # By tables of the last batch of one id a bag: the device's tables, and their rows.
        self._dense: dict[tuple[int, ...], tuple[Any, tuple[int, ...]]] = {}
        # By samples and tables of the last batch of one id a bag: lookups by the device's table.
        self._lookups: tuple[tuple[int, tuple[int, ...]], NDArray[np.int64]] | None = None
        self.slots = sum(storage.slots for storage in self.storages)

    def batch(self, bags: Bags) -> Batch:
        """The device's form of Bags that are `grouped`: Batch."""
        known = self._dense.get(bags.tables) if bags.dense else None
        if known is None:
            batch = bags.device_batch(self.registered)
            if bags.dense and batch.table_count == bags.features:
                self._dense = {bags.tables: (batch.tables, batch.checked)}
            return batch
        tables, rows = known
        batch = Batch(bags.ids.numpy(), None, bags.samples, bags.features, tables, True)
        batch.checked = rows
        return batch

    def counts(self, group: int, flat: torch.Tensor) -> NDArray[np.int64]:
        """Flat rows int64[n] of a group by the device's table: int64[tables]."""
        return np.bincount(self.listed(group, flat).table, minlength=len(self.names))

    def lookups(self, bags: Bags) -> NDArray[np.int64]:
        """Lookups of Bags by the device's table: int64[tables]."""
        dense, key = bags.dense, (bags.samples, bags.tables)
        if dense and self._lookups is not None and self._lookups[0] == key:
            return self._lookups[1]
        found = np.zeros(len(self.names), np.int64)
        np.add.at(found, [self.registered[each].number for each in bags.tables], bags.counts)
        if dense:
            self._lookups = key, found
        return found

    def rows_of(self, group: int, rows: RowList) -> tuple[NDArray[np.bool_], torch.Tensor]:
        """Which rows of a RowList belong to a group, bool[n], and their flat rows."""
        chosen = self._group_of[rows.table] == group
        return chosen, self.flat(RowList(rows.table[chosen], rows.row[chosen]))

    def local(self, group: int, slots: Words) -> torch.Tensor:
        """Slots int64[n] of a group's part of the directory, from 0 on."""
        choice, within = np.divmod(slots.astype(np.int64), self._per_choice)
        return torch.from_numpy(choice * self._part + within - group * self._part)

    def new_places(self, segments: Sequence[Segment], lookups: int) -> Places:
        """Memory for the places of a batch, and what they depend on: Places."""
        return Places([(each.lookups.start, each.lookups.stop, each.group * self._part)
                       for each in segments], lookups, self._part, self._per_choice)

    def transfer(self, segment: Segment, placement: Placement, placed: Places, flag: int,
                 reserve: bool) -> GroupTransfer:
        """The part of a placement that concerns a segment's group: GroupTransfer.

        `placed` has the places if every row had a slot and the device wrote them, `flag` is that of
        the policy.
        Places for rows without a slot are reserved, or, without `reserve`, are those after the
        slots.
        """
        group, directory = segment.group, self.directory_slots
        storage, none = self.storages[group], self._none
        if placed.placed:
            return GroupTransfer(segment, placed.tensor[segment.lookups], none, _NO_PLACES, none,
                                 _NO_PLACES, _NO_PLACES)
        slots = placement.slots if len(self.groups) == 1 else placement.slots[segment.lookups]
        if not len(placement.fills) and not len(placement.evictions):
            return GroupTransfer(segment, self._placed_slots(group, slots, _NO_PLACES, flag), none,
                                 _NO_PLACES, none, _NO_PLACES, _NO_PLACES)
        fills = self._listed(group, placement.fills)
        victims = self._listed(group, placement.evictions)
        count = fills.bypassed
        places = (storage.reserve(count) if reserve else storage.slots + torch.arange(count))
        area = places
        if count and len(self.groups) > 1:  # numbers are those of all groups
            area = torch.full((len(placement.fills),), -1)
            without = fills.slots[fills.slots >= directory] - np.uint32(directory)
            area[torch.from_numpy(without.astype(np.int64))] = places
        return GroupTransfer(
            segment, self._placed_slots(group, slots, area, flag), fills,
            self._placed_slots(group, fills.slots, area), victims,
            self._placed_slots(group, victims.slots, area), places)

    def _placed_slots(self, group: int, slots: Words, area: torch.Tensor,
                      flag: int = 0) -> torch.Tensor:
        """Places of slots of a group in its storage: int32[n]."""
        return place_slots(slots, area, directory=self.directory_slots,
                           per_choice=self._per_choice, part=self._part,
                           first=group * self._part, flag=flag)

    def _listed(self, group: int, placed: PlacedRows) -> ListedRows:
        """A group's rows of PlacedRows: ListedRows."""
        if not len(placed):
            return self._none
        listed = None
        if len(self.groups) == 1:
            listed = RowList(placed.table, placed.row, tables=self.table_sets[group],
                             entries=placed.entries, address=placed.address)
        return select_rows(placed.keys, placed.slots, self._group_of, self._first, group,
                           self.directory_slots, listed)

    def flat(self, rows: RowList) -> torch.Tensor:
        """Flat rows int64[n] of a RowList by the device's tables, in the group of each."""
        return torch.from_numpy(self._first[rows.table] + rows.row)
