"""Slots for learned rows, between two batches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from ...contract.errors import BatchError
from ...contract.generated import NO_SLOT
from ...device import Device
from ...operands.results import RowList
from ...system.interrupts import deferred_interrupt, deliver
from ..memory.slot_memory import SlotMemory
from .batch_stages import BatchStages
from .host_tables import HostTables
from .in_flight import BatchWindow
from .placement_policy import Policy
from .slot_map import SlotMap
from .slot_moves import SlotMoves
from .write_back import WriteBack

_CHUNK = 1 << 16  # rows per fetch


class SlotFilling:
    """Empties slots, and fills them with rows that were chosen.

    Its parameters are parts of a `CachedStore`.
    """

    def __init__(self, device: Device, policy: Policy, slot_map: SlotMap, host: HostTables,
                 moves: SlotMoves, window: BatchWindow, write_back: WriteBack,
                 batch_stages: BatchStages, memory: SlotMemory) -> None:
        self._device, self._policy, self._slot_map, self._host = device, policy, slot_map, host
        self._window, self._write_back, self._batch_stages = window, write_back, batch_stages
        self._memory, self._moves, self._storages = memory, moves, slot_map.storages

    def hottest(self, limit: int, decay: int = 0) -> RowList:
        """The rows that the device counted most, after a right shift of all counts."""
        if decay:
            self._device.decay(decay)
        hot = self._device.harvest(limit)
        return RowList(hot.table, hot.row)

    def warm(self, rows: RowList) -> int:
        """Give rows their slots between two batches; other rows leave theirs.

        In mode hotline a row that has a slot keeps it and does not move.

        Parameters
        ----------
        rows : RowList
            By the device's tables, each once, the most wanted first.

        Returns
        -------
        int
            Rows of the list that have a slot.
        """
        self._window.need_idle("give slots to other rows")
        if not self._policy.replaces:
            self._write_back.flush()
        with self._moving_slots():
            stayed, arriving = 0, rows
            if self._policy.replaces:
                arriving = self._release_others(rows)
                stayed = len(rows) - len(arriving)
            else:
                self.clear()
            return stayed + self._install(arriving)

    def _release_others(self, rows: RowList) -> RowList:
        """Free the slots of all rows but `rows`: RowList of those that have no slot."""
        self._host.land()
        arriving = np.ones(len(rows), bool)
        for group, storage in enumerate(self._storages):
            chosen, wanted = self._slot_map.rows_of(group, rows)
            resident = storage.resident
            leaving = resident[~torch.isin(resident, wanted)]
            _, slots = storage.find(leaving)
            trained = storage.dirty[slots]
            self._write_back.write_slots(group, leaving[trained], slots[trained],
                                         self._host.write)
            if len(leaving):
                self._device.remove(self._slot_map.listed(group, leaving))
                storage.clear(slots)
            where, _ = storage.find(wanted)
            arriving[np.flatnonzero(chosen)[where]] = False
        return RowList(rows.table[arriving], rows.row[arriving])

    def _install(self, rows: RowList) -> int:
        """Fetch rows to free slots as far as there is room: their number."""
        installed, held = self._policy.install(rows), 0
        self._memory.wait_event(self._batch_stages.inserted)
        for group, storage in enumerate(self._storages):
            chosen, flat = self._slot_map.rows_of(group, rows)
            found = installed[chosen] != NO_SLOT
            flat = flat[torch.from_numpy(found)]
            slots = self._slot_map.local(group, installed[chosen][found])
            for some, here in zip(flat.split(_CHUNK), slots.split(_CHUNK), strict=True):
                self._host.count_moved(group, self._slot_map.counts(group, some))
                if self._moves.direct[group]:
                    self._host.land()
                    self._moves.gather(group, some, here)
                    continue
                fetched = storage.kind.allocate(len(some), self._memory.device)
                staged = self._host.fetch(group, some)
                fetched.copy(staged)
                storage.rows.put(self._memory.indices(here), fetched)
                self._host.give_back(group, staged)
            storage.assign(flat, slots)
            held += len(flat)
        self._batch_stages.released = self._memory.record_event()
        return held

    def clear(self) -> None:
        """Empty all slots, whose rows are in the tables."""
        with self._moving_slots():
            self._policy.clear()
            self._batch_stages.restart()
            for storage in self._storages:
                storage.clear()

    @contextmanager
    def _moving_slots(self) -> Iterator[None]:
        """Rows change their slots between two batches: an interrupt waits, and after an error
        nothing trains, because the card and the host may differ about the slots."""
        try:
            with deferred_interrupt() as pending:
                yield
        except BaseException as error:
            if not isinstance(error, BatchError):  # of rows that the host refused
                self._batch_stages.stages.fail(error)
            raise
        deliver(pending)
