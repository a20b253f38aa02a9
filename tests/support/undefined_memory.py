"""Undefined memory of NumPy and PyTorch is NaN, -1 where it holds integers, or True.

It is often zero, and then hides who reads it. For a run of pytest:

    pytest -p tests.support.undefined_memory tests/torch
"""

from functools import wraps

import numpy as np
import torch
from torch.utils._device import _device_constructors

MAKERS = ((np, "empty"), (np, "empty_like"), (torch, "empty"), (torch, "empty_like"),
          (torch.Tensor, "new_empty"))
NUMBER, TRUE = 0xFF, 1  # each byte of a number, which is NaN or -1; and of a bool


def pytest_configure():
    install()


def install():
    """Fill what NumPy and PyTorch return undefined, from here on in this process."""
    _device_constructors()  # PyTorch keeps this list, and default devices need the functions in it
    for owner, name in MAKERS:
        setattr(owner, name, _filled(getattr(owner, name)))


def _filled(make):
    @wraps(make)
    def made(*args, **kwargs):
        memory = make(*args, **kwargs)
        if type(memory) is np.ndarray:
            _fill_array(memory)
        elif type(memory) is torch.Tensor and memory.device.type == "cpu":
            _fill_tensor(memory)
        return memory
    return made


def _fill_array(array):
    if array.size and array.dtype.kind != "O" and array.flags.c_contiguous:
        array.reshape(-1).view(np.uint8)[:] = TRUE if array.dtype.kind == "b" else NUMBER


def _fill_tensor(tensor):
    if tensor.layout == torch.strided and not tensor.is_nested:
        tensor.untyped_storage().fill_(TRUE if tensor.dtype == torch.bool else NUMBER)
