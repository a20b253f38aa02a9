"""Calls that `torch.compile` leaves to Python, and that tracing and export cannot have."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

from ...contract.errors import Error

P = ParamSpec("P")
R = TypeVar("R")
_REFUSED = ("a lookup of hotrow cannot be traced, exported or transformed by torch.func: it needs "
            "the ids of each batch, and gradients of rows are staged by backward()")


def refuse_scripting() -> None:
    """Raise Error, for `__prepare_scriptable__` of a module."""
    raise Error(_REFUSED)


def outside_compile(method: Callable[P, R]) -> Callable[P, R]:
    """Make `torch.compile` break its graph at a method, and leave what the method calls alone.

    `torch.compiler.disable` loads the compiler, which takes seconds: only under it is it called.
    """

    @wraps(method)
    def call(*arguments: P.args, **named: P.kwargs) -> R:
        if torch.compiler.is_exporting():
            raise Error(_REFUSED)
        if torch.compiler.is_compiling():
            plain: Callable[P, R] = torch.compiler.disable(method)
            return plain(*arguments, **named)
        traced = torch.jit.is_tracing()  # type: ignore[no-untyped-call, attr-defined]
        if traced or not torch.empty(1, device="cpu").data_ptr():  # a transform of torch.func
            raise Error(_REFUSED)
        return method(*arguments, **named)

    return call
