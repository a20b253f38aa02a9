"""Pooled bags of rows, and the gradients of rows from those of pooled bags; fp32."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..contract.errors import Error
from ..system.forks import cached_property
from .grouping import Grouper, Groups
from .library import Bags, Integers, Table, library, pointer, share_memory, threads_for


@dataclass(frozen=True, eq=False)
class BagLayout:
    """The bags of a batch, feature after feature, and where their sums lie.

    Parameters
    ----------
    features, samples, dim : int
    lengths : int32 or int64 [features * samples], optional
        Lookups of each bag; one unless they are given.
    mean : bool[features], optional
        Features whose sums are divided by the length of the bag.
    columns : int64[features], optional
        Column where the sums of each feature begin; feature after feature unless they are given.
    width : int, optional
        Columns of all sums, those of other layouts included.
    """

    features: int
    samples: int
    dim: int
    lengths: Tensor | None = None
    mean: Tensor | None = None
    columns: Tensor | None = None
    width: int | None = None

    @property
    def row_width(self) -> int:
        return self.features * self.dim if self.width is None else self.width

    @cached_property
    def first_columns(self) -> Tensor:
        """Column where the sums of each feature begin: int64[features]."""
        columns = torch.arange(self.features) * self.dim if self.columns is None else self.columns
        if len(columns) != self.features or (self.features and not (
                int(columns.min()) >= 0 and int(columns.max()) + self.dim <= self.row_width)):
            raise Error(f"expected {self.features} columns, each with {self.dim} of "
                        f"{self.row_width}, got {columns.tolist()}")
        return columns

    def separate(self, stride: int) -> bool:
        """Whether sums in rows `stride` elements apart share no memory: those of a sample lie in
        one row, or all of a feature before those of the next."""
        columns, size = self.first_columns.sort().values, self.dim
        if not self.samples:
            return True
        if self.samples > 1 and len(columns):
            if stride < size:
                return False
            if int(columns[-1] - columns[0]) + size > stride:
                size += (self.samples - 1) * stride
        return bool((columns.diff() >= size).all())

    @property
    def bag_lengths(self) -> Tensor:
        """int64[features * samples]"""
        if self.lengths is None:
            return torch.ones(self.features * self.samples, dtype=torch.int64)
        return self.lengths.long()

    @property
    def divisor(self) -> Tensor | None:
        """Number by which the sum of each bag is divided: float32[bags, 1], or None."""
        if self.mean is None:
            return None
        lengths = self.bag_lengths.view(self.features, self.samples)
        return torch.where(self.mean[:, None], lengths.clamp(min=1), 1).float().view(-1, 1)

    def check(self, pooled: Tensor, lookups: int, weights: Tensor | None) -> None:
        """Check what is used with this layout.

        Raises
        ------
        Error
        """
        if (pooled.dtype != torch.float32 or pooled.shape != (self.samples, self.row_width)
                or (pooled.numel() and pooled.shape[1] > 1 and pooled.stride(1) != 1)):
            raise Error(f"expected float32[{self.samples}, {self.row_width}] with contiguous "
                        f"rows, got {pooled.dtype} {list(pooled.shape)} with strides "
                        f"{list(pooled.stride())}")
        self.check_bags(lookups, weights)

    def check_bags(self, lookups: int, weights: Tensor | None = None) -> None:
        """Check that there are lengths and weights for so many lookups."""
        bags = self.features * self.samples
        Integers.of(self.lengths)
        if self.lengths is None and lookups != bags:
            raise Error(f"expected a lookup for each of {bags} bags, got {lookups}: give lengths")
        if self.lengths is not None and not (
                tuple(self.lengths.shape) == (bags,) and self.lengths.is_contiguous()):
            raise Error(f"expected contiguous lengths of {bags} bags, got "
                        f"{list(self.lengths.shape)} with strides {list(self.lengths.stride())}")
        if self.mean is not None and tuple(self.mean.shape) != (self.features,):
            raise Error(f"expected a flag for each of {self.features} features, got "
                        f"{list(self.mean.shape)}")
        if weights is not None and tuple(weights.shape) != (lookups,):
            raise Error(f"expected a weight for each of {lookups} lookups, got {len(weights)}")

    def native(self, lookups: int, weights: Tensor | None, row_stride: int) -> Bags:
        """For the library; the caller keeps layout and weights alive."""
        return Bags(Integers.of(self.lengths), pointer(weights, torch.float32),
                    pointer(self.mean, torch.bool), pointer(self.first_columns, torch.int64),
                    self.features, self.samples, lookups, row_stride)


def pool_bags(rows: Tensor, slots: Tensor, layout: BagLayout, weights: Tensor | None = None,
              out: Tensor | None = None) -> Tensor:
    """Sum the rows of each bag, in the order of `torch.optim.arithmetic.pool`.

    Parameters
    ----------
    rows : float32, float16 or bfloat16 [R, D]
        Contiguous elements, any stride from row to row.
    slots : int32 or int64 [n], or [features, samples] with any strides where there are no lengths
        Row of each lookup.
    layout : BagLayout
    weights : float32[n], optional
        Of each lookup; products and sums are fused.
    out : float32[samples, row_width], optional

    Returns
    -------
    float32[samples, row_width]
        `out` where it is given. An empty bag gives zeros.

    Raises
    ------
    Error
        A slot is no row; the lengths are not those of the lookups.
    """
    chosen = layout.columns is not None or out is not None  # where the sums lie
    if out is None:
        out = torch.empty(layout.samples, layout.row_width, dtype=torch.float32)
    layout.check(out, slots.numel(), weights)
    if rows.dim() != 2 or rows.shape[1] != layout.dim or slots.dim() not in (1, 2) or (
            slots.dim() == 2 and layout.lengths is None
            and tuple(slots.shape) != (layout.features, layout.samples)):
        raise Error(f"expected rows [R, {layout.dim}] and slots [n] or [{layout.features}, "
                    f"{layout.samples}], got {list(rows.shape)} and {list(slots.shape)}")
    Integers.of(slots)
    if chosen and (not layout.separate(out.stride(0)) or share_memory(out, rows)):
        raise Error("expected memory for sums that share none with each other or with the rows")
    native = library()
    if slots.dim() == 1:
        slots = slots.contiguous()
    strides = slots.stride() if slots.dim() == 2 else (layout.samples, 1)
    if layout.lengths is not None:
        slots = slots.reshape(-1)
    state = native.pool_forward(
        ctypes.byref(Table.of(rows)),
        ctypes.byref(layout.native(slots.numel(), weights, out.stride(0))), Integers.of(slots),
        *strides, _on_host(out), threads_for(slots.numel() * layout.dim))
    if state < 0:
        raise _wrong_lengths(layout, slots.numel())
    if state:
        raise _no_row(slots, state - 1, len(rows))
    return out


def sum_gradients(gradients: Tensor, groups: Groups, layout: BagLayout,
                  weights: Tensor | None = None, out: Tensor | None = None) -> tuple[Tensor, bool]:
    """Sum the gradients of each row, in the order of `torch.optim.arithmetic.sum_duplicates`.

    Parameters
    ----------
    gradients : float32[samples, row_width]
        Of the loss with respect to what `pool_bags` returned.
    groups : Groups
        Of the lookups.
    layout : BagLayout
    weights : float32[n], optional
        As in `pool_bags`.
    out : float32[m, D], optional
        Memory for the sums, m >= u.

    Returns
    -------
    sums : float32[u, D]
        Of each distinct slot.
    finite : bool
        Whether each sum is a finite number.

    Raises
    ------
    Error
        The lengths are not those of the lookups.
    """
    count, lookups = groups.distinct.shape[0], groups.numbers.shape[0]
    layout.check(gradients, lookups, weights)
    sums = torch.empty(count, layout.dim, dtype=torch.float32) if out is None else out[:count]
    if out is not None and (sums.shape != (count, layout.dim) or share_memory(sums, gradients)):
        raise Error(f"expected memory for float32[{count}, {layout.dim}] that the gradients are "
                    f"not in, got {list(out.shape)}")
    native = library()
    state = native.pool_backward(
        _on_host(gradients), ctypes.byref(layout.native(lookups, weights, gradients.stride(0))),
        pointer(groups.numbers, torch.int32), count, layout.dim, pointer(sums, torch.float32),
        threads_for(lookups * layout.dim))
    _check_state(state, layout, lookups, count)
    return sums, state == 0


def sum_blocks(gradients: Sequence[Tensor], groups: Groups, layout: BagLayout) -> Tensor:
    """As `sum_gradients`, from the gradients of each feature in a tensor of its own.

    Parameters
    ----------
    gradients : sequence of float32[samples, D]
        Feature after feature.
    groups : Groups
    layout : BagLayout
        Its columns are not used.

    Returns
    -------
    float32[u, D]
    """
    native, count, lookups = library(), groups.distinct.shape[0], groups.numbers.shape[0]
    gradients = [each.contiguous() for each in gradients]
    layout.check_bags(lookups)
    if len(gradients) != layout.features:
        raise Error(f"expected gradients of {layout.features} features, got {len(gradients)}")
    for each in gradients:
        if each.shape != (layout.samples, layout.dim) or each.dtype != torch.float32:
            raise Error(f"expected gradients float32[{layout.samples}, {layout.dim}], got "
                        f"{list(each.shape)}")
    if not gradients:
        return torch.zeros(count, layout.dim)
    first = _on_host(gradients[0])
    # A block is found where its distance from the first is the column of its feature.
    columns = torch.tensor([(_on_host(each) - first) // 4 for each in gradients])
    bags = layout.native(lookups, None, layout.dim)
    bags.columns = columns.data_ptr()
    sums = torch.empty(count, layout.dim)
    state = native.pool_backward(
        first, ctypes.byref(bags), pointer(groups.numbers, torch.int32), count, layout.dim,
        sums.data_ptr(), threads_for(lookups * layout.dim))
    _check_state(state, layout, lookups, count)
    return sums


def merge_sums(grouper: Grouper, rows: Tensor, sums: Tensor, more: Tensor,
               more_sums: Tensor) -> tuple[Tensor, Tensor, bool]:
    """Add the sums of a batch to those staged before it: one addition a row, in that order.

    Parameters
    ----------
    grouper : Grouper
        Of the rows.
    rows, more : int32 or int64 [u], [v]
        Rows of each, each once there.
    sums, more_sums : float32[u, D], float32[v, D]

    Returns
    -------
    rows : int32 or int64 [w]
        Those of both: `rows`, then what `more` adds.
    sums : float32[w, D]
    finite : bool
    """
    groups = grouper.group(torch.cat((rows, more)))
    layout = BagLayout(1, len(groups.numbers), sums.shape[1])
    return groups.distinct, *sum_gradients(torch.cat((sums, more_sums)), groups, layout)


def _check_state(state: int, layout: BagLayout, lookups: int, count: int) -> None:
    """Raise Error for what the compiled backward refused."""
    if state < 0:
        raise _wrong_lengths(layout, lookups)
    if state == 2:
        raise _wrong_numbers(lookups, count)


def _wrong_numbers(lookups: int, count: int) -> Error:
    return Error(f"the numbers of {lookups} lookups are not those of {count} distinct slots in "
                 f"order of first appearance")


def _on_host(tensor: Tensor) -> int:
    """Address of the memory of a tensor of the host."""
    if tensor.device.type != "cpu":
        raise Error(f"expected a tensor on the host, got one on {tensor.device}")
    return tensor.data_ptr()


def _wrong_lengths(layout: BagLayout, lookups: int) -> Error:
    lengths = layout.bag_lengths
    return Error(f"the lengths of {len(lengths)} bags must not be negative, and add up to the "
                 f"{lookups} lookups; they add up to {int(lengths.sum())}")


def _no_row(slots: Tensor, position: int, rows: int) -> Error:
    return Error(f"lookup {position} has slot {int(slots.reshape(-1)[position])}: expected 0 to "
                 f"{rows - 1}")
