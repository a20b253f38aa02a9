"""Gradients of bags, for a step in which the card sums them by row."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ...kernels.grouping import Groups
from ...kernels.pooling import BagLayout, sum_gradients
from .arithmetic import sum_duplicates
from .gradients import NO_ROWS, LocatedRows, Staged, StagedGradients

_MOST = 0xFFFF  # gradients of a row that a card sums in one step
_LARGEST = torch.finfo(torch.float32).max


class BagGradients(NamedTuple):
    """Which rows the bags of a backward have."""

    located: LocatedRows
    flat: Callable[[], Tensor]  # flat row int64[n] of each lookup
    groups: Groups  # of the lookups, by row
    lengths: Tensor | None  # integers [bags]; a lookup each without them


class CardBags(Staged):
    """Staged gradients of the bags of one backward, whose rows are all on a card.

    A card sums the gradients of a row as `StagedGradients` do, from up to 65535 bags of one
    backward. All others are summed by row on the host: those of a second backward, of
    weighted lookups, those whose sum may not be finite, and all while `by_row`.

    Parameters
    ----------
    dim : int
    rows : StagedGradients
        Gets the gradients that are summed by row.

    Attributes
    ----------
    bags : BagGradients or None
    by_row : bool
        Whether a caller looks at the gradients of rows.
    """

    bags: BagGradients | None = None

    def __init__(self, dim: int, rows: StagedGradients) -> None:
        super().__init__(dim)
        self._rows, self.by_row = rows, False

    def add(self, located: LocatedRows, flat: Callable[[], Tensor], lengths: Tensor | None,
            gradients: Tensor, weights: Tensor | None) -> None:
        """Stage the gradients float32[bags, D] of one backward.

        Parameters
        ----------
        located : LocatedRows
        flat : callable
            Returns the flat row int64[n] of each lookup.
        lengths : integers [bags], optional
        gradients : float32[bags, D]
        weights : float32[n], optional
        """
        if not len(located.at):
            return
        assert located.grouper is not None, "rows on a card have numbers"
        self.sum_rows()
        bags = BagGradients(located, flat, located.grouper.group(located.at), lengths)
        most = int(bags.groups.counts.max())
        # A NaN is not below any limit.
        finite = float(torch.linalg.vector_norm(gradients, math.inf)) * most < _LARGEST / 2
        if (weights is None and self._rows.values is None and most <= _MOST and finite
                and not self.by_row):
            self.bags = bags
            self.tensor.keep(gradients)
        else:
            self._add_rows(bags, gradients, weights)

    def sum_rows(self) -> None:
        """Sum what is staged by row."""
        if self.values is not None and self.bags is not None:
            self._add_rows(self.bags, self.values, None)
        self.clear()

    def row_of(self, number: int) -> Tensor:
        """Flat row of the first lookup of the bag of that number: int64[1]."""
        assert self.bags is not None, "nothing is staged"
        lengths = self.bags.lengths
        first = number if lengths is None else int(lengths[:number].sum())
        return self.bags.flat()[first:first + 1]

    def clear(self) -> None:
        super().clear()
        self.bags = None

    def _add_rows(self, bags: BagGradients, gradients: Tensor, weights: Tensor | None) -> None:
        layout = BagLayout(1, len(gradients), gradients.shape[1], bags.lengths)
        sums, _ = sum_gradients(gradients.contiguous(), bags.groups, layout,
                                None if weights is None else weights.detach().contiguous())
        self._rows.add_groups(bags.located, bags.flat, bags.groups.distinct, sums)


class StagedBags(Staged):
    """Staged gradients of bags whose rows the card trains, and which rows each bag has.

    A further backward makes a bag of each row's sum so far and of its own sum, so that sums add up
    in the order of the backwards, as in `StagedGradients`.

    Attributes
    ----------
    rows : int64[n]
        Flat row of each lookup.
    bags : int64[n]
        Row of `values` of each lookup.
    """

    rows: Tensor
    bags: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        self.clear()

    def add(self, rows: Tensor, bags: Tensor, gradients: Tensor) -> None:
        """Stage the gradients float32[bags, D] of one backward for lookups int64[n]."""
        if not len(rows):
            return
        if self.values is None:
            used, self.bags = torch.unique_consecutive(bags, return_inverse=True)
            self.rows, gradients = rows, gradients[used]
        else:
            before = sum_duplicates(self.rows, self.bags, self.values)
            rows, gradients = sum_duplicates(rows, bags, gradients)
            self.rows, gradients = torch.cat((before[0], rows)), torch.cat((before[1], gradients))
            self.bags = torch.arange(len(self.rows))
        self.tensor.keep(gradients)

    def clear(self) -> None:
        super().clear()
        self.rows = self.bags = NO_ROWS

    def row_of(self, number: int) -> Tensor:
        """Flat row of the first lookup of the bag of that number: int64[1]."""
        return self.rows[self.bags == number][:1]
