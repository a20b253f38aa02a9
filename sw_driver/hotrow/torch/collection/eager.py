"""Calls that `torch.compile` leaves to Python."""

import sys
from functools import wraps

import torch


def outside_compile(method):
    """Make `torch.compile` break its graph at a method, and leave what the method calls alone.

    `torch.compiler.disable` would load `torch._dynamo`, which takes seconds; this waits until
    somebody else has.
    """
    disabled = None

    @wraps(method)
    def call(*arguments, **named):
        nonlocal disabled
        if "torch._dynamo" not in sys.modules:
            return method(*arguments, **named)
        if disabled is None:
            disabled = torch.compiler.disable(method)
        return disabled(*arguments, **named)

    call._torchdynamo_disable = True  # type: ignore[attr-defined]
    return call
