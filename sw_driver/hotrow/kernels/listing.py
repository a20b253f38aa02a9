"""Rows that a device listed."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..contract.errors import Error
from .library import address, library, pointer


@dataclass(frozen=True, eq=False)
class ListedRows:
    """The rows of one group in a list of a device.

    Attributes
    ----------
    flat : int64[m]
    slots : uint32[m]
    with_slot, without_slot : int64[tables]
        Rows of each table that have a slot, and that have none.
    bypassed : int
        All rows without a slot.
    listed : RowList, optional
        By the device's tables, if they are one list there.
    """

    flat: Tensor
    slots: NDArray[np.uint32]
    with_slot: NDArray[np.int64]
    without_slot: NDArray[np.int64]
    bypassed: int = 0
    listed: Any = None

    def __len__(self) -> int:
        return self.flat.shape[0]


def select_rows(keys: NDArray[np.uint64], slots: NDArray[np.uint32], group_of: NDArray[np.int32],
                first: NDArray[np.int64], group: int, directory: int,
                listed: Any = None) -> ListedRows:
    """The rows of a group.

    Parameters
    ----------
    keys : uint64[n]
        The device's table << 32 | row of each.
    slots : uint32[n]
        Of each row; from `directory` on it has none.
    group_of : int32[tables]
    first : int64[tables]
        Flat row of each table's row 0.
    group, directory : int
    listed : RowList, optional
        That of the result.

    Returns
    -------
    ListedRows

    Raises
    ------
    Error
        A row is of no table.
    """
    count, tables, native = len(keys), len(first), library()
    for array, dtype, size in ((keys, np.uint64, count), (slots, np.uint32, count),
                               (group_of, np.int32, tables), (first, np.int64, tables)):
        if array.dtype != dtype or array.shape != (size,) or not array.flags.c_contiguous:
            raise Error(f"expected a contiguous {np.dtype(dtype)}[{size}], got {array.dtype} "
                        f"{list(array.shape)} with strides {list(array.strides)}")
    having, lacking = np.zeros(tables, np.int64), np.zeros(tables, np.int64)
    flat, chosen = torch.empty(count, dtype=torch.int64), np.empty(count, np.uint32)
    found = 0 if not count else native.select_rows(
        address(keys), address(slots), count, tables, address(group_of),
        address(first), group, directory, flat.data_ptr(), address(chosen),
        address(having), address(lacking))
    if found < 0:
        raise _no_table(keys, -1 - found, tables)
    return ListedRows(flat[:found], chosen[:found], having, lacking, int(lacking.sum()), listed)


def locate_rows(flat: Tensor, first: NDArray[np.int64], number: int) -> NDArray[np.uint32]:
    """Tables and rows of flat rows.

    Parameters
    ----------
    flat : int64[n]
    first : int64[tables]
        Flat row of each table's row 0, ascending from 0.
    number : int
        The device's number of the first table; those of the others follow.

    Returns
    -------
    uint32[n, 2]
        Row and table of each.

    Raises
    ------
    Error
        A row is negative, or no 32-bit row of its table.
    """
    native, flat = library(), flat.contiguous()
    if flat.dim() != 1 or not len(first) or first[0] or (np.diff(first) < 0).any():
        raise Error(f"expected rows [n], and tables that ascend from 0, got {list(flat.shape)} and "
                    f"{list(first[:8])}")
    entries = np.empty((flat.shape[0], 2), np.uint32)
    first = np.ascontiguousarray(first, np.int64)
    wrong = native.locate_rows(pointer(flat, torch.int64), flat.shape[0], address(first),
                               len(first), number, address(entries))
    if wrong:
        raise Error(f"flat row {int(flat[wrong - 1])} at position {wrong - 1} is negative, or no "
                    f"32-bit row of its table")
    return entries


def _no_table(keys: NDArray[np.uint64], position: int, tables: int) -> Error:
    return Error(f"row {position} of a device's list is of table {int(keys[position]) >> 32}: "
                 f"expected 0 to {tables - 1}")
