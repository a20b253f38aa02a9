"""Rows from one array to another, and slots of a device as places in a storage."""

import ctypes
from collections.abc import Sequence
from ctypes import c_int32, c_int64, c_void_p
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ..contract.errors import Error
from .library import Integers, address, library, pointer, share_memory, threads_for


def copy_rows(target: Tensor, source: Tensor, to: Tensor | None = None,
              start: Tensor | None = None) -> None:
    """target[to] = source[start], row by row.

    Parameters
    ----------
    target, source : [R, D] or [R]
        Of one dtype and width, each with contiguous rows at any stride.
    to, start : int32[n] or int64[n], optional
        Rows of the target, each once, and of the source; all of them unless they are given.

    Raises
    ------
    Error
        An index is no row, or a row of the target is given twice; nothing was copied.
    """
    written, read = (array.shape[0] if index is None else index.shape[0]
                     for array, index in ((target, to), (source, start)))
    if written != read or target.shape[1:] != source.shape[1:] or target.dtype != source.dtype:
        raise Error(f"cannot copy {source.dtype} {list(source.shape)} to {target.dtype} "
                    f"{list(target.shape)}: the rows differ, or there are {read} of them for "
                    f"{written} places")
    for array in (target, source):
        if array.dim() not in (1, 2) or array.device.type != "cpu" or (
                array.dim() == 2 and array.numel() and array.shape[1] > 1
                and array.stride(1) != 1):
            raise Error(f"expected rows on the host with contiguous elements, got "
                        f"{list(array.shape)} with strides {list(array.stride())} on "
                        f"{array.device}")
    if any(index is not None and (index.dim() != 1 or index.dtype not in (torch.int32, torch.int64))
           for index in (to, start)) or (len(target) > 1 and target.numel() and target.stride(0)
                                         < target[0].numel()):
        raise Error("expected indices int32[n] or int64[n], and a target of rows that share no "
                    "memory")
    if share_memory(target, source):
        raise Error("expected a target that shares no memory with the source")
    native = library()
    size, width = target.element_size(), target.shape[1] if target.dim() == 2 else 1
    to, start = (None if each is None else each.contiguous() for each in (to, start))
    wrong = native.copy_rows(
        target.data_ptr(), target.shape[0], target.stride(0) * size, Integers.of(to),
        source.data_ptr(), source.shape[0], source.stride(0) * size, Integers.of(start),
        read, size * width, threads_for(read * width))
    if wrong < 0 and to is not None:
        raise Error(f"row {int(to[-1 - wrong])} of the target is given twice, the second time at "
                    f"position {-1 - wrong} of {read}: expected each row once")
    if wrong:
        raise Error(f"row {wrong - 1} of {read} to be copied is outside of the "
                    f"{len(target)} rows of the target or the {len(source)} of the source")


def first_repeated(values: Tensor) -> int:
    """Position of the first of integers [n] that occurs before it, or -1."""
    _, inverse = torch.unique(values, return_inverse=True)
    first = torch.full((len(values),), len(values)).scatter_reduce(
        0, inverse, torch.arange(len(values)), "amin")[inverse]
    again = (first < torch.arange(len(values))).nonzero()
    return int(again[0]) if len(again) else -1


def assign_slots(held: Tensor, dirty: Tensor, places: Tensor, flat: Tensor) -> None:
    """held[places] = flat, and dirty[places] = False.

    Parameters
    ----------
    held : int32[slots] or int64[slots]
    dirty : bool[slots]
    places : int32[n]
        Each once.
    flat : int64[n]

    Raises
    ------
    Error
        A place is no slot.
    """
    Integers.of(places)
    native, count = library(), places.shape[0]
    if (held.dim() != 1 or held.shape != dirty.shape or flat.shape != places.shape
            or held.dtype not in (torch.int32, torch.int64) or dirty.dtype != torch.bool):
        raise Error(f"expected a row for each of {count} places, and slots held int32 or int64 and "
                    f"dirty bool, got {flat.shape[0]} rows, {held.dtype} {list(held.shape)} and "
                    f"{dirty.dtype} {list(dirty.shape)}")
    if places.dtype != torch.int32:
        if count and not 0 <= int(flat.min()) <= int(flat.max()) <= torch.iinfo(held.dtype).max:
            raise Error(f"a flat row is outside of {held.dtype}")
        copy_rows(held, flat.to(held.dtype), to=places)
        copy_rows(dirty, torch.zeros(count, dtype=torch.bool), to=places)
        return
    places, flat = places.contiguous(), flat.contiguous()
    wrong = native.assign_slots(
        pointer(places, torch.int32), pointer(flat, torch.int64), count, dirty.shape[0],
        pointer(held, held.dtype), held.dtype == torch.int64, pointer(dirty, torch.bool))
    if wrong < 0:
        raise Error(f"place {int(places[-1 - wrong])} is given twice: expected each once")
    if wrong:
        raise Error(f"row {wrong - 1}, {int(flat[wrong - 1])}, has place "
                    f"{int(places[wrong - 1])}: expected a slot, 0 to {len(dirty) - 1}, and a row "
                    f"that {held.dtype} holds")


