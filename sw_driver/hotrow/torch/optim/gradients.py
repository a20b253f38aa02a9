"""Gradients of embedding rows, from backward to the optimizer's step."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor

from ...kernels.grouping import Grouper, group_sorted
from ...kernels.pooling import BagLayout, merge_sums, sum_gradients
from ...kernels.updating import Rule, first_not_finite
from ..features.grouping import Segment
from ..memory.rows import Rows
from ..memory.slot_memory import to_device
from .arithmetic import sum_duplicates

# Place of each lookup of a backward, and its flat row, int64[n], when it is called.
Places: TypeAlias = tuple[Tensor, Callable[[], Tensor]]
_ROW_BYTES = 8  # of the number of a row
NO_ROWS = torch.empty(0, dtype=torch.int64, device="cpu")


class RowPooler(Protocol):
    """A card that pools the rows of a segment where they lie."""

    def pool(self, segment: Segment, weights: Tensor | None) -> Tensor:
        """Sums of the bags: float32[bags, D]."""

    def read(self, segment: Segment) -> Tensor:
        """Rows of the lookups: float32[n, D]."""


@dataclass(frozen=True, eq=False)
class LocatedRows:
    """The rows of a segment's lookups."""

    rows: Rows
    at: Tensor  # int32[n] or int64[n]: index in `rows` of each lookup's row
    lock: AbstractContextManager[Any] = field(default_factory=nullcontext)  # keeps `rows` in place
    sums: Tensor | None = None  # float32[bags, D]: of bags that the card pooled, else zeros
    cold: Tensor | None = None  # bool[n]: lookups whose rows the card trains
    grouper: Grouper | None = None  # of `at`; None if the store does not train `rows` in place
    batch: object = None  # a batch in flight, in whose places the store trains the rows
    bypassed: bool = False  # whether rows of the group in the batch have no slot
    pooler: RowPooler | None = None  # pools the bags, of which `rows` may lack later steps


class Gradients(Tensor):
    """A tensor whose `grad` may be made once somebody asks for it.

    Attributes
    ----------
    make : callable, optional
        Makes `grad`.
    asked : bool
        Whether a caller had or set `grad` since `keep`.
    """

    make: Callable[[], None] | None = None
    asked = False
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @property
    def grad(self) -> Tensor | None:
        found, self.asked = self.found(), True
        return found

    @grad.setter
    def grad(self, gradient: Tensor | None) -> None:
        self.keep(gradient)
        self.asked = True

    def found(self) -> Tensor | None:
        """The `grad`, for those who leave it as it is."""
        make, self.make = self.make, None
        if make is not None:
            make()
        return super().grad

    def keep(self, gradient: Tensor | None) -> None:
        """Set the `grad`, whose shape becomes that of the tensor."""
        self.make, self.asked = None, False
        setter: Callable[[Tensor, Tensor | None], None] = vars(torch._C.TensorBase)["grad"].__set__
        setter(self, None)
        if gradient is not None:
            # PyTorch wants both to have one shape; an expanded scalar takes no memory.
            self.data = self.new_zeros(()).expand(gradient.shape)
            setter(self, gradient)


class Staged(ABC):
    """A tensor whose `grad` are staged gradients.

    Attributes
    ----------
    tensor : Gradients
        Its `grad` is float32[u, D], or None while nothing is staged: clipping, a gradient scaler
        and `zero_grad` work on it. The tensor has no values, and nobody can train, broadcast or
        average it as a parameter.
    """

    def __init__(self, dim: int, device: str | torch.device = "cpu") -> None:
        self.tensor = torch.zeros(0, dim, dtype=torch.float32, device=device).as_subclass(Gradients)
        self.tensor.requires_grad_()

    @property
    def values(self) -> torch.Tensor | None:
        return self.tensor.found()

    @property
    def empty(self) -> bool:
        """Whether nothing is staged."""
        return self.tensor.make is None and self.values is None

    @property
    def nbytes(self) -> int:
        return 0 if self.values is None else self.values.nbytes + _ROW_BYTES * len(self.values)

    def first_not_finite(self) -> int:
        """Number of the first gradient with an element that is not finite, or -1."""
        # A caller may have changed them, through .data, too.
        return -1 if self.values is None else first_not_finite(self.values)

    @abstractmethod
    def row_of(self, number: int) -> Tensor:
        """Flat row of the gradient of that number: int64[1]."""

    def clear(self) -> None:
        self.tensor.keep(None)


class Deferred(Protocol):
    """Finite gradients of one batch that nobody has summed.

    Attributes
    ----------
    located : LocatedRows
    """

    @property
    def located(self) -> LocatedRows: ...

    @property
    def nbytes(self) -> int:
        """Bytes that it keeps."""

    def sums(self) -> tuple[Tensor, Tensor, bool]:
        """Places integers [u], their sums float32[u, D], and whether each is finite."""

    def step(self, rule: Rule) -> bool:
        """Update the rows; False if that needs the sums, and nothing has changed."""


