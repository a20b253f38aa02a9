"""Steps of an optimizer on rows where they lie, and the check of their gradients."""

import ctypes
import math
from typing import Any, Protocol

import torch
from torch import Tensor

from ..contract.errors import Error
from .copying import first_repeated, mark_dirty
from .library import Integers, Table, library, pointer, share_memory, threads_for

# Code, dimensions of the state, and its columns: a multiple of D, and more.
_RULES = {"sgd": (0, 0, 0, 0), "rowwise_adagrad": (1, 1, 0, 1), "adagrad": (2, 2, 1, 0),
          "adam": (3, 2, 2, 0), "partial_rowwise_adam": (4, 2, 1, 1)}
_Parameters = ctypes.c_float * 7  # as in update.cpp


class Rule(Protocol):
    """An optimizer of rows, see `torch.optim.rules.Rule`."""

    name: str
    lr: float

    @property
    def plain(self) -> bool:
        """Whether a step depends on weights, gradients and state only, and rounds to nearest."""

    def update(self, weights: Tensor, gradients: Tensor,
               state: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """The rows after one step: (weights, state)."""

    def rounded(self, weights: Tensor, dtype: torch.dtype, keys: Tensor | None = None) -> Tensor:
        """The rows as they are stored; `keys` int64[u] seeds stochastic rounding."""


def update_rows(rows: Tensor, slots: Tensor, gradients: Tensor, rule: Rule,
                state: Tensor | None = None, keys: Tensor | None = None,
                distinct: bool = False, dirty: Tensor | None = None) -> None:
    """One step on distinct rows, in place; fp32 whatever the rows are, then rounded.

    Parameters
    ----------
    rows : float32, float16 or bfloat16 [R, D]
        Contiguous elements, any stride from row to row.
    slots : int32[u] or int64[u]
        Rows to be updated, each once.
    gradients : float32[u, D]
    rule : Rule
        Those of `hotrow.torch` have a compiled pass without weight decay and stochastic rounding.
    state : float32[R] or float32[R, columns], optional
    keys : int64[u], optional
        Key of each row, for stochastic rounding.
    distinct : bool
        Whether the slots are those of a `Grouper`, and so each there once, which nobody checks.
    dirty : bool[n], n <= R, optional
        Set for each slot below n before its row changes.

    Raises
    ------
    Error
        A slot is no row, or is given twice; no row has changed.
    """
    Integers.of(slots)
    _, dimensions, times, more = _RULES.get(rule.name, (None, 0, 0, 0))
    count, held = slots.shape[0], rows.shape[0]
    if slots.dim() != 1 or not rows.shape[1] or (
            held > 1 and rows.stride(0) < rows.shape[1]):
        raise Error(f"expected slots [u] and rows that share no memory, got {list(slots.shape)} "
                    f"and rows {list(rows.shape)} with strides {list(rows.stride())}")
    if gradients.shape != (count, rows.shape[1]) or gradients.dtype != torch.float32:
        raise Error(f"expected gradients float32[{len(slots)}, {rows.shape[1]}], got "
                    f"{gradients.dtype} {list(gradients.shape)}")
    if dimensions and (state is None or state.dim() != dimensions or state.shape[0] != held
                       or state.dtype != torch.float32 or (dimensions == 2 and (
                           state.shape[1] != times * rows.shape[1] + more
                           or (state.stride(1) != 1 and state.shape[1] > 1)))
                       or (held > 1 and state.stride(0) < state[0].numel())
                       or state.device.type != "cpu"):
        columns = [times * rows.shape[1] + more][:dimensions - 1]
        raise Error(f"{rule.name} needs state float32{[held, *columns]}")
    native = compiled_rule(rule)
    if native is None:
        if dirty is not None:
            mark_dirty(dirty, slots)
        _step(rows, slots, gradients, rule, state, keys)
        return
    slots, gradients = slots.contiguous(), gradients.contiguous()
    kept = state if dimensions else None
    if share_memory(rows, gradients) or (kept is not None and (
            share_memory(kept, rows) or share_memory(kept, gradients))):
        raise Error("expected rows, state and gradients that share no memory")
    wrong = library().update(
        ctypes.byref(Table.of(rows)), None if kept is None else kept.data_ptr(),
        0 if kept is None else kept.stride(0), Integers.of(slots), count, distinct,
        pointer(dirty, torch.bool), 0 if dirty is None else min(dirty.shape[0], held),
        pointer(gradients, torch.float32), *native, threads_for(gradients.numel()))
    if wrong > 0:
        raise _no_row(slots, wrong - 1, len(rows))
    if wrong < 0:
        raise _twice(slots, -1 - wrong)


def compiled_rule(rule: Rule) -> tuple[int, ctypes.Array[ctypes.c_float]] | None:
    """Code and parameters of a rule that has a compiled pass, or None."""
    if rule.name not in _RULES or not rule.plain:
        return None
    return _RULES[rule.name][0], _parameters(rule)


def _parameters(rule: Any) -> ctypes.Array[ctypes.c_float]:
    """For the library, what a rule's own step computes once for all rows."""
    if not hasattr(rule, "betas"):
        return _Parameters(rule.lr, getattr(rule, "eps", 0.0))
    kept = rule.betas
    return _Parameters(rule.lr / (1 - kept[0]**rule.steps), rule.eps, *kept,
                       *(1 - each for each in kept), math.sqrt(1 - kept[1]**rule.steps))


def first_not_finite(gradients: Tensor) -> int:
    """Number of the first row of float32[u, D] with an element that is not finite, or -1."""
    if (gradients.is_contiguous() and gradients.dtype == torch.float32
            and gradients.device.type == "cpu"):
        return int(library().first_not_finite(gradients.data_ptr(), *gradients.shape))
    wrong = ~torch.isfinite(gradients).all(dim=1)
    return int(wrong.nonzero()[0]) if bool(wrong.any()) else -1


def _no_row(slots: Tensor, position: int, rows: int) -> Error:
    return Error(f"row {position} to be updated has slot {int(slots[position])}: expected 0 to "
                 f"{rows - 1}")


def _twice(slots: Tensor, position: int) -> Error:
    return Error(f"row {position} to be updated has slot {int(slots[position])}, which is given "
                 f"twice: sum the gradients of a row first")


def _step(rows: Tensor, slots: Tensor, gradients: Tensor, rule: Rule, state: Tensor | None,
          keys: Tensor | None) -> None:
    at = slots.long()
    wrong = (at < 0) | (at >= len(rows))
    if bool(wrong.any()):
        raise _no_row(slots, int(wrong.nonzero()[0]), len(rows))
    repeated = first_repeated(at)
    if repeated >= 0:
        raise _twice(slots, repeated)
    after, state_after = rule.update(rows[at].float(), gradients,
                                     None if state is None else state[at])
    rows[at] = rule.rounded(after, rows.dtype, keys).to(rows.dtype)
    if state is not None and state_after is not None:
        state[at] = state_after
