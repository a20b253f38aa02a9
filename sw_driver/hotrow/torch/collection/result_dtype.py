"""The dtype of results, which follows the model, while rows keep theirs."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ...contract.errors import Error
from .rows_parameter import rows_of


def followed(fn: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype,
             what: str, rows: Iterable[torch.dtype]) -> torch.dtype:
    """The dtype of results after `fn`, which a model applies to its tensors.

    Warns if it becomes another one than that of rows.

    Parameters
    ----------
    fn : callable
        As `nn.Module._apply` gets it.
    dtype : torch.dtype
        Of results so far.
    what : str
        The tables in words, for errors.
    rows : iterable of torch.dtype
        Of the rows.

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
    if found.dtype != dtype and any(each != found.dtype for each in rows):
        warnings.warn(f"rows of hotrow's tables keep their dtype, and results have {found.dtype}: "
                      f"for rows of that dtype change the model before convert(), or the "
                      f"TableConfig", stacklevel=2)
    return found.dtype


@contextmanager
def unchanged(module: Any) -> Iterator[None]:
    """Keep the RowsParameter of a module from a change of its dtype or device."""
    rows, parameters = rows_of(module), module._parameters
    dict.pop(parameters, module.rows_name)
    try:
        yield
    finally:
        dict.__setitem__(parameters, module.rows_name, rows)