class StagedGradients(Staged):
    """Staged gradients of the rows of one group of tables.

    One backward sums the gradients of a row in lookup order, as `pool` sums the rows of a bag;
    several backwards add up in their order.

    Attributes
    ----------
    places : int32[u], int64[u] or None
        Place of each row in the store; None if several batches may have copies of a row, or if
        the rows are not in the store's own memory.
    batches : list
        Batches of the rows, with `places`.
    """

    places: torch.Tensor | None
    batches: list[object]
    _rows: torch.Tensor | None
    _lookups: list[Places]
    _deferred: Deferred | None
    _grouper: Grouper | None
    _bypassed: bool
    _finite: bool

    def __init__(self, dim: int, device: str | torch.device = "cpu") -> None:
        super().__init__(dim, device)
        self.clear()

    @property
    def rows(self) -> Tensor:
        """Flat rows int64[u] in host memory; from the compiled passes in order of first
        appearance."""
        if self.values is not None and self._rows is None:
            assert self.places is not None and self._grouper is not None, (
                "rows are unknown only while their places are known")
            self._rows = _rows_at(self.places, self._lookups, self._grouper.slots)
        assert self._rows is not None
        return self._rows

    @property
    def foreign(self) -> bool:
        """Whether a caller set a gradient, and no backward has."""
        return self.tensor.asked and self.values is not None and (
            self._rows is not None and not len(self._rows))

    @property
    def deferred(self) -> Deferred | None:
        """Gradients whose sums nobody has asked for."""
        return None if self.tensor.make is None else self._deferred

    @property
    def nbytes(self) -> int:
        return super().nbytes if self.deferred is None else self.deferred.nbytes

    def first_not_finite(self) -> int:
        return -1 if self._finite and not self.tensor.asked else super().first_not_finite()

    def defer(self, located: LocatedRows, flat: Callable[[], Tensor], deferred: Deferred) -> None:
        """Stage the gradients of one backward where nothing is staged, and sum them if somebody
        looks; arguments as in `add_groups`."""
        def make() -> None:
            with located.lock, torch.no_grad():
                self.add_groups(located, flat, *deferred.sums())

        self.clear()
        self._deferred, self._finite, self.tensor.make = deferred, True, make

    def add(self, rows: Tensor, bags: Tensor, gradients: Tensor,
            weights: Tensor | None = None) -> None:
        """Stage the gradients of one backward, by flat row; arguments as in `sum_duplicates`."""
        if not len(rows):
            return
        rows, sums = sum_duplicates(rows, bags, gradients, weights)
        if self.values is not None:
            before, rows_before = self.values, self.rows
            union = torch.unique(torch.cat((rows_before, rows)))
            total = before.new_zeros(len(union), before.shape[1])
            total[to_device(torch.searchsorted(union, rows_before), sums.device)] = before
            total[to_device(torch.searchsorted(union, rows), sums.device)] += sums
            rows, sums = union, total
        self._set_rows(rows, sums)

    def add_groups(self, located: LocatedRows, flat: Callable[[], Tensor], distinct: Tensor,
                   sums: Tensor, finite: bool = False) -> None:
        """Stage the gradients of one backward.

        Parameters
        ----------
        located : LocatedRows
        flat : callable
            Returns the flat row int64[n] of each lookup.
        distinct : int32[u] or int64[u]
            Indices in the located rows, each once.
        sums : float32[u, D]
            Gradient of each.
        finite : bool
            Whether each is known to be a finite number.
        """
        if not distinct.shape[0]:
            return
        lookups = located.at, flat
        if self.values is None:
            self.clear()
            if located.grouper is None:
                self._set_rows(_rows_at(distinct, [lookups], len(located.rows)), sums)
                return
            self.places, self._grouper, self._bypassed = (
                distinct, located.grouper, located.bypassed)
        elif self._one_place(located):
            assert self.places is not None and self._grouper and located.grouper  # both have places
            self._grouper = max(self._grouper, located.grouper, key=lambda each: each.slots)
            self.places, sums, finite = merge_sums(
                self._grouper, self.places, self.values, distinct, sums)
        else:
            more = _rows_at(distinct, [lookups], len(located.rows))
            merged = group_sorted(torch.cat((self.rows, more)))
            layout = BagLayout(1, len(merged.numbers), sums.shape[1])
            sums, _ = sum_gradients(torch.cat((self.values, sums)), merged, layout)
            self._set_rows(merged.distinct, sums)
            return
        self._lookups.append(lookups)
        self._rows, self._finite, self._deferred = None, finite, None
        if located.batch is not None and located.batch not in self.batches:
            self.batches.append(located.batch)
        self.tensor.keep(sums)

    def row_of(self, number: int) -> Tensor:
        """Flat row of the gradient of that number: int64[1]."""
        return self.rows[number:number + 1]

    def clear(self) -> None:
        super().clear()
        self._rows, self._lookups, self.batches = NO_ROWS, [], []
        self.places = self._grouper = self._deferred = None
        self._finite = False

    def _one_place(self, located: LocatedRows) -> bool:
        """Whether a row of this batch and of the staged ones has one place."""
        if self.places is None or located.grouper is None:
            return False
        return self.batches == [located.batch] or not (self._bypassed or located.bypassed)

    def _set_rows(self, rows: Tensor, sums: Tensor) -> None:
        self.clear()
        self._rows = rows
        self.tensor.keep(sums)


def _rows_at(places: Tensor, lookups: Iterable[Places], count: int) -> Tensor:
    """Flat rows of some places among `count` that lookups have: int64[u]."""
    row_at = torch.empty(count, dtype=torch.int64)
    for at, flat in lookups:
        row_at[at.long()] = flat()
    return row_at[places.long()]
