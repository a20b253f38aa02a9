"""`RowsParameter`: what `parameters()` of a model shows of tables whose rows are no parameters."""

import inspect
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ...contract.errors import Error

_ZERO_GRAD = nn.Module.zero_grad.__code__
_CLIPS = {inspect.unwrap(each).__code__
          for each in (nn.utils.clip_grad_norm_, nn.utils.clip_grad_value_)}
_TRAINS: Any = torch.Tensor.requires_grad
_DATA = torch.Tensor.data.__get__  # type: ignore[attr-defined]
_LOADING = ("_split_optim_state_dict", "_unflatten_optim_state_dict")
_REFUSED = frozenset((
    "abs", "add", "add_", "addcdiv", "addcmul", "clamp", "clamp_max", "clamp_min", "clip", "clone",
    "copy_", "div", "dist", "fill_", "flatten", "lerp", "lerp_", "linalg_norm",
    "linalg_vector_norm", "mean", "mul", "mul_", "norm", "normal_", "pow", "ravel", "reshape",
    "rmul", "rsub", "square", "sub", "sub_", "sum", "uniform_", "vector_norm", "view", "zero_"))


class RowsParameter(nn.Parameter):
    """A parameter without elements, through which calls on the model reach rows.

    `model.requires_grad_(False)` freezes the rows, and `model.zero_grad()` drops their staged
    gradients. Its own `grad` is None, so that optimizers pass it by. Clipping without the staged
    gradients, other code that reads `grad` while some are staged, and arithmetic on it, of a
    penalty or an average of parameters, would leave the rows out: they are refused.
    """

    _drop: Callable[[], None]
    _staged: Callable[[], list]

    @classmethod
    def of(cls, drop, staged):
        """A RowsParameter; `drop` is called by `zero_grad` of a module that has it, and `staged`
        returns the tensors whose `grad` are the staged gradients."""
        found = cls(torch.empty(0, dtype=torch.float32))
        found._drop, found._staged = drop, staged
        return found

    @property
    def grad(self):
        frame = sys._getframe(1)
        if frame.f_code is _ZERO_GRAD:
            self._drop()
            return
        # Before Python 3.12 a list comprehension has a frame of its own.
        for each in (frame, frame.f_back):
            if each is not None and each.f_code in _CLIPS:
                self._check_clipped(each.f_locals.get("parameters"))
                return
        if not _knows_rows(frame) and any(each.grad is not None for each in self._staged()):
            raise Error("grad of parameters() leaves the gradients of hotrow's rows out: take "
                        "[*model.parameters(), *collection.gradients()], without parameters that "
                        "have no elements")

    @grad.setter
    def grad(self, value):
        pass

    @property
    def requires_grad(self):
        """Whether rows train; False for `torch.distributed.checkpoint`, which would demand the
        state of this parameter in the dense optimizer, where it has none."""
        if sys._getframe(1).f_code.co_name in _LOADING:
            return False
        return _TRAINS.__get__(self)

    @requires_grad.setter
    def requires_grad(self, value):
        _TRAINS.__set__(self, value)

    @property
    def trains(self):
        """Whether rows train, at once."""
        with torch._C.DisableTorchFunctionSubclass():
            return _TRAINS.__get__(self)

    def _check_clipped(self, parameters):
        """Raise Error if staged gradients are not among the clipped ones."""
        clipped = {id(each) for each in parameters} if isinstance(parameters, list) else set()
        if any(each.grad is not None and id(each) not in clipped for each in self._staged()):
            raise Error("clipping of parameters() leaves the gradients of hotrow's rows out: clip "
                        "[*model.parameters(), *collection.gradients()], with the collection that "
                        "convert() returned")

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if getattr(func, "__name__", "").strip("_") in _NAMES:
            raise Error(f"{func.__name__}() of a parameter that hotrow's tables show in the place "
                        f"of their rows would leave the rows out: use state_dict(), in which "
                        f"whole tables are, or the collection's table()")
        result = torch._C._disabled_torch_function_impl(func, types, args, kwargs or {})
        if func == _DATA or getattr(func, "__name__", "") == "detach":
            return result.as_subclass(DetachedRows)
        return result


def _knows_rows(frame):
    """Whether a frame that reads gradients is of PyTorch, hotrow or a method of an optimizer."""
    if frame.f_globals.get("__name__", "").startswith(("torch.", "hotrow.")):
        return True
    for _ in range(3):
        if frame is not None:
            if isinstance(frame.f_locals.get("self"), torch.optim.Optimizer):
                return True
            frame = frame.f_back
    return False


class DetachedRows(torch.Tensor):
    """A detached RowsParameter, with the same refusals."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        function: Any = RowsParameter.__torch_function__
        return function.__func__(cls, func, types, args, kwargs)


_NAMES = frozenset(name.strip("_") for name in _REFUSED)
