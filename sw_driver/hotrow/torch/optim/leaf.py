"""Leaves of autograd's graph to which the backward of lookups runs, and what it stages there."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from torch.autograd import Variable

if TYPE_CHECKING:
    from .staging import GradientStage

# Of as many dimensions as a table, by which optimizers choose, and with an
# element, by whose number they divide.
LEAF_SHAPE = (1, 1)

# As PyTorch's own FSDP uses it: there is no other way to follow one backward to its end.
_ENGINE: Any = Variable._execution_engine


class RowsLeaf:
    """A leaf of autograd's graph to which the backward of lookups runs.

    Attributes
    ----------
    pending : list of weakref.ref of Held
    stage : GradientStage
    table : int or None
        Number of the table whose gradients it shows; None for all.
    marker : RowsGradient or None
        Its `grad`, as is `grad`.
    """

    pending: list[weakref.ref[Held]]
    stage: GradientStage
    table: int | None
    marker: Any
    grad: Any


class Held:
    """What a backward is to stage if it accumulates gradients in leaves.

    `torch.autograd.grad` computes gradients and accumulates none: then nothing is staged. PyTorch
    holds this object up to the end of the backward, also of one that an exception ends.

    Parameters
    ----------
    leaves : sequence of RowsLeaf
    stage : callable
    """

    def __init__(self, leaves: Sequence[RowsLeaf], stage: Callable[[], None]) -> None:
        self._stage: Callable[[], None] | None = None
        _ENGINE.queue_callback(self._cancel)
        for leaf in leaves:
            with leaf.stage.lock:
                leaf.pending.append(weakref.ref(self))
        self._stage = stage  # an interrupt before leaves nothing to stage

    def __call__(self) -> None:
        """Stage, once."""
        stage, self._stage = self._stage, None
        if stage is not None:
            stage()

    def _cancel(self) -> None:
        self._stage = None


def in_backward() -> bool:
    """Whether the caller runs inside a backward, as what activation checkpointing repeats."""
    try:
        _ENGINE.queue_callback(lambda: None)
    except RuntimeError:
        return False
    return True
