"""Calls that `torch.compile` leaves to Python, and that tracing and transforms cannot have."""

import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch
from torch.utils._python_dispatch import _disable_current_modes

from ...contract.errors import Error

P = ParamSpec("P")
R = TypeVar("R")
_KEYS = torch._C._TorchDispatchModeKey
_WITHOUT_VALUES = (_KEYS.FAKE, _KEYS.PROXY, _KEYS.FUNCTIONAL)
_REFUSED = ("a lookup of hotrow cannot be traced, exported or transformed by torch.func: it needs "
            "the ids of each batch, and gradients of rows are staged by backward()")


def refuse_scripting() -> None:
    """Raise Error, for `__prepare_scriptable__` of a module."""
    raise Error(_REFUSED)


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
        if torch._C._is_tracing() or torch._C._are_functorch_transforms_active():
            raise Error(_REFUSED)
        if torch._C._len_torch_dispatch_stack():
            if any(torch._C._get_dispatch_mode(key) for key in _WITHOUT_VALUES):
                raise Error(_REFUSED)
            with _disable_current_modes():  # a lookup repeated by checkpointing has other operators
                return call(*arguments, **named)
        if "torch._dynamo" in sys.modules and disabled is None:
            disabled = torch.compiler.disable(method)
        return (disabled or method)(*arguments, **named)

    call._torchdynamo_disable = True  # type: ignore[attr-defined]
    return call
