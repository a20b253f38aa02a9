"""Rows that tables start with, drawn from a seed."""

from ctypes import c_float, c_int32, c_int64, c_uint64, c_void_p

from torch import Tensor

from .library import TYPES, Table
from .native import native_library


def draw_rows(weights: Tensor, seed: int, bound: float, first: int = 0, step: int = 1) -> None:
    """Write rows first, first + step, ... of a table, as `hotrow.ids.initial_rows` draws them.

    Parameters
    ----------
    weights : [n, D]
        Memory of the rows, each contiguous.
    seed : int
    bound : float
        Elements are uniform in [-bound, bound), rounded to the nearest of their dtype.
    first, step : int
        Rows of the table.

    Raises
    ------
    Error
        The library is missing, or the memory is of another form.
    """
    rows, draw = Table.of(weights), native_library().draw_rows
    draw.argtypes = [c_void_p, c_int64, c_int64, c_uint64, c_uint64, c_int64, c_uint64, c_float,
                     c_int32]
    draw(rows.data, rows.stride * weights.element_size(), rows.rows, first, step, rows.dim,
         seed & (1 << 64) - 1, bound, TYPES[weights.dtype])
