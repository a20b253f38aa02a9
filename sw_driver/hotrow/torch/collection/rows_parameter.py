"""`RowsParameter`: what `parameters()` of a model shows of tables whose rows are no parameters."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any, Self

import torch
from torch import nn
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from ...contract.errors import Error
from ...system.interrupts import uninterrupted
from ..optim.leaf import LEAF_SHAPE, RowsLeaf
from ..optim.staging import GradientStage
from .running_steps import begin_step, end_steps, stepping

_TENSOR: Any = torch.Tensor
_TRAINS, _GRAD = _TENSOR.requires_grad.__get__, _TENSOR.grad.__get__
_SET_DATA, _SET_GRAD = _TENSOR.data.__set__, _TENSOR.grad.__set__
# Functions and attributes of a tensor's size, which are those of the rows.
_SIZES = frozenset((
    "__len__", "element_size", "is_contiguous", "itemsize", "nbytes", "nelement", "numel", "shape",
    "size", "stride"))
# Results like a RowsParameter, which are LikeRows; optimizers keep them in their state.
_LIKE = frozenset((
    "data", "detach()", "empty_like()", "full_like()", "ones_like()", "zeros_like()"))
# Functions that need neither elements nor memory; ranks that exchange it have the same rows.
_WITHOUT_ELEMENTS = _SIZES | {
    "__dir__", "__format__", "_is_view", "all_reduce", "broadcast", "detach", "detach_", "dim",
    "empty_like", "full_like", "get_device", "is_complex", "is_conj", "is_floating_point",
    "is_inference", "is_neg", "is_pinned", "is_shared", "ndimension", "new_empty", "new_full",
    "new_ones", "new_zeros", "ones_like", "rename_", "requires_grad_", "storage_offset",
    "zeros_like"}
# Functions that need none with some arguments; `expand_as` finds a node of the graph.
_WITH_ARGUMENTS: dict[str, Callable[..., bool]] = {
    "__eq__": lambda _, other: other is None, "__ne__": lambda _, other: other is None,
    "backward": lambda tensors, *_, **__: not isinstance(tensors, _StandIn),  # to `inputs`
    "expand_as": lambda this, other: other is this,
    "type": lambda *args, **kwargs: len(args) == 1 and not kwargs}
_IN_PLACE = frozenset(f"__i{name}__" for name in (
    "add", "sub", "mul", "truediv", "floordiv", "div", "mod", "pow", "and", "or", "xor"))
_HARMLESS = ("detach_", "requires_grad_", "share_memory_", "rename_")
_OF_ROWS = "of a parameter that hotrow's tables show in the place of their rows would leave"
_GRADIENTS = ("the gradients of rows out: take [*model.parameters(), *collection.gradients()], "
              "with the collection that convert() returned")


def plain(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Any:
    """Call a function of PyTorch as if its arguments were plain tensors."""
    return _TENSOR.__torch_function__(func, (), args, kwargs or {})


class _StandIn(torch.Tensor):
    """A tensor that shows rows without having them."""

    stage: GradientStage
    table: int | None

    @classmethod
    def showing(cls, tensor: torch.Tensor, stage: GradientStage, table: int | None) -> Self:
        """The tensor as one that shows the rows of a table, or of all with None."""
        found: Self = _TENSOR._make_subclass(cls, tensor)
        found.stage, found.table = stage, table
        return found

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        shape = list(_of_size(self.stage, self.table).shape)
        return f"{type(self).__name__}(of rows {shape} of hotrow's tables)"


class RowsParameter(_StandIn, nn.Parameter, RowsLeaf):
    """A parameter without rows in it, through which calls on the model reach rows.

    Backward runs to it. `model.requires_grad_(False)` freezes the rows. Its shape and size are
    those of the rows. Its `grad` is present while gradients of rows of its module are staged; where
    it is set to None or zeroed, as by `model.zero_grad()`, these are dropped. A step of an
    optimizer of PyTorch that has it among its parameters finds one zero in it and in its `grad`,
    removes its `grad` and keeps the staged gradients. Whatever else needs elements or memory of it,
    as a penalty, a norm or an average of parameters, would leave the rows out: it is refused.
    """

    @classmethod
    def of(cls, stage: GradientStage, table: int | None = None) -> RowsParameter:
        """The parameter of a module that looks up in one table, or in all with None."""
        found = cls(torch.zeros(*LEAF_SHAPE, dtype=torch.float32))
        found.pending, found.stage, found.table = [], stage, table
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
        end_steps()
        with uninterrupted(), self.stage.lock:
            pending, self.pending = self.pending, []
            if not self.trains:  # frozen since the forward
                return
            for held in filter(None, (reference() for reference in pending)):
                held()
            marker = self.stage.marked(self)
            self.grad = marker if marker is not None else RowsGradient.showing(
                torch.zeros(*LEAF_SHAPE, dtype=torch.float32), self.stage, self.table)
            self.stage.mark(self, self.grad)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple[Any, ...] = (),
                           kwargs: Any = None) -> Any:
        name = _name(func)
        result, allowed = _answer(func, name, args, kwargs)
        if not allowed and name == "grad":
            raise Error(f"another grad {_OF_ROWS} {_GRADIENTS}")
        if not allowed:
            traced = "; lookups cannot be traced, exported or transformed" * ("storage" in name)
            raise Error(f"{name} {_OF_ROWS} the rows out: use state_dict(), in which whole tables "
                        f"are, or the collection's table(){traced}")
        if name in _LIKE and isinstance(result, torch.Tensor) and not stepping():
            return LikeRows.showing(result, args[0].stage, args[0].table)
        return result

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise Error(f"a copy {_OF_ROWS} the rows out: save state_dict(), or copy the model, "
                    "without an optimizer among its attributes")


class LikeRows(_StandIn):
    """A detached RowsParameter, or one of its size, with the same refusals."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple[Any, ...] = (),
                           kwargs: Any = None) -> Any:
        if func == _TENSOR.to and not (kwargs or {}).get("copy"):  # as an optimizer loads its state
            return args[0]
        return RowsParameter.__torch_function__(func, types, args, kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        found = LikeRows.showing(plain(_TENSOR.clone, (self,)), self.stage, self.table)
        return memo.setdefault(id(self), found)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return plain(_TENSOR.clone, (self,)).__reduce_ex__(protocol)


class RowsGradient(_StandIn):
    """`grad` of a RowsParameter: it records what is done to gradients in place.

    Its elements are refused until the caller has listed `gradients()` of the collection, which
    have those of the rows: then they count as zero.

    Attributes
    ----------
    zeroed, scaled : bool
        Whether it was set to zero, or changed otherwise without the staged gradients.
    """

    zeroed = scaled = False

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple[Any, ...] = (),
                           kwargs: Any = None) -> Any:
        name, kwargs = _name(func), kwargs or {}
        called = name.removesuffix("()")
        free = "unscale" in name or called.endswith("zero_") or called in _HARMLESS
        result, allowed = _answer(func, name, args, kwargs, free or any(
            each.stage.listed or each.stage.asked
            for each in flat(args) if isinstance(each, RowsGradient)))
        if not allowed:
            raise Error(f"{name} of grad {_OF_ROWS} {_GRADIENTS}")
        if isinstance(args[0], RowsGradient) and name in ("data", "detach()"):
            return args[0]
        for marker in written(called, args, kwargs):
            if isinstance(marker, RowsGradient) and called not in _HARMLESS:
                marker._record(called, list(flat(args)))
        return result

    def _record(self, name: str, tensors: list[torch.Tensor]) -> None:
        staged = [each for each in self.stage.all
                  if any(each.values is tensor for tensor in tensors)]
        if name.endswith("zero_"):
            self.zeroed = True
        elif "unscale" in name:  # by a GradScaler, which unscales per optimizer
            for each in staged:
                each.unscaled()
            self.stage.asked = False
        elif not staged:
            self.scaled = True


