"""Integers as callers hold them, without conversion where the device can read them as they are."""

import sys
from collections.abc import Sequence
from operator import index
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..contract.errors import BatchError, IntegerError, RegistrationError
from ..memory.buffer import as_array, is_tensor

Integers: TypeAlias = NDArray[np.integer[Any]]


def integers(values: Any, what: str) -> Integers:
    """`values` as little-endian 32- or 64-bit integers, the same memory where it holds them."""
    try:
        array = as_array(values, what)
    except RegistrationError as refusal:
        raise BatchError(str(refusal)) from refusal
    # NumPy holds bfloat16 as uint16.
    floats = is_tensor(values) and values.dtype.is_floating_point
    if array.size == 0:
        return array.astype(np.uint32)
    if floats or array.dtype.kind not in "iu":
        raise BatchError(
            f"{what} must be integers (uint32, int32, uint64 or int64), not "
            f"{str(values.dtype).removeprefix('torch.') if floats else array.dtype}: "
            f"a non-integer id names no row")
    width = max(array.itemsize, 4)
    return array.astype(f"<{array.dtype.kind}{width}", copy=False)


def listed(values: Any) -> NDArray[Any]:
    """`values` as an array; integers of Python that only uint64 and int64 together hold, of which
    NumPy makes floats, as the int64 of their bits."""
    array = np.asarray(values)
    if array.dtype.kind == "O" or (array.dtype.kind == "f" and not hasattr(values, "dtype")):
        objects = np.array(values, object)
        if objects.size and all(isinstance(each, (int, np.integer)) and not isinstance(each, bool)
                                and -1 << 63 <= each < 1 << 64 for each in objects.flat):
            bits = np.array([int(each) & (1 << 64) - 1 for each in objects.flat], np.uint64)
            return bits.view(np.int64).reshape(objects.shape)
    return array


def whole(value: Any, what: str) -> int:
    """A whole number of Python, NumPy or PyTorch, and no bool.

    Raises
    ------
    IntegerError
        It is something else.
    """
    try:
        if not isinstance(value, bool):
            return index(value)
    except (TypeError, RuntimeError):
        pass
    raise IntegerError(f"{what} must be a whole number, not {value!r}")


def vector(values: Any, what: str) -> Integers:
    """`integers` of one dimension."""
    array = integers(values, what)
    if array.ndim != 1:
        raise BatchError(f"{what} must be one-dimensional, not of shape {array.shape}")
    return array


def join(arrays: Sequence[Integers]) -> Integers:
    """Concatenate integers of any widths without a detour over floating point."""
    kinds = {array.dtype for array in arrays if array.size}
    if len(kinds) > 1:
        unsigned = all(kind.kind == "u" for kind in kinds)
        arrays = [array.astype(np.uint64 if unsigned else np.int64) for array in arrays]
    return np.concatenate([array for array in arrays if array.size] or arrays[:1])


def repeats(values: NDArray[Any]) -> bool:
    """Whether a number occurs twice."""
    ordered = np.sort(values)
    return bool((ordered[1:] == ordered[:-1]).any())


def grouped(keys: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Group equal keys.

    Returns
    -------
    order : int64[n]
        Positions by ascending key, ascending within a group.
    begins : int64[m]
        Place in `order` where each group begins.
    """
    position_bits = len(keys).bit_length()
    if int(keys.max(initial=0)).bit_length() + position_bits <= 64:  # faster than a stable argsort
        packed = keys << np.uint64(position_bits) | np.arange(len(keys), dtype=np.uint64)
        order = (np.sort(packed) & np.uint64((1 << position_bits) - 1)).astype(np.int64)
    else:
        order = np.argsort(keys, kind="stable")
    return order, np.flatnonzero(np.r_[True, keys[order[1:]] != keys[order[:-1]]][:len(keys)])


def first_appearances(keys: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Position of the first appearance of each distinct key, and for each key its index there."""
    order, begins = grouped(keys)
    group = np.empty(len(keys), np.int64)
    group[order] = np.repeat(np.arange(len(begins)), np.diff(np.r_[begins, len(keys)]))
    return order[begins], group


def numbered(keys: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Position of the first appearance of each distinct key, ascending, and the index there of each
    key; without a sort where the compiled passes of a trainer are loaded."""
    passes = sys.modules.get("hotrow.kernels.library")
    if passes is None:
        at, group = first_appearances(keys)
        order = np.argsort(at)
        number = np.empty(len(at), np.int64)
        number[order] = np.arange(len(at))
        return at[order], number[group]
    keys = np.ascontiguousarray(keys)
    table = np.empty(2 << len(keys).bit_length(), np.int32)
    numbers, first = np.empty((2, len(keys)), np.int64)
    count = passes.library().number_keys(keys.ctypes.data, len(keys), table.ctypes.data,
                                         len(table) - 1, numbers.ctypes.data, first.ctypes.data)
    return first[:count], numbers
