"""Forward and backward of lookups: bags pooled from rows, gradients staged for rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any
from weakref import finalize

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...contract.errors import Error
from ...kernels.grouping import Grouper
from ...kernels.pooling import BagLayout, pool_bags, sum_gradients
from ..features.grouping import Segment
from ..memory.slot_memory import to_device
from .arithmetic import pool
from .card_bags import CardBags, StagedBags
from .gradients import LocatedRows, StagedGradients
from .on_host import on_host

_LEAST = 1 << 18  # elements; less the C library keeps for itself
_KEPT = 4  # blocks that nothing refers to, at most, after a block of another size
_LINE = 16  # elements of a cache line, on which memory begins
_STEPS = 8  # sizes between two powers of two, so that batches of similar sizes share memory


class RecycledMemory:
    """Tensors in memory that is used again once no tensor refers to it.

    The C library returns large blocks to the system. Then each page of a batch's result is a page
    fault, which takes longer than the result itself.
    """

    def __init__(self) -> None:
        self._free: dict[int, NDArray[np.float32]] = {}  # by identity

    def empty(self, rows: int, columns: int) -> Tensor:
        """float32[rows, columns] on the host, with undefined contents."""
        size = rows * columns
        if size < _LEAST:
            return torch.empty(rows, columns, dtype=torch.float32)
        memory = self._take(size)
        part = memory[:size]  # lives as long as a tensor refers to the memory
        finalize(part, self._free.__setitem__, id(memory), memory).atexit = False
        return torch.from_numpy(part).view(rows, columns)

    def _take(self, size: int) -> NDArray[np.float32]:
        for key, memory in list(self._free.items()):
            if size <= len(memory) <= size + size // 4 and self._free.pop(key, None) is not None:
                return memory
        for key in list(self._free)[:-_KEPT]:  # of sizes that came last
            self._free.pop(key, None)
        step = 1 << max(0, size.bit_length() - _STEPS.bit_length())
        memory = np.empty(-(-size // step) * step + _LINE, np.float32)
        return memory[-memory.ctypes.data // memory.itemsize % _LINE:]


@dataclass(frozen=True, eq=False)
class LookupPart:
    """The lookups of a batch in one group of tables."""

    segment: Segment
    located: LocatedRows
    layout: BagLayout  # of the bags in the result of all parts; without pooling, a lookup is a bag
    staged: StagedGradients
    staged_bags: StagedBags | CardBags | None = None  # where the card pools rows

    @property
    def grouper(self) -> Grouper:
        """Groups lookups by their index in the rows: Grouper."""
        return self.located.grouper or Grouper(len(self.located.rows))

    def flat(self) -> Tensor:
        """Flat row of each lookup: int64[n]."""
        return self.segment.flat

    @property
    def compiled(self) -> bool:
        """Whether the compiled passes pool this part: on the host, without bags of the card."""
        located = self.located
        return (located.rows.weights.device.type == "cpu" and located.cold is None
                and located.pooler is None)


class Lookup:
    """A batch on its way through forward and backward.

    Parameters
    ----------
    parts : list of LookupPart
    pooled : bool
        Whether bags are pooled; otherwise each lookup returns its row.
    memory : RecycledMemory
        Of the compiled passes' results.
    staging : callable
        Makes the context in which a backward stages gradients.

    Attributes
    ----------
    done : bool
        Whether backward has run.
    trains : bool
        Whether backward stages gradients of rows.
    missed : list, optional
        Gets an element by a backward that stages none.
    """

    def __init__(self, parts: list[LookupPart], pooled: bool, memory: RecycledMemory,
                 staging: Callable[[], AbstractContextManager[None]]) -> None:
        self.parts, self.pooled, self._memory, self.staging = parts, pooled, memory, staging
        self.done, self.trains = False, True
        self.missed: list[bool] | None = None

    def pool(self, weights: Tensor | None) -> tuple[Tensor, list[Tensor] | None]:
        """The result of all parts, and the rows that the gradient of `weights` needs.

        Returns
        -------
        (float32[samples, width]; list of float32[n, D] or None)
        """
        rows = None
        if weights is not None and weights.requires_grad:
            rows = [_rows(part) for part in self.parts]
        layout = self.parts[0].layout
        if not all(part.compiled for part in self.parts):
            return self._pool_pieces(weights), rows
        pooled = self._memory.empty(layout.samples, layout.row_width)
        for part in self.parts:
            pool_bags(part.located.rows.weights, part.located.at, part.layout,
                      _weights_of(part, weights), out=pooled)
        return pooled, rows

    def _pool_pieces(self, weights: Tensor | None) -> Tensor:
        pieces: dict[int, Tensor] = {}
        for part in self.parts:
            found, layout = _pool_part(part, _weights_of(part, weights), self.pooled), part.layout
            pieces |= zip(layout.first_columns.tolist(), found.view(
                layout.features, layout.samples, layout.dim).unbind(), strict=True)
        return torch.cat([pieces[column] for column in sorted(pieces)], dim=1)

    def stage(self, gradients: Tensor, weights: Tensor | None) -> None:
        """Stage the gradients of `pool`'s result."""
        if self.missed is not None:
            self.missed[:] = [True]
        if self.trains:
            self._stage(gradients, weights)
        self.done = True

    def _stage(self, gradients: Tensor, weights: Tensor | None) -> None:
        for part in self.parts:
            here = _weights_of(part, weights)
            if part.compiled:
                groups = part.grouper.group(part.located.at)
                sums = self._memory.empty(groups.distinct.shape[0], part.layout.dim)
                sum_gradients(gradients, groups, part.layout, here, out=sums)
                part.staged.add_groups(part.located, part.flat, groups.distinct, sums)
            else:
                _stage_part(part, _by_bag(gradients, part.layout), here, self.pooled)

    def weight_gradients(self, gradients: Tensor, rows: Sequence[Tensor]) -> Tensor:
        """The gradient of the weights: float32[n]."""
        return torch.cat([
            (_by_bag(gradients, part.layout)[
                to_device(_bags(part.segment), gradients.device)] * here).sum(1)
            for part, here in zip(self.parts, rows, strict=True)])


