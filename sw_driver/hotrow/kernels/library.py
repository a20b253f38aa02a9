"""The compiled passes over a batch, as one shared library."""

import ctypes
from collections.abc import Mapping
from ctypes import POINTER, c_float, c_int, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from ..contract.errors import Error
from . import native

_WORK_PER_THREAD = 1 << 17  # elements that pay for a thread

_FOLDER = Path(__file__).parent
NO_MEMORY = -(1 << 63)  # as in rows.hpp
TYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}


class Integers(ctypes.Structure):
    """int32 or int64 values."""

    _fields_ = [("data", c_void_p), ("wide", c_int32)]

    @classmethod
    def of(cls, tensor: torch.Tensor | None) -> "Integers":
        """The values of a tensor of the host, which the caller keeps alive; None for no values."""
        if tensor is None:
            return cls(None, 0)
        if tensor.dtype not in (torch.int32, torch.int64) or tensor.device.type != "cpu":
            raise Error(f"expected int32 or int64 on the host, got {tensor.dtype} on "
                        f"{tensor.device}")
        return cls(tensor.data_ptr(), tensor.dtype == torch.int64)


class Table(ctypes.Structure):
    """Rows in host memory."""

    _fields_ = [("data", c_void_p), ("rows", c_int64), ("stride", c_int64), ("dim", c_int64),
                ("type", c_int32)]

    @classmethod
    def of(cls, rows: torch.Tensor) -> "Table":
        """The rows of a tensor [R, D] whose rows are contiguous; the caller keeps it alive."""
        if rows.dtype not in TYPES:
            raise Error(f"expected rows of {', '.join(map(str, TYPES))}, got {rows.dtype}")
        if (rows.dim() != 2 or (rows.numel() and rows.shape[1] > 1 and rows.stride(1) != 1)
                or rows.device.type != "cpu"):
            raise Error(f"expected rows [R, D] on the host with contiguous elements, got shape "
                        f"{list(rows.shape)} with strides {list(rows.stride())} on {rows.device}")
        count, dim = rows.shape
        return cls(rows.data_ptr(), count, rows.stride(0), dim, TYPES[rows.dtype])


class Bags(ctypes.Structure):
    """Bags of a batch, and where the pooled ones lie."""

    _fields_ = [("lengths", Integers), ("weights", c_void_p), ("mean", c_void_p),
                ("columns", c_void_p), ("features", c_int64), ("samples", c_int64),
                ("lookups", c_int64), ("row_stride", c_int64)]


ARGUMENTS = {
    "group": [Integers, *[c_int64] * 5, *[c_void_p] * 4],
    "list_bags": [Integers, c_int64, c_void_p, c_int64, c_void_p, c_int64, *[c_void_p] * 2],
    "number_keys": [c_void_p, c_int64, c_void_p, c_uint64, c_void_p, c_void_p],
    "pool_forward": [POINTER(Table), POINTER(Bags), Integers, c_int64, c_int64, c_void_p, c_int],
    "pool_backward": [c_void_p, POINTER(Bags), c_void_p, c_int64, c_int64, c_void_p, c_int],
    "update": [POINTER(Table), c_void_p, c_int64, Integers, c_int64, c_int32, c_void_p, c_int64,
               c_void_p, c_int32, POINTER(c_float), c_int],
    "first_not_finite": [c_void_p, c_int64, c_int64],
    "flatten_ids": [Integers, c_int64, c_int64, c_void_p, c_void_p, c_int64, *[c_void_p] * 3,
                    c_int64, c_int32],
    "look_up": [c_void_p, c_void_p, c_int32, *[c_int64] * 4, *[c_void_p] * 3, c_int32, c_int64,
                c_void_p, c_int64, c_int],
    "pool_rows": [c_void_p, c_void_p, c_int32, c_int64, c_int64, *[c_void_p] * 3, c_int64, c_int],
    "sum_rows": [c_void_p, c_void_p, c_int32, c_int64, c_int64, *[c_void_p] * 3, c_int64,
                 *[c_void_p] * 2, c_int],
    "copy_bounded": [c_void_p, *[c_int64] * 3, c_void_p],
    "step_whole": [c_void_p, c_void_p, c_int32, c_int64, c_int64, *[c_void_p] * 2, c_int64,
                   *[c_void_p] * 4, c_int64, c_int32, POINTER(c_float), c_int],
    "copy_rows": [*[c_void_p, c_int64, c_int64, Integers] * 2, c_int64, c_int64, c_int],
    "place_slots": [c_void_p, c_int64, c_int64, c_uint32, c_int32, c_int64, c_int64, c_void_p,
                    c_int64, c_void_p],
    "select_rows": [c_void_p, c_void_p, c_int64, c_int64, c_void_p, c_void_p, c_int32, c_int64,
                    *[c_void_p] * 4],
    "locate_rows": [c_void_p, c_int64, c_void_p, c_int64, c_uint32, c_void_p],
    "assign_slots": [c_void_p, c_void_p, c_int64, c_int64, c_void_p, c_int32, c_void_p],
    "mark_dirty": [Integers, c_int64, c_int64, c_void_p, c_void_p],
}


