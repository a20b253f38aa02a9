"""Batches in tables that lie whole in memory: one call from ids to bags, one from gradients to
sums of rows."""

import ctypes
import struct

import torch
from torch import Tensor

from ..contract.errors import Error
from .grouping import Grouper
from .library import Table, library, pointer, threads_for
from .updating import Rule, compiled_rule

# Sums of so many numbers grow less than twice by their roundings.
_ADDITIONS, _LARGEST_SUM = 1 << 23, torch.finfo(torch.float32).max / 2


class _Features(ctypes.Structure):
    _fields_ = [("table", Table), *((name, ctypes.c_void_p) for name in (
        "places", "first", "rows", "columns", "mean")), ("count", ctypes.c_int64),
        ("seen", ctypes.c_void_p)]


class TableFeatures:
    """Features whose tables share one array of rows: what batches of any size have in common.

    Parameters
    ----------
    rows : float32, float16 or bfloat16 [R, D]
    grouper : Grouper
        Of `rows`. One thread at a time may call `sum_rows`.
    places : int64[features]
        Place of each feature among those of a batch.
    first, counts : int64[features]
        Row 0 of the table of each feature in `rows`, and the table's rows.
    columns : int64[features]
        Column of the results where the sums of each feature begin.
    width : int
        Columns of the results, those of other features included.
    mean : bool[features], optional
        Features whose sums are divided by the length of the bag.

    Raises
    ------
    Error
        The parts do not fit each other.
    """

    def __init__(self, rows: Tensor, grouper: Grouper, places: Tensor, first: Tensor,
                 counts: Tensor, columns: Tensor, width: int, mean: Tensor | None = None) -> None:
        self.dim, self.width, self.count = rows.shape[1], width, len(places)
        parts = places, first, counts, columns
        if (any(each.shape != (self.count,) for each in (*parts, *([] if mean is None else [mean])))
                or grouper.slots != len(rows) or bool((
                    (places < 0) | (first < 0) | (counts < 0) | (first + counts > len(rows))
                    | (columns < 0) | (columns + self.dim > width)).any())):
            raise Error(f"expected features of tables within {len(rows)} rows, with {self.dim} of "
                        f"{width} columns each, got places {places.tolist()[:8]}, first rows "
                        f"{first.tolist()[:8]}, rows {counts.tolist()[:8]} and columns "
                        f"{columns.tolist()[:8]}")
        self.rows, self.grouper, self._kept = rows, grouper, (*parts, mean)
        self.dtype = torch.int32 if len(rows) <= 1 << 31 else torch.int64
        self._native = _Features(
            Table.of(rows), *(pointer(each, torch.int64) for each in parts),
            pointer(mean, torch.bool), self.count, grouper._table.data_ptr())
        self._address = ctypes.addressof(self._native)

    def look_up(self, ids: Tensor, lengths: Tensor | None, weights: Tensor | None,
                out: Tensor) -> Tensor | None:
        """Check the ids of a batch, and sum the rows of each bag as `pool_bags` does.

        Parameters
        ----------
        ids : int32 or int64 [samples, places], or [n] with lengths, with any strides
        lengths : int64[features * samples], optional
            Ids of each bag; only these features are in the batch, feature after feature.
        weights : float32[n], optional
            Of each lookup, feature after feature; products and sums are fused.
        out : float32[samples, width]

        Returns
        -------
        int32[n] or int64[n], or None
            Row of each lookup in `rows`, feature after feature. None refuses the batch: an id is no
            row of its table, or the parts do not fit each other; then `out` is undefined.
        """
        samples, wide = out.shape[0], ids.dtype == torch.int64
        if lengths is None:
            if ids.dim() != 2 or ids.shape[0] != samples:
                return None
            lookups, (stride, between) = samples * self.count, ids.stride()
            size = ids.numel() and 1 + (samples - 1) * stride + (ids.shape[1] - 1) * between
        else:
            if ids.dim() != 1 or lengths.shape != (self.count * samples,):
                return None
            lookups, (stride,), between = ids.shape[0], ids.stride(), 0
            size = lookups and 1 + (lookups - 1) * stride
        if (not (wide or ids.dtype == torch.int32) or ids.device.type != "cpu"
                or out.dtype != torch.float32 or out.shape != (samples, self.width)
                or not out.is_contiguous()
                or (weights is not None and weights.shape != (lookups,))):
            return None
        flat = torch.empty(lookups, dtype=self.dtype)
        refused = library().look_up(
            self._address, ids.data_ptr(), wide, size, between, stride, samples,
            pointer(lengths, torch.int64), pointer(weights, torch.float32), flat.data_ptr(),
            self.dtype == torch.int64, lookups, out.data_ptr(), self.width,
            threads_for(lookups * self.dim))
        return None if refused else flat

    def pool_rows(self, at: Tensor, lengths: Tensor | None, weights: Tensor | None,
                  out: Tensor) -> None:
        """Sum the rows of each bag as `pool_bags` does, where the row of each lookup is known.

        Parameters
        ----------
        at : int32[n] or int64[n]
            Row of each lookup in `rows`, feature after feature.
        lengths, weights, out
            As for `look_up`.

        Raises
        ------
        Error
            A lookup is of no row, or the parts do not fit each other.
        """
        lookups, samples = at.shape[0], out.shape[0]
        if (at.dtype not in (torch.int32, torch.int64) or out.dtype != torch.float32
                or out.shape != (samples, self.width) or not out.is_contiguous()
                or (lengths is not None and lengths.shape != (self.count * samples,))
                or (lengths is None and lookups != self.count * samples)
                or (weights is not None and weights.shape != (lookups,))
                or library().pool_rows(
                    self._address, pointer(at, at.dtype), at.dtype == torch.int64, lookups,
                    samples, pointer(lengths, torch.int64), pointer(weights, torch.float32),
                    out.data_ptr(), self.width, threads_for(lookups * self.dim))):
            raise Error(f"expected the rows, 0 to {len(self.rows) - 1}, of the lookups of "
                        f"{samples} samples of {self.count} features, and a weight for each, got "
                        f"{at.dtype} {list(at.shape)}")

    def sum_rows(self, flat: Tensor, lengths: Tensor | None, weights: Tensor | None,
                 gradients: Tensor, sums: Tensor) -> tuple[Tensor, Tensor, bool]:
        """Sum the gradients of each row as `sum_gradients` does.

        Parameters
        ----------
        flat : int32[n] or int64[n]
            As `look_up` returned it.
        lengths, weights
            As for `look_up`.
        gradients : float32[samples, width]
            Of the loss with respect to `look_up`'s `out`; contiguous rows.
        sums : float32[m, D], m >= n
            Memory for the sums.

        Returns
        -------
        distinct : int32[u] or int64[u]
            Rows, in order of first appearance.
        sums : float32[u, D]
        finite : bool
            Whether each sum is a finite number.

        Raises
        ------
        Error
        """
        lookups, samples = flat.shape[0], gradients.shape[0]
        if (flat.dtype not in (torch.int32, torch.int64)
                or sums.shape[0] < lookups or sums.shape[1] != self.dim
                or (weights is not None and weights.shape != (lookups,))):
            raise Error(f"expected memory for the sums and weights of {lookups} lookups, got "
                        f"{list(sums.shape)}")
        self._check(gradients, lengths)
        distinct = torch.empty_like(flat)
        found = library().sum_rows(
            self._address, pointer(flat, flat.dtype), flat.dtype == torch.int64, lookups, samples,
            pointer(lengths, torch.int64), pointer(weights, torch.float32), gradients.data_ptr(),
            gradients.stride(0), distinct.data_ptr(), pointer(sums, torch.float32),
            threads_for(lookups * self.dim))
        if found < 0:
            raise Error(f"expected the {lookups} lookups of {samples} samples that look_up "
                        f"returned, with its lengths")
        infinite, found = divmod(found, 1 << 32)
        return distinct[:found], sums[:found], not infinite

    @property
    def steps(self) -> bool:
        """Whether `step` takes these features."""
        return self._kept[-1] is None

    def copy(self, gradients: Tensor, out: Tensor, additions: int) -> bool:
        """Copy gradients float32[samples, width] to memory for as many.

        Returns
        -------
        bool
            Whether every sum of at most so many of their elements is finite, in any order.
        """
        self._check(gradients, None)
        if out.shape != gradients.shape:
            raise Error(f"expected memory for {list(gradients.shape)}, got {list(out.shape)}")
        rows, width = gradients.shape
        bits = library().copy_bounded(gradients.data_ptr(), rows, gradients.stride(0), width,
                                      pointer(out, torch.float32))
        largest, = struct.unpack("f", struct.pack("I", bits))
        return bool(additions < _ADDITIONS and additions * largest < _LARGEST_SUM)

    def step(self, flat: Tensor, lengths: Tensor | None, gradients: Tensor, rule: Rule,
             state: Tensor | None, memory: Tensor) -> None:
        """Update each row of a batch by the sum of its gradients, in one pass; no feature is a
        mean, and nothing has weights.

        Parameters
        ----------
        flat, lengths, gradients
            As for `sum_rows`.
        rule : Rule
            With a compiled pass, see `compiled_rule`.
        state : float32[R] or float32[R, columns], optional
            As for `update_rows`.
        memory : float32[n * 6 + 32]
            Which the pass uses.

        Raises
        ------
        Error
            The parts do not fit each other; no row has changed.
        """
        lookups, native = flat.shape[0], compiled_rule(rule)
        self._check(gradients, lengths)
        if native is None or not self.steps or memory.numel() < 6 * lookups + 32 or (
                flat.dtype not in (torch.int32, torch.int64)):
            raise Error(f"expected sums, a rule with a compiled pass and memory for {lookups} "
                        f"lookups, got {rule.name} and {memory.numel()} numbers")
        refused = library().step_whole(
            self._address, pointer(flat, flat.dtype), flat.dtype == torch.int64, lookups,
            gradients.shape[0], pointer(lengths, torch.int64), gradients.data_ptr(),
            gradients.stride(0), *(memory.data_ptr() + each for each in (
                0, 8 * lookups + 128, 16 * lookups + 128)),
            None if state is None else state.data_ptr(),
            0 if state is None else state.stride(0), *native, threads_for(lookups * self.dim))
        if refused:
            raise Error(f"expected the {lookups} lookups of {gradients.shape[0]} samples that "
                        f"look_up returned, with its lengths")

    def _check(self, gradients: Tensor, lengths: Tensor | None) -> None:
        samples = gradients.shape[0]
        if (gradients.dtype != torch.float32 or gradients.shape != (samples, self.width)
                or (gradients.numel() and gradients.stride(1) != 1 and self.width > 1)
                or gradients.device.type != "cpu"
                or (lengths is not None and lengths.shape != (self.count * samples,))):
            raise Error(f"expected gradients float32[samples, {self.width}] of the lookups' "
                        f"bags, got {gradients.dtype} {list(gradients.shape)}")
