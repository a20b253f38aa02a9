"""Ids of a batch: checked against their tables, and as rows of one array of all tables."""

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from ..contract.errors import Error
from .library import Integers, library, pointer


def flatten_ids(ids: Tensor, rows: Tensor, first: Tensor | None = None,
                counts: Tensor | None = None, dtype: torch.dtype | None = torch.int64,
                order: Sequence[int] | None = None) -> tuple[Tensor | None, int]:
    """Check each id, and add where its table begins, in one pass.

    Parameters
    ----------
    ids : int32 or int64 [samples, features] with any strides, or [n] feature after feature
    rows : int64[features]
        Of each feature's table, in the order of the results, as is `first`.
    first : int64[features], optional
        Flat row of each table's row 0; without it 0.
    counts : int64[features], optional
        Ids of each feature, where ids are [n].
    dtype : torch.dtype, optional
        Of the flat rows, int32 or int64; None only checks the ids.
    order : sequence of int, optional
        The features in the order of the results; by default their own.

    Returns
    -------
    flat : int32[n] or int64[n] or None
        Feature after feature, sample after sample.
    wrong : int
        Position there of the first id that is no row of its table, or -1.
    """
    if (ids.dim() not in (1, 2) or ids.dtype not in (torch.int32, torch.int64)
            or dtype not in (None, torch.int32, torch.int64)):
        raise Error(f"expected ids int32 or int64 [samples, features] or [n], and flat rows of "
                    f"such a dtype, got {ids.dtype} {list(ids.shape)} and {dtype}")
    if (ids.dim() == 1 and counts is None) or (first is not None and first.shape != rows.shape):
        raise Error("expected the count of ids of each feature, and where its table begins")
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
    flat = None if dtype is None else torch.empty(ids.numel(), dtype=dtype)
    native = library()
    if native is None:
        if order is not None:
            parts = list(ids.T) if ids.dim() == 2 else list(ids.split(counts.tolist()))
            ids, counts = torch.cat([parts[each] for each in order]), counts[order]
        base = torch.zeros_like(rows) if first is None else first
        most = torch.iinfo(dtype if dtype and ids.numel() else torch.int64).max
        if bool(((counts < 0) | (base < 0) | (base > most) | (rows - 1 > most - base)).any()):
            raise _malformed(counts, rows, first)
        return _reference(ids, rows, first, counts, flat)
    if order is not None:
        begin, counts = begin[order], counts[order]
    # Elements from the first id to the last.
    size = ids.numel() and 1 + sum(
        (count - 1) * step for count, step in zip(ids.shape, ids.stride(), strict=True))
    wrong = native.flatten_ids(
        Integers.of(ids), size, features, pointer(begin, torch.int64),
        pointer(counts, torch.int64), stride, pointer(rows, torch.int64),
        pointer(first, torch.int64), pointer(flat, dtype), ids.numel(), dtype == torch.int64)
    if wrong < -1:
        raise _malformed(counts, rows, first)
    return flat, wrong


def _malformed(counts: Tensor, rows: Tensor, first: Tensor | None) -> Error:
    return Error(f"expected counts of ids that are not negative, and flat rows that their dtype "
                 f"holds, got counts {counts.tolist()[:8]}, tables of {rows.tolist()[:8]} rows "
                 f"that begin at {None if first is None else first.tolist()[:8]}")


@lru_cache(8)
def _grid(samples: int, features: int, stride: int) -> tuple[Tensor, Tensor]:
    """Where the ids of each feature begin, and how many there are: int64[features]."""
    return torch.arange(features) * stride, torch.full((features,), samples)


def _reference(ids: Tensor, rows: Tensor, first: Tensor | None, counts: Tensor,
               flat: Tensor | None) -> tuple[Tensor | None, int]:
    ids = ids.T.reshape(-1).long() if ids.dim() == 2 else ids.long()
    wrong = (ids < 0) | (ids >= torch.repeat_interleave(rows, counts))
    if flat is not None:
        flat.copy_(ids if first is None else ids + torch.repeat_interleave(first, counts))
    return flat, int(wrong.nonzero()[0]) if bool(wrong.any()) else -1