def mark_dirty(dirty: Tensor, places: Tensor) -> Tensor:
    """dirty[place] = True for the places that are slots; the other places: int64[k].

    Parameters
    ----------
    dirty : bool[slots]
    places : int32[n] or int64[n]

    Raises
    ------
    Error
        A place is negative.
    """
    Integers.of(places)
    native, slots, count = library(), dirty.shape[0], places.shape[0]
    others = torch.empty(count, dtype=torch.int64)
    places = places.contiguous()
    found = native.mark_dirty(Integers.of(places), count, slots, pointer(dirty, torch.bool),
                              others.data_ptr())
    if found < 0:
        raise Error("a place of a trained row is negative")
    return others[:found]


class Places(ctypes.Structure):
    """What `Places` of the engine is: where the places of a batch's lookups go.

    Parameters
    ----------
    parts : sequence of (int, int, int)
        First and last lookup, and `first` of `place_slots`, of each partition.
    lookups : int
    part, per_choice : int
        As for `place_slots`.

    Attributes
    ----------
    tensor : int32[lookups]
    placed : int
        Not 0 once the places are there.
    address : int
    """

    _fields_ = [("places", c_void_p), ("parts", c_void_p), ("count", c_int64), ("part", c_int64),
                ("choice_log2", c_int32), ("placed", c_int32)]

    def __init__(self, parts: Sequence[tuple[int, int, int]], lookups: int, part: int,
                 per_choice: int) -> None:
        self.tensor = torch.empty(lookups, dtype=torch.int32)
        self._parts = (c_int64 * (3 * len(parts)))(*chain.from_iterable(parts))
        super().__init__(self.tensor.data_ptr(), ctypes.addressof(self._parts), len(parts), part,
                         per_choice.bit_length() - 1, 0)
        self.address = ctypes.addressof(self)


def place_slots(slots: NDArray[np.integer[Any]], area: Tensor, *, directory: int, per_choice: int,
                part: int, first: int = 0, flag: int = 0) -> Tensor:
    """Translate the slots of a batch as a device returns them.

    Parameters
    ----------
    slots : uint32[n]
        A slot of the directory; `directory` + k, or `flag` | k where there is a flag, for the k-th
        row without one.
    area : int64[k]
        Place of each row without a slot.
    directory : int
        Slots of the whole directory.
    per_choice : int
        Slots of each hash choice, a power of two.
    part, first : int
        Slots of the partition in each choice, and the first of them.
    flag : int

    Returns
    -------
    int32[n]
        Place of each lookup: the partition's slots begin at 0.

    Raises
    ------
    Error
        A slot is not in the partition, or has no place in the area.
    """
    places, native = torch.empty(len(slots), dtype=torch.int32), library()
    if not len(slots):
        return places
    slots = as_uint32(slots)
    if per_choice < 1 or per_choice & (per_choice - 1):
        raise Error(f"slots of a choice are a power of two, not {per_choice}")
    wrong = native.place_slots(
        address(slots), len(slots), directory, flag, per_choice.bit_length() - 1, part, first,
        pointer(area, torch.int64), area.shape[0], places.data_ptr())
    if wrong:
        raise Error(f"lookup {wrong - 1} has slot {int(slots[wrong - 1]):#x}: expected a slot of "
                    f"the partition, or one of {len(area)} rows without a slot")
    return places


def as_uint32(values: ArrayLike) -> NDArray[np.uint32]:
    """Integers [n] as contiguous uint32, which hold them."""
    values = np.asarray(values)
    if values.dtype != np.uint32 and (values.dtype.kind not in "iu" or (len(values) and not (
            int(values.min()) >= 0 and int(values.max()) < 1 << 32))):
        raise Error(f"expected integers that uint32 holds, got {values.dtype}")
    return np.ascontiguousarray(values, np.uint32)
