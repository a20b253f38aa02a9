"""Rows of tables in files, read into memory before their use."""

import torch

from ..contract.errors import Error
from .library import Integers, library, pointer


def read_rows(array: torch.Tensor, rows: torch.Tensor, spans: torch.Tensor) -> None:
    """Read the pages of rows, of which the disk gets many requests at the same time.

    Parameters
    ----------
    array : [R, D] or [R]
        Contiguous; parts of it are mapped files.
    rows : int32[n] or int64[n]
    spans : int64[files, 2]
        First row, and row after the last, of each file's part, ascending.

    Raises
    ------
    Error
        An index is no row, or the disk does not give a page.
    """
    native, count = library(), rows.shape[0]
    if not array.is_contiguous() or array.device.type != "cpu" or not array.numel():
        raise Error(f"expected contiguous rows on the host, got {list(array.shape)} with strides "
                    f"{list(array.stride())} on {array.device}")
    size, rows = array[0].numel() * array.element_size(), rows.contiguous()
    given = Integers.of(rows)
    wrong = native.read_rows(array.data_ptr(), size, array.shape[0], given, count,
                             pointer(spans, torch.int64), spans.shape[0])
    if wrong > 0:
        raise Error(f"row {int(rows[wrong - 1])} at position {wrong - 1} of {count} is outside of "
                    f"the {array.shape[0]} rows")
    if wrong:
        raise Error(f"row {-1 - wrong} cannot be read from its file: the disk failed, or another "
                    f"program cut the file")
