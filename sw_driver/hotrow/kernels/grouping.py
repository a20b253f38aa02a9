"""The lookups of a batch grouped by slot, without a sort."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ..contract.errors import Error
from ..system.forks import ForkLock
from ..system.huge_pages import advise_huge_pages
from .library import Integers, address, library, pointer


@dataclass(frozen=True, eq=False)
class Groups:
    """The distinct slots of a batch, in order of first appearance.

    Attributes
    ----------
    numbers : int32[n]
        Number of each lookup among the distinct slots.
    distinct : int32[u] or int64[u]
        As the slots.
    counts : int32[u]
        Lookups of each.
    """

    numbers: torch.Tensor
    distinct: torch.Tensor
    counts: torch.Tensor

    def bags(self, lengths: torch.Tensor | None, count: int) -> NDArray[np.uint32]:
        """The bag of each lookup, slot after slot, of one slot in lookup order: uint32[n].

        Parameters
        ----------
        lengths : int32 or int64 [count], optional
            Lookups of each bag, contiguous; one without it.
        count : int
            Bags.

        Raises
        ------
        Error
            The lengths are not those of the lookups.
        """
        lookups, distinct = self.numbers.shape[0], self.distinct.shape[0]
        places, following = np.empty(lookups, np.uint32), np.empty(distinct, np.int32)
        sound = lengths is None or (lengths.shape == (count,) and lengths.is_contiguous())
        if not sound or library().list_bags(
                Integers.of(lengths), count, pointer(self.numbers, torch.int32), lookups,
                pointer(self.counts, torch.int32), distinct, address(following), address(places)):
            raise Error(f"the lengths of {count} bags must be contiguous, not negative, and add "
                        f"up to the {lookups} lookups")
        return places


class Grouper:
    """Groups lookups by slot in one pass.

    Parameters
    ----------
    slots : int
        Slots are 0 .. slots - 1. The grouper keeps 4 bytes for each that occurs.
    """

    def __init__(self, slots: int):
        self.slots, self._lock = slots, ForkLock()
        self._table = torch.empty(slots, dtype=torch.int32)
        advise_huge_pages(self._table.data_ptr(), self._table.nbytes)

    def group(self, slots: torch.Tensor) -> Groups:
        """Group a batch.

        Parameters
        ----------
        slots : int32 or int64 [n], or [features, samples] with any strides
            Lookups count feature after feature.

        Returns
        -------
        Groups

        Raises
        ------
        Error
            A slot is out of range.
        """
        native, given = library(), Integers.of(slots)
        if slots.dim() not in (1, 2) or slots.numel() > torch.iinfo(torch.int32).max:
            raise Error(f"expected slots [n] or [features, samples], fewer than 2**31, got "
                        f"{list(slots.shape)}")
        rows, columns = (1, *slots.shape)[-2:]
        row_stride, column_stride = (0, *slots.stride())[-2:]
        numbers, counts = (torch.empty(rows * columns, dtype=torch.int32) for _ in range(2))
        distinct = torch.empty(rows * columns, dtype=slots.dtype)
        with self._lock:
            count = native.group(given, rows, columns, row_stride, column_stride,
                                 self.slots, self._table.data_ptr(), numbers.data_ptr(),
                                 distinct.data_ptr(), counts.data_ptr())
        if count < 0:
            raise _out_of_range(slots, -1 - count, self.slots)
        return Groups(numbers, distinct[:count], counts[:count])


def _out_of_range(slots: torch.Tensor, position: int, limit: int) -> Error:
    return Error(f"lookup {position} has slot {int(slots.reshape(-1)[position])}: expected 0 to "
                 f"{limit - 1}")


def group_sorted(flat: torch.Tensor) -> Groups:
    """Group numbers int64[n] of any size, with a sort: Groups."""
    distinct, inverse, counts = torch.unique(flat, return_inverse=True, return_counts=True)
    first = torch.full_like(distinct, len(flat), dtype=torch.int64).scatter_reduce(
        0, inverse, torch.arange(len(flat)), "amin")
    order = torch.argsort(first)
    number = torch.empty_like(order)
    number[order] = torch.arange(len(order))
    return Groups(number[inverse].int(), distinct[order], counts[order].int())