@cache
def library() -> ctypes.CDLL:
    """The library; raises Error, with a remedy, where it is missing and cannot be compiled."""
    return declared(native.native_library(), ARGUMENTS)


def declared(loaded: ctypes.CDLL, arguments: Mapping[str, object]) -> ctypes.CDLL:
    """The library, with types for some calls; they raise MemoryError."""
    for name, types in arguments.items():
        function = getattr(loaded, name)
        function.argtypes, function.restype, function.errcheck = types, c_int64, _accepted
    return loaded


def _accepted(result: int, function: Any, arguments: tuple[Any, ...]) -> int:
    if result == NO_MEMORY:
        raise MemoryError(f"memory ran out in {function.__name__}, which has changed nothing: free "
                          f"some, or use smaller batches")
    return result


def pointer(tensor: torch.Tensor | None, dtype: torch.dtype | None) -> int | None:
    """Address of the memory of a contiguous tensor, which the caller keeps alive; None for None."""
    if tensor is None:
        return None
    if tensor.dtype != dtype or not tensor.is_contiguous() or tensor.device.type != "cpu":
        raise Error(f"expected a contiguous {dtype} on the host, got {tensor.dtype} "
                    f"{list(tensor.shape)} with strides {list(tensor.stride())} on "
                    f"{tensor.device}")
    return tensor.data_ptr()


def share_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether rows of two arrays [R, D] or [R] share a byte; columns of one array share none."""
    if not one.numel() or not other.numel():
        return False
    size, stride, end = _extent(one)
    other_size, other_stride, other_end = _extent(other)
    ahead = other.data_ptr() - one.data_ptr()
    if ahead >= end or -ahead >= other_end:
        return False
    if stride != other_stride or not stride:
        return True
    return ahead % stride < size or ahead % stride + other_size > stride


def _extent(rows: torch.Tensor) -> tuple[int, int, int]:
    """Bytes of a row of an array [R, D] or [R], from row to row, and from first to last."""
    count, *columns = rows.shape
    size = rows.element_size() * (columns[0] if columns else 1)
    stride = rows.element_size() * rows.stride(0) if count > 1 else 0
    return size, stride, (count - 1) * stride + size


def address(array: NDArray[Any]) -> int | None:
    """Address of the memory of a contiguous, writable array, which the caller keeps alive; None for
    an empty one."""
    return ctypes.addressof(ctypes.c_char.from_buffer(array.data)) if array.size else None


def threads_for(elements: int) -> int:
    """Threads for a pass over so many elements: those of PyTorch at most."""
    return max(1, min(torch.get_num_threads(), elements // _WORK_PER_THREAD))
