"""Calls that `torch.compile` leaves to Python, and that tracing and transforms cannot have."""

import sys
from functools import wraps

import torch

from ...contract.errors import Error

# None while no frame is evaluated for `torch.compile`.
_callback = getattr(torch._C._dynamo.eval_frame, "get_eval_frame_callback", bool)


def outside_compile(method):
    """Make `torch.compile` break its graph at a method, and leave what the method calls alone.

    Where no value of a tensor is known, or a call is recorded to be repeated, it is refused.

    `torch.compiler.disable` would load `torch._dynamo`, which takes seconds; this waits until
    somebody else has.
    """
    disabled = None

    @wraps(method)
    def call(*arguments, **named):
        nonlocal disabled
        if (torch._C._is_tracing() or torch._C._functorch.peek_interpreter_stack() is not None
                or torch.compiler.is_exporting()):
            raise Error("a lookup of hotrow cannot be traced, exported or transformed by "
                        "torch.func: it needs the ids of each batch, and gradients of rows are "
                        "staged by backward()")
        if "torch._dynamo" not in sys.modules or _callback() is None:
            return method(*arguments, **named)
        if disabled is None:
            disabled = torch.compiler.disable(method)
        return disabled(*arguments, **named)

    call._torchdynamo_disable = True  # type: ignore[attr-defined]
    return call
