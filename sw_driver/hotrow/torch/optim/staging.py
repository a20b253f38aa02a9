"""The staged gradients of all groups of a collection, and the step that applies them."""

import torch

from ..memory.recycled import RecycledMemory
from .finite_check import DeferredFiniteCheck, FiniteCheck
from .gradients import StagedBags, StagedGradients
from .lookup import Lookup, LookupPart

_ROW_BYTES = 8  # of the number of a row


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
    """

    def __init__(self, groups, memory, bags=False):
        self.groups = tuple(groups)
        self.rows = [StagedGradients(group.kind.dim, memory.device) for group in groups]
        self._bags = [StagedBags(group.kind.dim) for group in groups] if bags else []
        self._memory = RecycledMemory()
        self.finite = DeferredFiniteCheck(memory) if memory.asynchronous else FiniteCheck()

    @property
    def all(self) -> list[StagedGradients | StagedBags]:
        return [*self.rows, *self._bags]

    @property
    def empty(self):
        """Whether nothing is staged."""
        return all(staged.values is None for staged in self.all)

    @property
    def nbytes(self):
        return sum(staged.values.nbytes + _ROW_BYTES * len(staged.values) for staged in self.all
                   if staged.values is not None)

    def lookups(self, request, located, layouts, pooled):
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

    def drop(self, table):
        """Drop the gradients of the table of that number."""
        for number, each in enumerate(self.all):
            group = self.groups[number % len(self.groups)]
            if table not in group.numbers or each.values is None:
                continue
            if len(group.numbers) == 1:
                each.clear()
                continue
            tables = torch.from_numpy(group.tables.locate(each.rows).table)
            each.keep(tables != group.numbers.index(table))

    def apply(self, store, rule, batch):
        """Check the gradients of the step after batch number `batch`, apply and clear them."""
        finite = self.finite.check(batch, [*zip(self.groups, self.rows, strict=True),
                                           *zip(self.groups, self._bags, strict=False)])
        store.apply_all(self.rows, rule, finite)
        for group, staged in enumerate(self._bags):
            if staged.values is not None:
                store.apply_bags(group, staged, rule)
                staged.clear()
