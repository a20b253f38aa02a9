"""Rows from one array to another, and slots of a device as places in a storage."""

import numpy as np
import torch

from ..contract.errors import Error
from .library import Integers, address, library, pointer, threads_for


def copy_rows(target, source, to=None, start=None):
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
        An index is no row; nothing was copied.
    """
    written, read = (array.shape[0] if index is None else index.shape[0]
                     for array, index in ((target, to), (source, start)))
    if written != read or target.shape[1:] != source.shape[1:] or target.dtype != source.dtype:
        raise Error(f"cannot copy {source.dtype} {list(source.shape)} to {target.dtype} "
                    f"{list(target.shape)}: the rows differ, or there are {read} of them for "
                    f"{written} places")
    native = library()
    size, width = target.element_size(), target.shape[1] if target.dim() == 2 else 1
    to, start = (None if each is None else each.contiguous() for each in (to, start))
    wrong = _copy_reference(target, source, to, start) if native is None else native.copy_rows(
        target.data_ptr(), target.shape[0], target.stride(0) * size, Integers.of(to),
        source.data_ptr(), source.shape[0], source.stride(0) * size, Integers.of(start),
        read, size * width, threads_for(read * width))
    if wrong:
        raise Error(f"row {wrong - 1} of {read} to be copied is outside of the "
                    f"{len(target)} rows of the target or the {len(source)} of the source")


def _copy_reference(target, source, to, start):
    for index, array in ((to, target), (start, source)):
        wrong = None if index is None else (index < 0) | (index >= len(array))
        if wrong is not None and bool(wrong.any()):
            return 1 + int(wrong.nonzero()[0])
    target[slice(None) if to is None else to.long()] = (
        source if start is None else source[start.long()])
    return 0


def assign_slots(held, dirty, places, flat):
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
    native, count = library(), places.shape[0]
    if native is None or places.dtype != torch.int32:
        copy_rows(held, flat.to(held.dtype), to=places)
        copy_rows(dirty, torch.zeros(count, dtype=torch.bool), to=places)
        return
    wrong = native.assign_slots(
        pointer(places, torch.int32), pointer(flat, torch.int64), count, dirty.shape[0],
        held.data_ptr(), held.dtype == torch.int64, dirty.data_ptr())
    if wrong:
        raise Error(f"row {wrong - 1} has place {int(places[wrong - 1])}: expected a slot, 0 to "
                    f"{len(dirty) - 1}")


def mark_dirty(dirty, places):
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
    native, slots, count = library(), dirty.shape[0], places.shape[0]
    if native is None:
        if bool((places < 0).any()):
            raise Error("a place of a trained row is negative")
        in_slot = places < slots
        dirty[places[in_slot].long()] = True
        return places[~in_slot].long()
    others = torch.empty(count, dtype=torch.int64)
    places = places.contiguous()
    found = native.mark_dirty(Integers.of(places), count, slots, dirty.data_ptr(),
                              others.data_ptr())
    if found < 0:
        raise Error("a place of a trained row is negative")
    return others[:found]


def place_slots(slots, area, *, directory, per_choice, part, first=0, flag=0):
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
    slots = np.ascontiguousarray(slots, np.uint32)
    wrong = native.place_slots(
        address(slots), len(slots), directory, flag, per_choice.bit_length() - 1, part, first,
        pointer(area, torch.int64), area.shape[0], places.data_ptr(),
    ) if native else _place_reference(slots, area, directory, per_choice, part, first, flag, places)
    if wrong:
        raise Error(f"lookup {wrong - 1} has slot {int(slots[wrong - 1]):#x}: expected a slot of "
                    f"the partition, or one of {len(area)} rows without a slot")
    return places


def _place_reference(slots, area, directory, per_choice, part, first, flag, places):
    slots = slots.astype(np.int64)
    without = (slots & flag != 0) | (slots >= directory)
    number = np.where(slots & flag != 0, slots & ~flag, slots - directory)
    choice, within = np.divmod(slots, per_choice)
    within -= first
    wrong = np.where(without, number >= len(area), (within < 0) | (within >= part))
    if wrong.any():
        return 1 + int(np.argmax(wrong))
    found = choice * part + within
    found[without] = area.numpy()[number[without]]
    places.copy_(torch.from_numpy(found))
    return 0
