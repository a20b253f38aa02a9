"""Arrays that hold one row, or one row's state, per slot: checked before the device uses them."""

from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ..contract.errors import BatchError, RegistrationError
from ..contract.generated import LARGEST_STRIDE, ROW_ALIGNMENT
from ..memory.buffer import Array, Buffer, as_array, memory_of
from .integers import Integers, repeats, vector
from .table import Table


def array_of(value: Buffer | Array, what: str, writable: bool) -> NDArray[Any]:
    """The array of a Buffer, array or tensor that the device reads or, if `writable`, writes.

    Raises
    ------
    RegistrationError
    """
    if isinstance(value, Buffer):
        value.check()
        if writable and not value.writable:
            raise RegistrationError(f"{what} is {value!r}, registered with writable=False")
        value = value.array
    array = memory_of(value, what) if writable else as_array(value, what)
    if writable and not array.flags.writeable:
        raise RegistrationError(
            f"{what} must be writable; got {array.dtype} of shape {array.shape}, read-only")
    if writable and not array.flags.c_contiguous and _overlaps(array):
        raise RegistrationError(f"elements of {what} share memory: its shape is {array.shape}, its "
                                f"strides are {array.strides}")
    return array


def _overlaps(array: NDArray[Any]) -> bool:
    """Whether elements of an array may share memory, like those of an expanded tensor."""
    reach = array.itemsize
    for stride, count in sorted((abs(stride), count) for stride, count in zip(
            array.strides, array.shape, strict=True) if count > 1):
        if stride < reach:
            return True
        reach += stride * (count - 1)
    return False


def slot_array(value: Buffer | Array, what: str, dtype: DTypeLike, row_bytes: int,
               writable: bool) -> NDArray[Any]:
    """The array of `value`, whose rows must have that type and that many bytes."""
    array = array_of(value, what, writable)
    row = prod(array.shape[1:]) * array.itemsize if array.ndim else 0
    if array.dtype != dtype or row != row_bytes:
        raise RegistrationError(
            f"{what} must be of {dtype}, {row_bytes} bytes a row; got {array.dtype} of shape "
            f"{array.shape}")
    return array


def stride_of(array: NDArray[Any], what: str, table: Table) -> int:
    """Bytes between the rows of an array that the device moves in place.

    Raises
    ------
    RegistrationError
    """
    stride = array.strides[0] if len(array) > 1 else table.row_bytes
    if array.ndim != 2 or (array.shape[1] > 1 and array.strides[1] != array.itemsize):
        raise RegistrationError(f"{what} must be [n, dim] with contiguous rows, not of shape "
                                f"{array.shape} with strides {array.strides}")
    if stride % ROW_ALIGNMENT or not table.row_bytes <= stride <= LARGEST_STRIDE:
        raise RegistrationError(
            f"the rows of {what} lie {stride} bytes apart: expected a multiple of {ROW_ALIGNMENT} "
            f"from {table.row_bytes} to {LARGEST_STRIDE}")
    return stride


def slot_list(slots: ArrayLike | None, count: int, arrays: dict[str, NDArray[Any]],
              distinct: bool) -> Integers | None:
    """`slots` as an array or None, checked against the arrays that it indexes.

    Parameters
    ----------
    slots : integers [count] or None
    count : int
        Rows in the list.
    arrays : dict of str to numpy.ndarray
        By name.
    distinct : bool
        Whether a slot may occur only once.

    Raises
    ------
    BatchError
    """
    what = " or ".join(arrays)
    room = min(map(len, arrays.values()), default=None)
    if slots is None:
        if room is not None and room < count:
            raise BatchError(f"{count} rows do not fit {what}, which has {room}")
        return None
    if room is None:
        raise BatchError("slots are places in an array, but no array was given")
    places = vector(slots, "slots")
    if len(places) != count:
        raise BatchError(f"{len(places)} slots for {count} rows: expected one for each")
    if count and (places.min() < 0 or places.max() >= room):
        at = int(np.flatnonzero((places < 0) | (places >= room))[0])
        raise BatchError(f"slot {places[at]} is out of range: there are 0 to {room - 1} "
                         f"(position {at} of the list)", position=at)
    if distinct and repeats(places):
        raise BatchError("two rows cannot go to one slot: slots must be distinct")
    return places
