"""Trained rows from their slots to the tables."""

from __future__ import annotations

import warnings
from threading import RLock

import torch

from ...contract.errors import HostWriteError, TransportError
from ...device import Device
from ...system.interrupts import uninterrupted
from ..memory.rows import Rows
from ..memory.slot_memory import SlotMemory
from ..memory.slots import SlotStorage
from .batch_stages import BatchStages
from .host_tables import HostTables, WriteRows
from .in_flight import BatchWindow
from .row_updates import RowUpdates
from .slot_map import SlotMap


class WriteBack:
    """Writes trained rows through the device, and without it where it fails.

    Its parameters are parts of a `CachedStore`.
    """

    def __init__(self, device: Device, slot_map: SlotMap, host: HostTables, window: BatchWindow,
                 updates: RowUpdates, batch_stages: BatchStages, memory: SlotMemory,
                 lock: RLock) -> None:
        self._device, self._slot_map, self._host, self._window = device, slot_map, host, window
        self._updates, self._batch_stages, self._memory = updates, batch_stages, memory
        self._lock, self._storages = lock, slot_map.storages
        self._flushed = 0  # batches that had trained at the last flush

    def flush(self) -> None:
        """As `Store.flush`."""
        with uninterrupted(), self._lock:
            try:
                self._host.land()
                self._write_all(self._host.write)
                if self._slot_map.registered:
                    self._device.flush()
                    self._flushed = self._window.finished
            except HostWriteError:
                raise
            except BaseException as error:
                self._directly(error)
                if not isinstance(error, Exception):
                    raise

    def _directly(self, error: BaseException) -> None:
        """Write trained rows to the tables without the device, which did not."""
        self._host.land_directly()
        self._write_all(self._host.write_directly)
        names = ", ".join(repr(name) for name in self._slot_map.on_card)
        if not names:
            warnings.warn(f"the device did not write trained rows to the tables ({error}): the "
                          f"host has written them, and none is lost", stacklevel=5)
            return
        raise TransportError(
            f"{error}; rows of {names} that left their slots after batch {self._flushed - 1} and "
            f"up to batch {self._window.finished - 1} are on the card alone, and the tables have "
            f"their values of the last flush(); all other rows are up to date") from error

    def _write_all(self, write: WriteRows) -> None:
        """Write the rows that were trained to the tables."""
        for group, places in self._updates.owing():
            storage = self._storages[group]
            write(group, storage.bypassed_rows(places), self.read(storage, places))
        for group, storage in enumerate(self._storages):
            for flat, slots in storage.chunks(dirty=True):
                self.write_slots(group, flat, slots, write)

    def write_slots(self, group: int, flat: torch.Tensor, slots: torch.Tensor,
                    write: WriteRows) -> None:
        """Write the rows of slots to the tables of a group, through `HostTables`."""
        if len(flat):
            storage = self._storages[group]
            write(group, flat, self.read(storage, slots))
            storage.dirty[slots] = False
            self._host.count_moved(group, self._slot_map.counts(group, flat))

    def read(self, storage: SlotStorage, slots: torch.Tensor) -> Rows:
        """Copies of the rows in slots int64[k], in host memory: Rows."""
        self._memory.wait_event(self._batch_stages.inserted)
        rows = self._memory.staging_rows(storage.kind, len(slots))
        rows.copy(storage.rows, self._memory.indices(slots))
        self._memory.synchronize(self._memory.record_event())
        return rows
