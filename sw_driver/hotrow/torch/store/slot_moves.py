"""Rows between tables and slots, which a device moves with no copy between them."""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from ...contract.errors import RegistrationError
from ...device import Device
from ...memory.buffer import Buffer
from ...operands.results import RowList
from ..features.configs import TableGroup
from ..memory.rows import Rows
from ..memory.slot_memory import SlotMemory
from .slot_map import SlotMap


class SlotMoves:
    """GATHER to slots and SCATTER from slots, where tables and slots are in host memory that the
    device reaches.

    Parameters
    ----------
    groups : sequence of TableGroup
    device : Device
    slot_map : SlotMap
    memory : SlotMemory

    Attributes
    ----------
    direct : list of bool
        Whether rows of each group move so.
    """

    def __init__(self, groups: Sequence[TableGroup], device: Device, slot_map: SlotMap,
                 memory: SlotMemory) -> None:
        self._device, self._slot_map = device, slot_map
        self._registered: list[tuple[Rows | None, list[Buffer]]] = [(None, []) for _ in groups]
        self.direct = [device.reaches_host and not memory.asynchronous
                       and group.tables.disk is None for group in groups]
        for number, direct in enumerate(self.direct):
            if direct:
                self._slots(number)
                self.direct[number] = bool(self._registered[number][1])

    def gather(self, group: int, flat: Tensor, places: Tensor,
               listed: RowList | None = None) -> None:
        """Fetch distinct flat rows int64[n] to distinct places, integers [n], among the slots;
        `listed` are the rows by the device's tables, if that is known."""
        rows = self._slots(group)
        self._device.gather(listed or self._slot_map.listed(group, flat), out=rows.array,
                            slots=places.numpy().astype(np.uint32, copy=False),
                            state_out=rows.side)

    def scatter(self, group: int, flat: Tensor, slots: Tensor,
                listed: RowList | None = None) -> None:
        """Write the rows in slots to the tables; arguments as in `gather`."""
        rows = self._slots(group)
        self._device.scatter(listed or self._slot_map.listed(group, flat), rows.array,
                             slots=slots.numpy().astype(np.uint32, copy=False), state=rows.side)

    def close(self) -> None:
        """Leave the device without the memory of slots."""
        for group in range(len(self._registered)):
            self._leave(group)

    def _slots(self, group: int) -> Rows:
        """The rows of a group's slots, which may have grown, registered if a handle is free."""
        rows = self._slot_map.storages[group].rows
        if self._registered[group][0] is not rows:
            self._leave(group)
            try:
                for array in (rows.array, rows.side):
                    if array is not None:
                        self._registered[group][1].append(self._device.register(array))
            except RegistrationError:
                self._leave(group)
            self._registered[group] = rows, self._registered[group][1]
        return rows

    def _leave(self, group: int) -> None:
        _, buffers = self._registered[group]
        while buffers:
            self._device.unregister(buffers.pop())
        self._registered[group] = None, []