def _weights_of(part: LookupPart, weights: Tensor | None) -> Tensor | None:
    return None if weights is None else weights[part.segment.lookups]


def _rows(part: LookupPart) -> Tensor:
    """Rows of the lookups: float32[n, D]."""
    located = part.located
    if located.pooler is not None:
        return located.pooler.read(part.segment)
    with located.lock:
        stored = located.rows.weights
        return stored[to_device(located.at, stored.device).long()].float()


def _pool_part(part: LookupPart, weights: Tensor | None, pooled: bool) -> Tensor:
    """Bags of a part: float32[bags, D], without pooling float32[n, D]."""
    if not pooled:
        return _rows(part)
    located, device = part.located, part.located.rows.weights.device
    if located.pooler is not None:
        found = located.pooler.pool(part.segment, weights)
    else:
        with located.lock:
            found = pool(located.rows.weights, to_device(located.at, device).long(),
                         to_device(part.segment.lengths, device), weights)
    if located.sums is not None:
        found = found + to_device(located.sums, device)
    divisor = part.layout.divisor
    return found if divisor is None else found / to_device(divisor, device)


def _stage_part(part: LookupPart, gradients: Tensor, weights: Tensor | None, pooled: bool) -> None:
    """Stage the gradients float32[bags, D] of a part."""
    if part.layout.divisor is not None:
        gradients = gradients / to_device(part.layout.divisor, gradients.device)
    if isinstance(part.staged_bags, CardBags):
        part.staged_bags.add(part.located, part.flat, part.layout.lengths, gradients, weights)
        return
    flat, cold = part.segment.flat, part.located.cold
    bags = _bags(part.segment) if pooled else torch.arange(len(flat))
    if cold is not None and part.staged_bags is not None:
        part.staged_bags.add(flat[cold], bags[cold], gradients)
        part.staged.add(flat[~cold], bags[~cold], gradients)
    else:
        part.staged.add(flat, bags, gradients, weights)


def _bags(segment: Segment) -> Tensor:
    """Bag of each lookup: int64[n]."""
    return torch.repeat_interleave(torch.arange(len(segment.lengths)), segment.lengths)


def _by_bag(gradients: Tensor, layout: BagLayout) -> Tensor:
    """Gradients of the bags of a layout, from those of all bags: float32[bags, D]."""
    return torch.cat([gradients[:, column:column + layout.dim]
                      for column in layout.first_columns.tolist()])


def backward_number() -> int:
    """Number of the backward in which the caller runs, as what activation checkpointing repeats; -1
    outside."""
    return torch._C._current_graph_task_id()


class PooledLookup(torch.autograd.Function):
    """`Lookup` as a node of autograd's graph."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, weights: Tensor | None, lookup: Lookup) -> Tensor:
        """Run `lookup.pool(weights)`; `anchor` requires a gradient, so that backward runs."""
        ctx.lookup = lookup
        ctx.set_materialize_grads(False)
        pooled, rows = lookup.pool(weights)
        ctx.save_for_backward(weights, *(rows or ()))
        ctx.weighs = rows is not None
        return pooled

    @staticmethod
    @on_host
    def backward(ctx: Any, gradients: Tensor | None) -> tuple[Any, ...]:
        (weights, *rows), lookup = ctx.saved_tensors, ctx.lookup
        if gradients is None or not gradients.numel():
            trains = gradients is not None and ctx.needs_input_grad[0]
            with lookup.staging() if trains else nullcontext():
                lookup.done = True
            return None, None if weights is None else torch.zeros_like(weights), None
        if gradients.stride(1) != 1:
            gradients = gradients.contiguous()
        if ctx.needs_input_grad[0]:
            with lookup.staging():
                lookup.stage(gradients, weights)
        of_weights = None
        if ctx.weighs:
            of_weights = _FirstDerivative.apply(lookup.weight_gradients(gradients, rows))
        return None, of_weights, None


class _FirstDerivative(torch.autograd.Function):
    """The gradient of weights, whose derivative by rows autograd would leave out."""

    @staticmethod
    def forward(ctx: Any, gradients: Tensor) -> Tensor:
        return gradients.view_as(gradients)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise Error("the gradient of weights per sample has no derivative, as in nn.EmbeddingBag")