def _name(func: Any) -> str:
    """Name of a function of PyTorch, `name()`, or of an attribute that is read or set."""
    name = getattr(func, "__name__", "")
    return func.__self__.__name__ if name in ("__get__", "__set__") else f"{name}()"


def _answer(func: Any, name: str, args: Any, kwargs: Any, free: bool = False) -> tuple[Any, bool]:
    """The result of a function, and whether rows are not left out of it."""
    called, attribute = name.removesuffix("()"), not name.endswith("()")
    if called == "__eq__" and isinstance(args[1], torch.Tensor) and is_one_table(*args):
        return True, True
    runs = stepping()
    if not runs and (func == _SET_DATA or (
            func == _SET_GRAD and not isinstance(args[1], _StandIn | None))):
        return None, False
    if called in _SIZES and not runs and isinstance(args[0], _StandIn):
        return plain(func, (_of_size(args[0].stage, args[0].table), *args[1:]), kwargs), True
    if not (attribute or runs or free or called in _WITHOUT_ELEMENTS or (
            called in _WITH_ARGUMENTS and _WITH_ARGUMENTS[called](*args, **(kwargs or {})))):
        return None, False
    result = plain(func, args, kwargs)
    return result, (not attribute or runs or free or name in ("data", "grad")
                    or not isinstance(result, torch.Tensor))


