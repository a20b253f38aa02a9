"""Calls that make tensors in the host's memory whatever PyTorch's default device is."""

from collections.abc import Callable
from functools import wraps
from inspect import isfunction, isgeneratorfunction
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")
_ENTRIES = frozenset(("__init__", "__setstate__", "__reduce_ex__", "__exit__",
                      "_load_from_state_dict", "_save_to_state_dict"))


def on_host(function: Callable[P, R]) -> Callable[P, R]:
    """The function with the host as default device: `torch.set_default_device` and `with
    torch.device(...)` concern the caller's tensors, not those of tables."""

    @wraps(function)
    def call(*arguments: P.args, **named: P.kwargs) -> R:
        if not torch._C._len_torch_function_stack():  # where a default device would be
            return function(*arguments, **named)
        with torch.device("cpu"):
            return function(*arguments, **named)

    return call


def entries_on_host(kind: type[R]) -> type[R]:
    """Make every public method of a class, and what `nn.Module` calls, one `on_host`."""
    for name, method in list(vars(kind).items()):
        if isfunction(method) and not isgeneratorfunction(method) and (
                name in _ENTRIES or not name.startswith("_")):
            setattr(kind, name, on_host(method))
    return kind
