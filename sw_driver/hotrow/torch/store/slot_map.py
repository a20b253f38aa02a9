"""Between a device's numbers of tables and slots and those of each group."""

import numpy as np
import torch

from ...errors import Error
from ...kernels.copying import place_slots
from ...results import RowList
from ..memory.slots import SlotStorage
from .in_flight import GroupTransfer

_FIRST_AREA = 64  # rows of a group's bypass area at first


class SlotMap:
    """Registers the groups' tables with a device; every group gets a part of the directory.

    Attributes
    ----------
    registered : dict of int to Table
        By number of the collection's table.
    storages : list of SlotStorage
        One per group.
    slots, directory_slots : int
        Slots of all groups, and of the whole directory.
    names : list of str
        Names of the tables, by the device's numbers.

    Raises
    ------
    Error
        The device has tables; its directory has too few parts.
    """

    def __init__(self, groups, device, share, memory):
        if device.tables:
            raise Error(f"the device has tables already ({len(device.tables)}): open one for the "
                        f"collection alone, or unregister them")
        geometry, parts = device.geometry, share
        while parts < share * len(groups):
            parts *= 2
        if parts > geometry.directory_partitions:
            raise Error(f"{len(groups)} kinds of tables, {share} parts of the directory: this "
                        f"card's directory has {geometry.directory_partitions} parts")
        self.groups, self.directory_slots = tuple(groups), geometry.slots
        self._per_choice = geometry.slots // geometry.directory_choices
        self._part = self._per_choice // parts
        self.storages, self.registered, where = [], {}, []
        for index, group in enumerate(groups):
            for local, number in enumerate(group.numbers):
                array, side = group.tables.device_arrays(local)
                self.registered[number] = device.register_table(
                    array, name=group.configs[local].name, state=side, partition=(index, parts))
                where.append((index, local))
            self.storages.append(SlotStorage(geometry.slots // parts, _FIRST_AREA, group.kind,
                                             len(group.tables.rows), memory))
        self._where = np.array(where)
        self._first = np.array([groups[index].tables.first[local] for index, local in where],
                               np.int64)
        self.names = [group.configs[local].name for group in self.groups
                      for local in range(len(group.numbers))]
        self.slots = sum(storage.slots for storage in self.storages)

    def listed(self, group, flat):
        """Flat rows int64[n] of a group by the device's tables: RowList."""
        rows = self.groups[group].tables.locate(flat)
        first = self.registered[self.groups[group].numbers[0]].number
        return RowList(rows.table + np.uint32(first), rows.row)

    def rows_of(self, group, rows):
        """Which rows of a RowList belong to a group, bool[n], and their flat rows."""
        chosen = self._where[rows.table, 0] == group
        return chosen, self.flat(RowList(rows.table[chosen], rows.row[chosen]))

    def local(self, group, slots):
        """Slots int64[n] of a group's part of the directory, from 0 on."""
        choice, within = np.divmod(slots.astype(np.int64), self._per_choice)
        return torch.from_numpy(choice * self._part + within - group * self._part)

    def transfer(self, segment, placement, reserve):
        """The part of a Placement that concerns a segment's group: GroupTransfer.

        Places for rows without a slot are reserved, or, without `reserve`, are those after the
        slots.
        """
        group, directory = segment.group, self.directory_slots
        storage = self.storages[group]
        fills, fill_slots = self._part_of(group, placement.fills)
        victims, victim_slots = self._part_of(group, placement.evictions)
        bypassed = torch.from_numpy((fill_slots[fill_slots >= directory] - directory).astype(
            np.int64))
        places = (storage.reserve(len(bypassed)) if reserve
                  else storage.slots + torch.arange(len(bypassed)))
        area = torch.full((len(placement.fills),), -1)
        area[bypassed] = places

        def place(slots):
            return place_slots(slots, area, directory=directory, per_choice=self._per_choice,
                               part=self._part, first=group * self._part)

        return GroupTransfer(
            segment, place(placement.slots[segment.lookups]), self.flat(fills), fills.table,
            place(fill_slots), self.flat(victims), victims.table, place(victim_slots), places)

    def _part_of(self, group, placed):
        """A group's rows of PlacedRows, and their slots: (RowList, uint32[k])."""
        table, row, slots = placed.table, placed.row, placed.slots
        if len(self.groups) > 1:
            chosen = self._where[table, 0] == group
            table, row, slots = table[chosen], row[chosen], slots[chosen]
        return RowList(table, row), slots

    def flat(self, rows):
        """Flat rows int64[n] of a RowList by the device's tables, in the group of each."""
        return torch.from_numpy(self._first[rows.table] + rows.row)
