"""The step of rows: in slots, in the bypass area, and of batches without a place there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from threading import RLock
from typing import NamedTuple, TypeAlias

import torch

from ...contract.errors import Error
from ...kernels.updating import compiled_rule, update_rows
from ..features.configs import TableGroup
from ..features.grouping import Request
from ..memory.rows import Rows
from ..memory.slot_memory import SlotMemory, to_device
from ..optim.arithmetic import Stepping, updated
from ..optim.gradients import Deferred, StagedGradients
from ..optim.rounding import row_keys
from ..optim.rules import Rule
from .host_tables import HostTables
from .in_flight import BatchWindow, PendingBackward
from .slot_map import SlotMap

# Flat rows without a place, their Rows, gradients and keys.
_Copied: TypeAlias = tuple[torch.Tensor, Rows, torch.Tensor, torch.Tensor | None]


class _Update(NamedTuple):
    """The gradients of rows of a group, of which none has changed."""

    group: int
    places: torch.Tensor  # integers [u], in the group's storage
    sums: torch.Tensor  # float32[u, D]
    keys: torch.Tensor | None = None  # for stochastic rounding
    copied: _Copied | None = None  # and rows without a place there
    distinct: bool = False  # whether the places are those of a `Grouper`


class RowUpdates:
    """Finds the places of rows that a step trains, and updates them.

    Trained rows without a slot are *owed* to the tables until they are written there. Parameters
    are parts of a `CachedStore`.

    Attributes
    ----------
    copied : list of (Request, PendingBackward)
        Batches that train with copies of their rows, and have no place.
    """

    def __init__(self, groups: Sequence[TableGroup], window: BatchWindow, slot_map: SlotMap,
                 host: HostTables, memory: SlotMemory, lock: RLock) -> None:
        self._groups, self._window, self._slot_map = groups, window, slot_map
        self._host, self._memory, self._lock = host, memory, lock
        self.copied: list[tuple[Request, PendingBackward]] = []
        self._owed: list[tuple[int, torch.Tensor]] = []  # groups, and places

    def apply(self, group: int, flat: torch.Tensor, sums: torch.Tensor, rule: Stepping,
              finite: torch.Tensor | None = None) -> None:
        """As `OwnStore.apply`."""
        with self._lock:
            self._update(self._placed(group, flat, sums, rule), rule, finite)

    def step(self, staged: Sequence[StagedGradients], rule: Rule,
             finite: torch.Tensor | None = None) -> Callable[[], None]:
        """As `Store.step`."""
        with self._lock:
            deferred = {group: each.deferred for group, each in enumerate(staged)
                        if finite is None and self._defers(group, each.deferred, rule)}
            updates = [self._of_staged(group, each, rule) for group, each in enumerate(staged)
                       if group not in deferred and each.values is not None]

        def change() -> None:
            with self._lock:
                for group, gradients in deferred.items():
                    assert gradients is not None
                    self._slot_map.storages[group].mark_trained(gradients.located.at)
                    gradients.step(rule)
                for each in updates:
                    self._update(each, rule, finite)
        return change

    def _defers(self, group: int, deferred: Deferred | None, rule: Rule) -> bool:
        """Whether the rows of gradients that nobody has summed are trained where they lie: in
        slots, of which no other batch has a copy."""
        if deferred is None or rule.rounding_seed is not None or compiled_rule(rule) is None:
            return False
        located, rows = deferred.located, self._slot_map.storages[group].rows
        return (self._trains_one_copy(group, [located.batch]) and not located.bypassed
                and located.rows.weights.data_ptr() == rows.weights.data_ptr())

    def _of_staged(self, group: int, staged: StagedGradients, rule: Rule) -> _Update:
        """The update by StagedGradients."""
        assert staged.values is not None, "nothing is staged"
        if (staged.places is None or rule.rounding_seed is not None
                or not self._trains_one_copy(group, staged.batches)):
            return self._placed(group, staged.rows, staged.values, rule)
        return _Update(group, staged.places, staged.values, distinct=True)

    def _placed(self, group: int, flat: torch.Tensor, sums: torch.Tensor,
                rule: Stepping) -> _Update:
        """The update of flat rows int64[u] by gradients float32[u, D]: no row has changed."""
        keys = None if rule.rounding_seed is None else row_keys(
            self._groups[group].kind_number, self._groups[group].whole_rows(flat))
        places = self._find(group, flat)
        elsewhere = places < 0
        if not bool(elsewhere.any()):
            return _Update(group, places, sums, keys)
        self._check_copied(group, flat[elsewhere])
        # No batch is planned beyond those taken: slots and tables stay as they are.
        where, slots = self._slot_map.storages[group].find(flat)
        places[where] = torch.where(places[where] < 0, slots, places[where])
        elsewhere, there = places < 0, places >= 0
        copied = None
        if bool(elsewhere.any()):
            rows = flat[elsewhere]
            copied = (rows, self._host.fetch(group, rows),
                      sums[to_device(elsewhere, sums.device)].cpu(),
                      None if keys is None else keys[elsewhere])
        return _Update(group, places[there], sums[to_device(there, sums.device)],
                       None if keys is None else keys[there], copied)

    def _check_copied(self, group: int, flat: torch.Tensor) -> None:
        """Raise Error if flat rows are not of batches whose rows were copied."""
        copied = [segment.flat for request, _ in self.copied for segment in request.segments
                  if segment.group == group]
        if not copied or not bool(torch.isin(flat, torch.cat(copied)).all()):
            raise Error("a gradient is staged of a row that no open batch looked up: call "
                        "backward() of every batch before optimizer.step()")

    def _update_copied(self, group: int, copied: _Copied, rule: Stepping,
                       finite: torch.Tensor | None) -> None:
        """Update rows that have no place among the slots."""
        flat, rows, sums, keys = copied
        if finite is None or bool(finite):
            update_rows(rows.weights, torch.arange(len(flat)), sums, rule, rows.state, keys)
        self._host.write_after(None, group, flat, rows)
        self._host.count_moved(group, 2 * self._slot_map.counts(group, flat))

    def _trains_one_copy(self, group: int, batches: Sequence[object]) -> bool:
        """Whether each row of these batches has one place among the batches taken."""
        taken = self._window.taken
        return all(each in taken for each in batches) and (len(taken) == 1 or not any(
            transfer.bypassed for flight in taken for transfer in flight.transfers
            if transfer.segment.group == group))

    def _update(self, update: _Update, rule: Stepping, finite: torch.Tensor | None) -> None:
        """Update rows, and write those without a slot back."""
        group, places, sums, keys, copied, distinct = update
        storage = self._slot_map.storages[group]
        # Before a row changes: whatever fails, `finish` and `flush` write the rows back.
        if (bypassed := storage.bypassed(places)) is not None:
            self._owed.append((group, bypassed))
        if finite is None and not self._memory.asynchronous:
            update_rows(storage.rows.weights, places, sums, rule, storage.rows.state, keys,
                        distinct, storage.dirty)
        else:
            storage.mark_trained(places)
            at = self._memory.indices(places.long())
            weights, state = storage.rows.read(at)
            storage.rows.write(at, *updated(rule, weights, state, sums, finite, keys))
        if copied is not None:
            self._update_copied(group, copied, rule, finite)
        self.write_owed()

    def write_owed(self) -> None:
        """Begin to write trained rows without a slot to the tables."""
        while self._owed:
            group, places = self._owed[0]
            storage = self._slot_map.storages[group]
            trained = self._host.staging(group, len(places))
            trained.copy(storage.rows, self._memory.indices(places))
            self._host.write_after(self._memory.record_event(), group,
                                  storage.bypassed_rows(places), trained)
            del self._owed[0]

    def owing(self) -> Iterator[tuple[int, torch.Tensor]]:
        """Groups, and places of trained rows to be written to the tables: each is taken off once
        the caller has gone on."""
        while self._owed:
            yield self._owed[0]
            del self._owed[0]

    def _find(self, group: int, flat: torch.Tensor) -> torch.Tensor:
        """Places of flat rows int64[u] that batches taken and not finished look up, else -1."""
        places = torch.full((len(flat),), -1, dtype=torch.int64)
        for flight in self._window.taken:
            for transfer in flight.transfers:
                if transfer.segment.group == group and transfer.segment.count:
                    found = transfer.find(flat)
                    places = torch.where(found < 0, places, found)
        return places
