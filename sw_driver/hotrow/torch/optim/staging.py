"""The staged gradients of all groups of a collection, and the step that applies them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, Protocol

import torch
from torch import Tensor

from ...contract.errors import Error
from ...kernels.pooling import BagLayout
from ...system.forks import ForkLock
from ...system.interrupts import uninterrupted
from ..features.configs import TableGroup
from ..features.grouping import Request
from ..memory.slot_memory import SlotMemory
from .card_bags import CardBags, StagedBags
from .finite_check import DeferredFiniteCheck, FiniteCheck
from .gradients import LocatedRows, Staged, StagedGradients
from .lookup import Lookup, LookupPart, RecycledMemory, backward_number
from .rules import Rule

_UNSTEPPED = 64  # backwards without a step, of which the user is warned


class RowStore(Protocol):
    """What takes the step of rows."""

    several_ranks: bool

    def step(self, staged: Sequence[StagedGradients], rule: Rule,
             finite: Tensor | None = None) -> Callable[[], None]:
        """Check the step of every group, and return the call that changes rows."""

    def apply_bags(self, group: int, staged: Staged, rule: Rule) -> None:
        """Update the rows of StagedBags or CardBags."""


class GradientStage:
    """Gradients from backward to `optimizer.step()`.

    Parameters
    ----------
    groups : sequence of TableGroup
    memory : SlotMemory
        Memory of the gradients.
    bags : "none", "cold" or "all"
        Of which bags a card pools rows; their gradients are staged by bag.

    Attributes
    ----------
    groups : tuple of TableGroup
    anchor : Tensor
        Requires a gradient, which it never gets, so that backward runs to lookups.
    rows : list of StagedGradients, one per group
    memory : RecycledMemory
        Of results and gradients in host memory.
    finite : FiniteCheck
    lock : ForkLock
        Of forward, staging and step, for threads that share a model.
    steps, counted : int
        Steps that ended, and those among them that a rule with `counts_steps` counts, as an
        optimizer of PyTorch does: after a backward, also of a batch without lookups. Of several
        processes it counts all, because a rank does not know of the backward of another.
    broken : str
        The step or load that was left half done, in words; empty if all were whole. Nothing trains
        until rows are loaded again.
    missed : list of bool
        Not empty after a backward of a lookup in `eval()`.
    """

    def __init__(self, groups: Sequence[TableGroup], memory: SlotMemory,
                 bags: Literal["none", "cold", "all"] = "none") -> None:
        self.lock = ForkLock()
        self.missed: list[bool] = []
        self.anchor = torch.zeros(0, dtype=torch.float32, requires_grad=True)
        self._backwards, self._last, self._cleared = 0, -1, True  # since the last step
        self._warned, self.broken = False, ""
        self.steps = self.counted = 0
        self.groups = tuple(groups)
        self.rows = [StagedGradients(group.kind.dim, memory.device) for group in groups]
        self._bags: list[StagedBags] | list[CardBags] = []
        if bags == "cold":
            self._bags = [StagedBags(group.kind.dim) for group in groups]
        elif bags == "all":
            self._bags = [CardBags(group.kind.dim, rows) for group, rows in zip(
                groups, self.rows, strict=True)]
        self.all: list[Staged] = [*self.rows, *self._bags]
        self.memory = RecycledMemory()
        self.finite = DeferredFiniteCheck(memory) if memory.asynchronous else FiniteCheck()

    @property
    def empty(self) -> bool:
        """Whether nothing is staged."""
        with self.lock:  # a thread that reads a `grad` while another removes it would crash
            return all(staged.empty for staged in self.all)

    def tensors(self) -> list[Tensor]:
        """The tensors whose `grad` are the staged gradients."""
        with self.lock:
            return [staged.tensor for staged in self.all]

    def inspected(self) -> list[Tensor]:
        """As `tensors`, for a caller who looks at the gradients: those of `CardBags` are summed by
        row from here on."""
        with self.lock, torch.no_grad():
            for staged in self._bags:
                if isinstance(staged, CardBags):
                    staged.sum_rows()
                    staged.by_row = True
            return [staged.tensor for staged in self.all
                    if not isinstance(staged, CardBags)]

    @property
    def nbytes(self) -> int:
        with self.lock:
            return sum(staged.nbytes for staged in self.all)

    def lookups(self, request: Request, located: Sequence[LocatedRows],
                layouts: Sequence[BagLayout], pooled: bool) -> list[Lookup]:
        """Lookups whose backward stages its gradients here, and whose results follow one another.

        Parameters
        ----------
        request : Request
        located : list of LocatedRows
        layouts : list of BagLayout
            Of each segment.
        pooled : bool
            Whether all segments have one result.

        Returns
        -------
        list of Lookup
        """
        parts = [LookupPart(segment, rows, layout, self.rows[segment.group],
                            self._bags[segment.group] if self._bags else None)
                 for segment, rows, layout in zip(
                     request.segments, located, layouts, strict=True)]
        if pooled:
            return [Lookup(parts, True, self.memory, self.staging)]
        return [Lookup([part], False, self.memory, self.staging) for part in parts]

    @contextmanager
    def staging(self) -> Iterator[None]:
        """Gradients of a backward are staged in this block."""
        with uninterrupted(), self.lock, torch.no_grad():
            yield
            self._cleared = False
            if self._last != backward_number():
                self._last = backward_number()
                self._backwards += 1
            if self._backwards > _UNSTEPPED and not self._warned:
                self._warned = True
                warnings.warn(
                    f"gradients of rows of {self._backwards} batches were staged and none was "
                    f"applied: call step() of the collection's optimizer, beside that of the "
                    f"model's. An optimizer of PyTorch does not train rows", stacklevel=2)

    def clear(self) -> None:
        """Drop all gradients."""
        with self.lock:
            self.missed.clear()
            for each in self.all:
                each.clear()
            self._cleared = True

    def apply(self, store: RowStore, rule: Rule, batch: int) -> None:
        """Check the gradients of the step after batch number `batch`, apply and clear them.

        What fails before a row changes leaves the gradients staged. Later the step may be half
        done: then `broken` says so, and the gradients are dropped.
        """
        self.check_whole()
        finite = self.finite.check(batch, [*zip(self.groups, self.rows, strict=True),
                                           *zip(self.groups, self._bags, strict=False)])
        begun = any(not each.empty for each in self.all)
        counts = not self._cleared or begun or store.several_ranks
        change_rows = store.step(self.rows, rule, finite)
        try:
            change_rows()
            for group, staged in enumerate(self._bags):
                if staged.values is not None:
                    store.apply_bags(group, staged, rule)
            self.steps, self.counted = self.steps + 1, self.counted + counts
            self._backwards = 0
            self.clear()
        except BaseException as error:
            self.broken = f"the step after batch {batch} failed ({error or type(error).__name__})"
            self.clear()
            raise

    def check_whole(self) -> None:
        """Raise Error if a step or a load was left half done."""
        if self.broken:
            raise Error(f"{self.broken}, and left some rows before it and others after it: this "
                        f"collection reads rows and trains none. Load a checkpoint, rows and "
                        f"optimizer, or return to a commit")
