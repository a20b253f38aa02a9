"""Refusal of steps with gradients that are not finite numbers."""

from collections import deque
from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from ...contract.errors import Error
from ..features.configs import TableGroup
from ..memory.slot_memory import SlotMemory
from .gradients import Staged

Checked: TypeAlias = tuple[TableGroup, Staged]

_ADVICE = ("lower the rate, clip, or train with torch.amp.GradScaler, which skips such steps")


class FiniteCheck:
    """The check where the host can read gradients at once."""

    def check(self, batch: int, staged: Sequence[Checked]) -> Tensor | None:
        """Raise Error, which names the row, if a gradient is not finite; return None.

        Parameters
        ----------
        batch : int
            Number of the last batch of the step.
        staged : sequence of (TableGroup, Staged)
        """
        for group, each in staged:
            number = each.first_not_finite()
            if number >= 0:
                where = group.tables.locate(each.row_of(number))
                name = group.configs[int(where.table[0])].name
                raise Error(f"batch {batch}: the gradient of row {int(where.row[0])} of table "
                            f"{name!r} is not finite, and nothing was applied: {_ADVICE}")
        return None

    def settle(self, wait: bool = False) -> None:
        """Report steps of `DeferredFiniteCheck` that were not applied."""


class DeferredFiniteCheck(FiniteCheck):
    """The check on a GPU: the host does not wait for its result.

    A step with a gradient that is not finite changes no row; a later call raises the error.
    """

    def __init__(self, memory: SlotMemory) -> None:
        self._memory = memory
        self._pending: deque[tuple[int, Tensor, Any]] = deque()

    def check(self, batch: int, staged: Sequence[Checked]) -> Tensor | None:
        """Start the check; whether all gradients are finite, bool[], or None with none staged."""
        self.settle()
        values = [each.values for _, each in staged if each.values is not None]
        if not values:
            return None
        finite = torch.stack([torch.isfinite(each).all() for each in values]).all()
        result = torch.empty((), dtype=torch.bool, pin_memory=finite.device.type == "cuda")
        result.copy_(finite, non_blocking=True)
        self._pending.append((batch, result, self._memory.record_event()))
        return finite

    def settle(self, wait: bool = False) -> None:
        """Raise Error if the arrived results, or all with `wait`, have a step not applied."""
        while self._pending and (wait or self._memory.is_done(self._pending[0][2])):
            batch, result, event = self._pending.popleft()
            self._memory.synchronize(event)
            if not bool(result):
                raise Error(f"batch {batch}: a gradient was not finite, and its step was not "
                            f"applied to any row: {_ADVICE}")
