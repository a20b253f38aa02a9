"""Ids of a batch: checked against their tables, feature after feature."""

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from ..contract.errors import Error
from .library import Integers, library, pointer


def flatten_ids(ids: Tensor, rows: Tensor, counts: Tensor | None = None,
                dtype: torch.dtype = torch.int64,
                order: Sequence[int] | None = None) -> tuple[Tensor, int]:
    """Check each id, and write it, in one pass.

    Parameters
    ----------
    ids : int32 or int64 [samples, features] with any strides, or [n] feature after feature
    rows : int64[features]
        Of each feature's table, in the order of the results.
    counts : int64[features], optional
        Ids of each feature, where ids are [n].
    dtype : torch.dtype
        Of the results, int32 or int64.
    order : sequence of int, optional
        The features in the order of the results; by default their own.

    Returns
    -------
    flat : int32[n] or int64[n]
        Feature after feature, sample after sample.
    wrong : int
        Position there of the first id that is no row of its table, or -1.
    """
    if (ids.dim() not in (1, 2) or ids.dtype not in (torch.int32, torch.int64)
            or dtype not in (torch.int32, torch.int64)):
        raise Error(f"expected ids int32 or int64 [samples, features] or [n], and results of such "
                    f"a dtype, got {ids.dtype} {list(ids.shape)} and {dtype}")
    if ids.dim() == 1 and counts is None:
        raise Error("expected the count of ids of each feature")
    if ids.dim() == 1 and counts is not None:
        ids, stride, samples = ids.contiguous(), 1, None
        begin, features = counts.cumsum(0) - counts, counts.shape[0]
    else:
        samples, features = ids.shape
        begin, counts = _grid(samples, features, ids.stride(1))
        stride = ids.stride(0)
    if rows.shape[0] != features or (samples is None and int(counts.sum()) != ids.shape[0]):
        raise Error(f"expected ids of {len(rows)} features, got {ids.numel()} ids of "
                    f"{features} features that count {int(counts.sum())}")
    if order is not None and sorted(order) != list(range(features)):
        raise Error(f"expected every one of {features} features once in the order, got {order}")
    flat, native = torch.empty(ids.numel(), dtype=dtype), library()
    if order is not None:
        begin, counts = begin[order], counts[order]
    # Elements from the first id to the last.
    size = ids.numel() and 1 + sum(
        (count - 1) * step for count, step in zip(ids.shape, ids.stride(), strict=True))
    wrong = native.flatten_ids(
        Integers.of(ids), size, features, pointer(begin, torch.int64),
        pointer(counts, torch.int64), stride, pointer(rows, torch.int64),
        None, pointer(flat, dtype), ids.numel(), dtype == torch.int64)
    if wrong < -1:
        raise _malformed(counts, rows)
    return flat, wrong


def _malformed(counts: Tensor, rows: Tensor) -> Error:
    return Error(f"expected counts of ids that are not negative, and rows that the dtype holds, "
                 f"got counts {counts.tolist()[:8]} and tables of {rows.tolist()[:8]} rows")


@lru_cache(8)
def _grid(samples: int, features: int, stride: int) -> tuple[Tensor, Tensor]:
    """Where the ids of each feature begin, and how many there are: int64[features]."""
    return torch.arange(features) * stride, torch.full((features,), samples)
