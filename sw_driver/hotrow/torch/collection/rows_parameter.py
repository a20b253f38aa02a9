"""`RowsParameter`: what `parameters()` of a model shows of tables whose rows are no parameters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import nn
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from ...contract.errors import Error
from ..optim.interrupts import uninterrupted
from ..optim.leaf import NO_ROWS, RowsLeaf
from ..optim.staging import GradientStage

_TENSOR: Any = torch.Tensor
_TRAINS, _DATA, _GRAD = (
    _TENSOR.requires_grad.__get__, _TENSOR.data.__get__, _TENSOR.grad.__get__)
_SET_DATA = _TENSOR.data.__set__
# Functions that need no elements; `expand_as` finds a node of the graph.
_WITHOUT_ELEMENTS = frozenset((
    "__deepcopy__", "__dir__", "__format__", "__hash__", "__len__", "__reduce_ex__", "__repr__",
    "_is_view", "backward", "data_ptr", "detach", "detach_", "dim", "element_size", "empty_like",
    "expand_as", "full_like", "get_device", "is_complex", "is_conj", "is_contiguous",
    "is_floating_point", "is_inference", "is_neg", "is_pinned", "is_shared", "ndimension",
    "nelement", "new_empty", "new_full", "new_ones", "new_zeros", "numel", "ones_like", "rename_",
    "requires_grad_", "size", "storage_offset", "stride", "type", "untyped_storage", "zeros_like"))
_IN_PLACE = frozenset(f"__i{name}__" for name in (
    "add", "sub", "mul", "truediv", "floordiv", "div", "mod", "pow", "and", "or", "xor"))
_HARMLESS = ("detach_", "requires_grad_", "share_memory_", "rename_")


def plain(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Any:
    """Call a function of PyTorch as if its arguments were plain tensors."""
    return _TENSOR.__torch_function__(func, (), args, kwargs or {})


class RowsParameter(nn.Parameter, RowsLeaf):
    """A parameter without elements, through which calls on the model reach rows.

    Backward runs to it. `model.requires_grad_(False)` freezes the rows. Its `grad`, without
    elements, is present while gradients of rows of its module are staged; where it is set to None
    or zeroed, as by `model.zero_grad()`, these are dropped. A step of an optimizer of PyTorch that
    has it among its parameters removes its `grad` and keeps the staged gradients. Whatever needs
    elements of it, as a penalty, a norm or an average of parameters, would leave the rows out: it
    is refused.
    """

    @classmethod
    def of(cls, stage: GradientStage, table: int | None = None) -> RowsParameter:
        """The parameter of a module that looks up in one table, or in all with None."""
        found = cls(torch.empty(*NO_ROWS, dtype=torch.float32))
        found.pending, found.stage, found.table, found.in_step = [], stage, table, False
        plain(_TENSOR.register_post_accumulate_grad_hook, (found, RowsParameter._accumulated))
        return found

    @property
    def trains(self) -> bool:
        """Whether rows train."""
        return bool(plain(_TRAINS, (self,)))

    @property
    def marker(self) -> Any:
        """Its `grad`."""
        return plain(_GRAD, (self,))

    def _accumulated(self) -> None:
        """Stage what the backward that reached this parameter found."""
        with uninterrupted(), self.stage.lock:
            pending, self.pending = self.pending, []
            if not self.trains:  # frozen since the forward
                return
            for held in filter(None, (reference() for reference in pending)):
                held()
            marker = self.stage.marked(self)
            self.grad = RowsGradient.of(self.stage) if marker is None else marker
            self.stage.mark(self, self.grad)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple[Any, ...] = (),
                           kwargs: Any = None) -> Any:
        name, result = getattr(func, "__name__", ""), cast(Any, None)
        in_step = any(each.in_step for each in flat(args) if isinstance(each, RowsParameter))
        attribute = name in ("__get__", "__set__")
        allowed = in_step or (func != _SET_DATA if attribute else name in _WITHOUT_ELEMENTS)
        if allowed:
            result = plain(func, args, kwargs)
            allowed = in_step or not attribute or func in (_DATA, _GRAD) or not isinstance(
                result, torch.Tensor)
        if not allowed:
            name = func.__self__.__name__ if attribute else f"{name}()"
            raise Error(f"{name} of a parameter that hotrow's tables show in the place "
                        f"of their rows would leave the rows out: use state_dict(), in which "
                        f"whole tables are, or the collection's table()")
        if not in_step and (func == _DATA or name == "detach"):
            return result.as_subclass(DetachedRows)
        return result


class DetachedRows(torch.Tensor):
    """A detached RowsParameter, with the same refusals."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple[Any, ...] = (),
                           kwargs: Any = None) -> Any:
        return RowsParameter.__torch_function__(func, types, args, kwargs)


