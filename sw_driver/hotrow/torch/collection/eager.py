"""Calls that `torch.compile` leaves to Python, and that tracing and transforms cannot have."""

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch.utils._python_dispatch import _disable_current_modes

from ...contract.errors import Error

P = ParamSpec("P")
R = TypeVar("R")
_KEYS = torch._C._TorchDispatchModeKey
_WITHOUT_VALUES = (_KEYS.FAKE, _KEYS.PROXY, _KEYS.FUNCTIONAL)
_REFUSED = ("a lookup of hotrow cannot be traced, exported or transformed by torch.func: it needs "
            "the ids of each batch, and gradients of rows are staged by backward()")


class _Probe(torch.autograd.Function):
    """PyTorch refuses it inside a transform of `torch.func`, because it has no `setup_context`."""

    @staticmethod
    def forward(ctx: Any) -> None:
        return None


def _transformed() -> bool:
    try:
        _Probe.apply()
    except RuntimeError:
        return True
    return False


def outside_compile(method: Callable[P, R]) -> Callable[P, R]:
    """Make `torch.compile` break its graph at a method, and leave what the method calls alone.

    Where no value of a tensor is known, or a call is recorded to be repeated, it is refused.

    `torch.compiler.disable` would load `torch._dynamo`, which takes seconds; this waits until
    somebody else has.
    """
    disabled: Callable[P, R] | None = None

    @wraps(method)
    def call(*arguments: P.args, **named: P.kwargs) -> R:
        nonlocal disabled
        if torch.jit._trace.is_tracing():
            raise Error(_REFUSED)
        if torch._C._len_torch_dispatch_stack():
            if any(torch._C._get_dispatch_mode(key) for key in _WITHOUT_VALUES):
                raise Error(_REFUSED)
            with _disable_current_modes():  # a lookup repeated by checkpointing has other operators
                return call(*arguments, **named)
        if "torch._dynamo" in sys.modules and disabled is None:
            disabled = torch.compiler.disable(method)
        try:
            return (disabled or method)(*arguments, **named)
        except Exception as error:
            if not isinstance(error, Error) and _transformed():
                raise Error(_REFUSED) from error
            raise

    call._torchdynamo_disable = True  # type: ignore[attr-defined]
    return call
