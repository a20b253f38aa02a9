"""Hashes and initial values that follow from a seed and an id alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..contract.errors import BatchError
from ..operands.integers import whole

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_OFFSET, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)


def mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A permutation of the 64-bit numbers: the finalizer of SplitMix64 (G. Steele, D. Lea and
    C. Flood, "Fast splittable pseudorandom number generators", 2014)."""
    values = np.asarray(values, np.uint64)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def string_ids(strings: Sequence[bytes]) -> NDArray[np.int64]:
    """Ids of byte strings, as `hotrow.torch.ids_of` says: int64[n]."""
    if not strings:
        return np.empty(0, np.int64)
    lengths = np.array([len(string) for string in strings], np.int64)
    data = np.frombuffer(b"".join(strings), np.uint8)
    order = np.argsort(-lengths, kind="stable")  # the strings that go on are the first ones
    begins = (np.cumsum(lengths) - lengths)[order]
    hashes = np.full(len(strings), _OFFSET)
    longest_first = lengths[order]
    for position in range(int(longest_first[0])):
        going = int(np.searchsorted(-longest_first, -position, side="left"))
        hashes[:going] = (hashes[:going] ^ data[begins[:going] + position]) * _PRIME
    placed = np.empty_like(hashes)
    placed[order] = hashes
    return mixed(placed).view(np.int64)


def initial_rows(ids: NDArray[np.uint64], dim: int, seed: int,
                 bound: float | None = None) -> NDArray[np.float32]:
    """Rows that ids start with, whatever the order in which they come.

    Parameters
    ----------
    ids : uint64[n]
    dim : int
    seed : int
    bound : float, optional
        Elements are uniform in [-bound, bound); by default 1 / sqrt(dim).

    Returns
    -------
    float32[n, dim]

    Raises
    ------
    BatchError

    Examples
    --------
    >>> bool((initial_rows([3, 9], 4, seed=1)[1] == initial_rows([9], 4, seed=1)[0]).all())
    True
    """
    ids, dim, seed = np.asarray(ids), whole(dim, "dim"), whole(seed, "the seed")
    if dim < 1 or (ids.size and ids.dtype.kind not in "iu"):
        raise BatchError(f"expected ids as integers of 64 bits and a dim of 1 or more, got "
                         f"{ids.dtype} and dim {dim}")
    bound = dim ** -0.5 if bound is None else bound
    start = mixed(ids.astype(np.uint64) ^ mixed(np.array([seed & (1 << 64) - 1], np.uint64)))
    columns = np.arange(1, dim + 1, dtype=np.uint64) * _GOLDEN
    words = mixed(start[:, None] + columns)
    unit = (words >> np.uint64(40)).astype(np.float32) * np.float32(2 ** -23) - np.float32(1)
    return unit * np.float32(bound)
