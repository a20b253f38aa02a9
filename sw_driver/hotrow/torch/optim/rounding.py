"""Stochastic rounding of rows to 16 bits."""

import torch
from torch import Tensor

_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)  # odd, as int64
_DRAWN_BITS = 24
_TABLE_BITS = 40  # flat rows of one group of tables


def row_keys(group: int, flat: Tensor) -> Tensor:
    """Keys of flat rows int64[u] of a group of whole tables: int64[u], different for every row of a
    collection."""
    return flat.long() + (group << _TABLE_BITS)


def round_stochastically(values: Tensor, dtype: torch.dtype, keys: Tensor, seed: int,
                         step: int) -> Tensor:
    """Round to one of the two neighbours, with a chance that makes the expectation exact.

    A value beyond the largest finite number is rounded to nearest. The random bits of an element
    are a hash of seed, step, key and column: neither the other rows of the call nor its order
    matter.

    Parameters
    ----------
    values : float32[u, D]
    dtype : torch.dtype
        float16 or bfloat16.
    keys : int64[u]
    seed, step : int

    Returns
    -------
    dtype[u, D]
    """
    nearest = values.to(dtype)
    bits = nearest.view(torch.int16)
    # The magnitude grows with the bits below the sign: one less is the neighbour towards zero.
    low = (bits - (nearest.float().abs() > values.abs()).to(torch.int16)).view(dtype)
    high = (low.view(torch.int16) + 1).view(dtype)
    below, above = low.double().abs(), high.double().abs()
    share = (values.double().abs() - below) / (above - below)
    drawn = _drawn(keys.to(values.device), values.shape[1], seed, step)
    found = torch.where(drawn < share, high, low)
    return torch.where(torch.isfinite(above), found, nearest)


def _drawn(keys: Tensor, columns: int, seed: int, step: int) -> Tensor:
    """Numbers float64[u, columns] in [0, 1)."""
    start = _hash(_hash(torch.tensor(seed, device=keys.device)) + step)
    rows = _hash(start + keys)[:, None]
    bits = _hash(rows + _GOLDEN * torch.arange(columns, device=keys.device))
    return (bits & ((1 << _DRAWN_BITS) - 1)).double() / (1 << _DRAWN_BITS)


def _hash(values: Tensor) -> Tensor:
    """SplitMix64's output function, int64 to int64.

    Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
    """
    values = values + _GOLDEN
    values = (values ^ _shifted(values, 30)) * (0xBF58476D1CE4E5B9 - (1 << 64))
    values = (values ^ _shifted(values, 27)) * (0x94D049BB133111EB - (1 << 64))
    return values ^ _shifted(values, 31)


def _shifted(values: Tensor, places: int) -> Tensor:
    """Shift right without the sign."""
    return (values >> places) & ((1 << (64 - places)) - 1)