class RowsGradient(torch.Tensor):
    """`grad` of a RowsParameter: it records what is done to gradients in place.

    Attributes
    ----------
    zeroed, scaled : bool
        Whether it was set to zero, or changed otherwise without the staged gradients.
    """

    zeroed = scaled = False
    _stage: GradientStage

    @classmethod
    def of(cls, stage: GradientStage) -> RowsGradient:
        found = torch.zeros(*NO_ROWS, dtype=torch.float32).as_subclass(cls)
        found._stage = stage
        return found

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple[Any, ...] = (),
                           kwargs: Any = None) -> Any:
        name, kwargs = getattr(func, "__name__", ""), kwargs or {}
        if "norm" in name and not changes(name):
            args = _with_an_element(args)
        result = plain(func, args, kwargs)
        if isinstance(args[0], RowsGradient) and (func == _DATA or name == "detach"):
            return args[0]
        for marker in written(name, args, kwargs):
            if isinstance(marker, RowsGradient) and name not in _HARMLESS:
                marker._record(name, list(flat(args)))
        return result

    def _record(self, name: str, tensors: list[torch.Tensor]) -> None:
        staged = [each for each in self._stage.all
                  if any(each.values is tensor for tensor in tensors)]
        if name.endswith("zero_"):
            self.zeroed = True
        elif "unscale" in name:  # by a GradScaler, which unscales per optimizer
            for each in staged:
                each.unscaled()
        elif not staged:
            self.scaled = True


def _with_an_element(args: Any) -> Any:
    """Arguments with a zero in each RowsGradient: without elements there is no greatest one."""
    if isinstance(args, RowsGradient):
        return torch.zeros(1, dtype=torch.float32)
    return type(args)(map(_with_an_element, args)) if isinstance(args, (list, tuple)) else args


def written(name: str, args: Any, kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The tensors that the function of that name writes: its first argument, or `out`."""
    return list(flat((*(args[:1] if changes(name) else ()), kwargs.get("out"))))


def changes(name: str) -> bool:
    """Whether the function of that name changes its first argument in place."""
    return name == "__setitem__" or (name[:3] == "__i" and name in _IN_PLACE) or (
        name[-1:] == "_" != name[-2:-1])


def rows_of(module: Any) -> RowsParameter:
    """The RowsParameter of a module.

    Raises
    ------
    Error
        Another tensor is in its place.
    """
    rows = module._parameters.get("rows")
    if type(rows) is not RowsParameter:
        found = type(getattr(module, "rows", None)).__name__
        raise Error(f"{type(module).__name__}.rows was replaced by a {found}: its "
                    f"tables are no parameters, and functional_call(), fully_shard(), swapped or "
                    f"assigned parameters do not reach their rows. Leave the module out")
    return rows


_REPLACED = frozenset((
    "weight", "weight_orig", "weight_mask", "weight_g", "weight_v", "weight_u", "weight_bar"))


class TableParameters(dict[str, nn.Parameter | None]):
    """Parameters of a module that looks up in tables: `rows`, and no `weight`.

    Functions of PyTorch that replace a parameter `weight` (pruning, parametrizations, assignment)
    ask for it here.
    """

    def _check(self, name: Any) -> None:
        if name in _REPLACED:
            raise Error("the weight of a table of hotrow is no parameter, and cannot be pruned, "
                        "parametrized, replaced or assigned: write into it in place, or do so "
                        "before convert()")

    def __contains__(self, name: object) -> bool:
        self._check(name)
        return super().__contains__(name)

    def __getitem__(self, name: Any) -> Any:
        self._check(name)
        return super().__getitem__(name)

    def __setitem__(self, name: Any, value: Any) -> None:
        self._check(name)
        super().__setitem__(name, value)

    def __delitem__(self, name: Any) -> None:
        self._check(name)
        super().__delitem__(name)


def refuse_scripting() -> None:
    """Raise Error, for `__prepare_scriptable__` of a module."""
    raise Error("a lookup of hotrow cannot be compiled by torch.jit.script(): it needs the ids of "
                "each batch in Python. Script the rest of the model")


def flat(args: Any) -> Iterator[torch.Tensor]:
    """The tensors among arguments, also in lists and tuples."""
    for each in args:
        if isinstance(each, torch.Tensor):
            yield each
        elif isinstance(each, (list, tuple)):
            yield from flat(each)


def _shown(optimizer: torch.optim.Optimizer) -> list[RowsParameter]:
    """The RowsParameters of an optimizer of other parameters."""
    if getattr(optimizer, "of_rows", False):
        return []
    return [each for group in optimizer.param_groups for each in group["params"]
            if type(each) is RowsParameter]


def _begin_step(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    for rows in _shown(optimizer):
        rows.in_step = True


def _end_step(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    for rows in _shown(optimizer):
        rows.in_step = False
        rows.stage.unmark(rows)
        rows.grad = None


register_optimizer_step_pre_hook(_begin_step)
register_optimizer_step_post_hook(_end_step)
