"""The dtype of results, which follows the model, while rows keep theirs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from ...contract.errors import Error
from .rows_parameter import rows_of


def followed(fn: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype,
             what: str) -> torch.dtype:
    """The dtype of results after `fn`, which a model applies to its tensors.

    Parameters
    ----------
    fn : callable
        As `nn.Module._apply` gets it.
    dtype : torch.dtype
        Of results so far.
    what : str
        The tables in words, for errors.

    Raises
    ------
    Error
        The model is to have float64, or no memory.
    """
    found = fn(torch.empty(0, dtype=dtype))
    if found.dtype == torch.float64:
        raise Error(f"{what} and fp32 arithmetic: a model in float64 cannot have it")
    if found.device.type == "meta":
        raise Error(f"{what} in memory: a model on the meta device cannot have it")
    if found.is_shared() and found.device.type == "cpu":
        raise Error(f"{what} in memory of this process: share_memory() cannot share it")
    return found.dtype


@contextmanager
def unchanged(module: nn.Module) -> Iterator[None]:
    """Keep the RowsParameter of a module from a change of its dtype or device."""
    rows = rows_of(module)
    del module._parameters["rows"]
    try:
        yield
    finally:
        module._parameters["rows"] = rows
