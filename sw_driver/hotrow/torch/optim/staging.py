"""The staged gradients of all groups of a collection, and the step that applies them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from ...contract.errors import Error
from ...kernels.pooling import BagLayout
from ...system.forks import ForkLock
from ...system.interrupts import raise_saying
from ..features.configs import TableGroup
from ..features.grouping import Request
from ..memory.slot_memory import SlotMemory
from .finite_check import DeferredFiniteCheck, FiniteCheck
from .gradients import LocatedRows, StagedBags, StagedGradients
from .leaf import RowsLeaf
from .lookup import Lookup, LookupPart, RecycledMemory
from .rules import Rule

_ROW_BYTES = 8  # of the number of a row
_UNSTEPPED = 64  # batches of a module without a step, of which the user is warned


class RowStore(Protocol):
    """What takes the step of rows."""

    reached: dict[int, bool]
    several_ranks: bool

    def apply_all(self, staged: Sequence[StagedGradients], rule: Rule,
                  finite: Tensor | None = None) -> None:
        """Apply the StagedGradients of every group, and record the groups in `reached`."""

    def apply_bags(self, group: int, staged: StagedBags, rule: Rule) -> None:
        """Update the rows of StagedBags."""


class GradientStage:
    """Gradients from backward to `optimizer.step()`.

    Parameters
    ----------
    groups : sequence of TableGroup
    memory : SlotMemory
        Memory of the gradients.
    bags : bool
        Whether the card pools rows, whose gradients are those of their bags.

    Attributes
    ----------
    groups : tuple of TableGroup
    rows : list of StagedGradients, one per group
    finite : FiniteCheck
    lock : ForkLock
        Of forward, staging and step, for threads that share a model.
    steps, counted : int
        Steps that ended, and those among them that a rule with `counts_steps` counts, as an
        optimizer of PyTorch does: after a backward, also of a batch without lookups. Of several
        processes it counts all, because a rank does not know of the backward of another.
    split : bool
        Whether the last step reached some of its rows and not the others.
    missed : list of bool
        Not empty after a backward of a lookup in `eval()`.
    listed, asked : bool
        Whether a caller has ever got the tensors with the staged gradients, or has looked at those
        in the optimizer's parameter group since the last step.
    beside : WeakKeyDictionary of Optimizer to list of float
        Optimizers of PyTorch that have stepped with a leaf, and the rates of their first step.
    """

    def __init__(self, groups: Sequence[TableGroup], memory: SlotMemory,
                 bags: bool = False) -> None:
        self.lock = ForkLock()
        self.missed: list[bool] = []
        self._marks: dict[int, tuple[RowsLeaf, Any]] = {}
        self._unstepped: dict[int, int] = {}
        self._reached: set[int] = set()  # leaves that a backward reached, by identity
        self._warned, self._scaled, self.split = False, "", False
        self.steps = self.counted = 0
        self.listed = self.asked = False
        self.beside: WeakKeyDictionary[torch.optim.Optimizer, list[Any]] = WeakKeyDictionary()
        self.groups = tuple(groups)
        self.rows = [StagedGradients(group.kind.dim, memory.device) for group in groups]
        self._bags = [StagedBags(group.kind.dim) for group in groups] if bags else []
        self._memory = RecycledMemory()
        self.finite = DeferredFiniteCheck(memory) if memory.asynchronous else FiniteCheck()

    @property
    def all(self) -> list[StagedGradients | StagedBags]:
        return [*self.rows, *self._bags]

    @property
    def empty(self) -> bool:
        """Whether nothing is staged."""
        with self.lock:  # a thread that reads a `grad` while another removes it would crash
            self.settle()
            return all(staged.values is None for staged in self.all)

    def tensors(self) -> list[Tensor]:
        """The tensors whose `grad` are the staged gradients."""
        self.settle()
        return [staged.tensor for staged in self.all]

    @property
    def nbytes(self) -> int:
        with self.lock:
            return sum(staged.values.nbytes + _ROW_BYTES * len(staged.values)
                       for staged in self.all if staged.values is not None)

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
            return [Lookup(parts, True, self._memory)]
        return [Lookup([part], False, self._memory) for part in parts]

    def mark(self, leaf: RowsLeaf, marker: Any) -> None:
        """Record that gradients are staged which a leaf shows by its `grad`."""
        self._marks[id(leaf)] = leaf, marker
        self._reached.add(id(leaf))
        count = self._unstepped[id(leaf)] = self._unstepped.get(id(leaf), 0) + 1
        if count > _UNSTEPPED and not self._warned:
            self._warned = True
            warnings.warn(
                f"gradients of rows of {count} batches were staged and none was applied: call "
                f"step() of the collection's optimizer, beside that of the model's. An optimizer "
                f"of PyTorch does not train rows", stacklevel=2)

    def marked(self, leaf: RowsLeaf) -> Any:
        """The marker of a leaf, or None."""
        return self._marks.get(id(leaf), (None, None))[1]

    def unmark(self, leaf: RowsLeaf) -> None:
        """Keep the staged gradients of a leaf whatever happens to its `grad`."""
        with self.lock:
            self.settle()
            _, marker = self._marks.pop(id(leaf), (None, None))
            self._scaled = self._scaled or (_scaled(leaf, marker) if marker is not None else "")

    def settle(self) -> None:
        """Drop the gradients of leaves whose `grad` was removed or zeroed."""
        with self.lock:
            for key, (leaf, marker) in list(self._marks.items()):
                if leaf.marker is not None and not marker.zeroed:
                    continue
                del self._marks[key]
                self._reached.discard(key)
                leaf.grad = None
                self.drop(leaf.table)

    def clear(self) -> None:
        """Drop all gradients."""
        with self.lock:
            self.drop(None)
            for leaf, _ in self._marks.values():
                leaf.grad = None
            self._marks.clear()
            self._reached.clear()
            self._scaled, self.asked = "", False

    def drop(self, table: int | None) -> None:
        """Drop the gradients of the table of that number; of all with None."""
        self.missed.clear()
        for number, each in enumerate(self.all):
            group = self.groups[number % len(self.groups)]
            if each.values is None or (table is not None and table not in group.numbers):
                continue
            if table is None or len(group.numbers) == 1:
                each.clear()
                continue
            tables = torch.from_numpy(group.tables.locate(each.rows).table)
            each.keep(tables != group.numbers.index(table))

    def apply(self, store: RowStore, rule: Rule, batch: int) -> None:
        """Check the gradients of the step after batch number `batch`, apply and clear them.

        If that fails, the gradients of the groups that the step did not reach stay.

        Raises
        ------
        DeviceError
            It failed after it had reached some tables; the error names the others.
        """
        finite = self.finite.check(batch, [*zip(self.groups, self.rows, strict=True),
                                           *zip(self.groups, self._bags, strict=False)])
        begun = [each.values is not None for each in self.all]
        counts = bool(self._reached) or any(begun) or store.several_ranks
        steps = self.steps + 1, self.counted + counts
        reached = store.reached
        reached.clear()
        try:
            store.apply_all(self.rows, rule, finite)
            for group, staged in enumerate(self._bags, len(self.rows)):
                if staged.values is not None:
                    reached[group] = False  # a card that fails may have taken the step
                    store.apply_bags(group - len(self.rows), staged, rule)
                    reached[group] = True
            self._end(steps)
        except BaseException as error:
            said = self._unsure(reached, batch)
            for group in reached:
                self.all[group].clear()
            left = [each.values is not None for each in self.all]
            if any(left) and left != begun:
                said.append(f"the step of batch {batch} did not reach the rows of "
                            f"{self._tables(left)}, whose gradients are staged: call step() again, "
                            f"which leaves the other tables as they are, or zero_grad()")
            if said:
                self.split = True
                raise_saying(error, "; ".join(said))
            if reached and not any(left):
                self._end(steps)
            raise

    def _unsure(self, reached: Mapping[int, bool], batch: int) -> list[str]:
        """What a step that failed perhaps did not reach: list of str."""
        said = []
        for number in (number for number, whole in reached.items() if not whole):
            group = self.groups[number % len(self.groups)]
            if number < len(self.rows):
                names = [config.name for config in group.configs]
                what = "perhaps did not reach the rows"
            else:
                rows = group.tables.locate(self.all[number].rows.unique())
                names = [group.configs[table].name for table in np.unique(rows.table)]
                what = (f"reached its rows in slots, and perhaps not its {len(rows)} rows without "
                        f"a slot,")
            said.append(f"the step of batch {batch} {what} of {', '.join(map(repr, names))}, whose "
                        f"gradients were dropped")
        return said

    def _end(self, steps: tuple[int, int]) -> None:
        """Record that all rows have so many `steps`, of which so many `counted`."""
        (self.steps, self.counted), self.split = steps, False
        self._unstepped.clear()
        self.clear()

    def _tables(self, chosen: Sequence[bool]) -> str:
        """Names of the tables of the groups that bool[groups of `all`] chooses, in words."""
        groups = [self.groups[number % len(self.groups)]
                  for number, each in enumerate(chosen) if each]
        return ", ".join(dict.fromkeys(
            repr(config.name) for group in groups for config in group.configs))

    def check_scaled(self) -> None:
        """Raise Error if `grad` of parameters was changed in place, and no staged gradient."""
        self.settle()
        scaled = self._scaled or next(filter(None, (_scaled(*mark)
                                                    for mark in self._marks.values())), "")
        if scaled and not self.empty and not any(each.changed for each in self.all):
            raise Error(f"{scaled}, and nothing was applied; zero_grad() drops the gradients")


def _scaled(leaf: RowsLeaf, marker: Any) -> str:
    """How the `grad` of a leaf was changed in place or replaced, in words."""
    if marker.scaled:
        return ("gradients of parameters() were clipped or changed without those of hotrow's rows: "
                "clip [*model.parameters(), *collection.gradients()], with the collection that "
                "convert() returned")
    if leaf.marker is not marker:
        return ("grad of a parameter that hotrow's tables show was replaced by another tensor, "
                "which does not reach the gradients of rows: change it and those of "
                "collection.gradients() in place, and leave gradient_as_bucket_view of "
                "DistributedDataParallel False")
    return ""