def is_one_table(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether two tensors are the RowsParameter and the weight of one module, for which sets and
    dicts of parameters ask."""
    return getattr(first, "_rows", None) is second or getattr(second, "_rows", None) is first


def _of_size(stage: GradientStage, table: int | None) -> torch.Tensor:
    """A tensor without memory of the size of a table, or of all tables in one column."""
    configs = [config for group in stage.groups
               for number, config in zip(group.numbers, group.configs, strict=True)
               if table in (None, number)]
    shapes = [(each.num_embeddings, each.embedding_dim) for each in configs]
    shape = shapes[0] if len(shapes) == 1 else (sum(rows * dim for rows, dim in shapes), 1)
    return torch.empty(*shape, dtype=configs[0].dtype, device="meta")


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
    rows = module._parameters.get(module.rows_name)
    if type(rows) is not RowsParameter:
        raise Error(f"{type(module).__name__}.{module.rows_name} was replaced by a "
                    f"{type(rows).__name__}: its tables are no parameters, and functional_call(), "
                    f"fully_shard(), swapped or assigned parameters do not reach their rows. Leave "
                    f"the module out")
    return rows


class TableParameters(dict[str, nn.Parameter | None]):
    """Parameters of a module that looks up in a table: a RowsParameter as `weight`, for good.

    Functions of PyTorch that replace a parameter (pruning, parametrizations, assignment) do so
    here.
    """

    def _check(self, name: str, value: Any) -> None:
        if name.startswith("weight") and value is not self.get("weight"):
            raise Error("the weight of a table of hotrow is no parameter, and cannot be pruned, "
                        "parametrized, replaced or assigned: write into it in place, or do so "
                        "before convert()")

    def __setitem__(self, name: str, value: Any) -> None:
        self._check(name, value)
        super().__setitem__(name, value)

    def __delitem__(self, name: str) -> None:
        self._check(name, None)
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


def _begin_step(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> Any:
    shown = _shown(optimizer)
    replaced = [each for group in optimizer.param_groups for each in group["params"]
                if getattr(each, "replaced", "")]
    if replaced:
        warnings.warn(f"{type(optimizer).__name__} has the weight of {replaced[0].replaced}, which "
                      f"convert() replaced: its zero_grad(), weight decay and schedule do not "
                      f"reach hotrow's rows. Make the optimizer after convert()", stacklevel=4)
    for each in replaced:
        each.replaced = ""
    if shown and isinstance(optimizer, torch.optim.SparseAdam):
        raise Error("SparseAdam has the parameter of a table, whose gradients it does not get: "
                    "step the collection's optimizer instead, as in convert(optimizer='adam'), "
                    "and leave the table's parameter out of SparseAdam")
    for rows in shown:
        if any(type(each) is torch.Tensor and each.numel() > 1
               and each.shape == _of_size(rows.stage, rows.table).shape
               for each in optimizer.state.get(rows, {}).values()):
            raise Error(f"the state that {type(optimizer).__name__} has loaded was saved before "
                        f"convert() and has that of rows, which the collection's optimizer keeps: "
                        f"take it out, del optimizer.state[parameter]")
        rows.stage.beside.setdefault(
            optimizer, [group.get("lr") for group in optimizer.param_groups])
    return begin_step(args, kwargs) if shown else None


def settings_beside(stage: GradientStage) -> Iterator[tuple[str, Any, Any, Any]]:
    """Of each group with a RowsParameter of the stage, in optimizers that have stepped: name of the
    optimizer, weight decay, rate of its first step and rate, unless that is a tensor."""
    for optimizer, rates in list(stage.beside.items()):
        for group, rate in zip(optimizer.param_groups, rates, strict=False):
            if any(type(each) is RowsParameter and each.stage is stage for each in group["params"]
                   ) and not isinstance(group.get("lr"), torch.Tensor):
                yield type(optimizer).__name__, group.get("weight_decay"), rate, group.get("lr")


def _end_step(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    for rows in _shown(optimizer):
        rows.stage.unmark(rows)
        rows.grad = None


register_optimizer_step_pre_hook(_begin_step)
register_optimizer_step_post_hook(_end_step)
