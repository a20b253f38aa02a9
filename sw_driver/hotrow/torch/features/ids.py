"""64-bit ids of columns of data and of the n-grams of tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ...contract.errors import BatchError, Error
from ...ids.initial import string_ids
from ...operands.integers import whole
from .inputs import check_elements

_MASK = (1 << 64) - 1
_FEWEST_MULTIPLIERS = 1 << 16


def ids_of(column: Any) -> torch.Tensor:
    """Ids of a column of integers or strings.

    An integer is its own id. The id of a string is the FNV-1a hash of its UTF-8 bytes
    (G. Fowler, L. C. Noll and K.-P. Vo, 1991), finished by SplitMix64, so that
    every bit of the id depends on every byte. A null has the id of the empty string.

    Parameters
    ----------
    column : pandas, polars or Arrow column, NumPy array, tensor or sequence
        Of n integers of 64 bits, signed or not, and nulls, or of n strings, bytes and nulls.

    Returns
    -------
    int64[n]
        Ids of 2^63 and above are negative.

    Raises
    ------
    BatchError
        A value is neither, or of the other kind than those before it.

    Examples
    --------
    >>> ids_of([7, -1]).tolist()
    [7, -1]
    >>> ids_of(["milk", "bread", "milk"]).unique().numel()
    2
    """
    values = _column(column)
    if values.dtype.kind in "mM":  # some of whose lists are numbers, and others are none
        raise BatchError(f"expected a column of integers or strings, got times of "
                         f"{values.dtype}: choose the unit, as in np.asarray(column).astype("
                         f"'{values.dtype.kind}8[s]').astype('int64')")
    if values.ndim != 1:
        what = type(column).__name__ + f" of shape {list(values.shape)}" * bool(values.ndim)
        raise BatchError(f"expected a column of ids, got {what}: give one column at a time")
    if values.dtype.kind in "iu":
        return torch.from_numpy(values.astype(np.uint64 if values.dtype.kind == "u" else np.int64)
                                .view(np.int64))
    there = np.array([not _is_null(value) for value in values], bool)
    chosen = values[there]
    integers = len(chosen) > 0 and isinstance(chosen[0], _INTEGERS)
    expected = _INTEGERS if integers else (str, bytes)
    wrong = {kind for kind in set(map(type, chosen))
             if issubclass(kind, (bool, np.timedelta64)) or not issubclass(kind, expected)}
    for place, value in enumerate(values if wrong else ()):
        if type(value) in wrong and there[place]:
            raise BatchError(
                f"value {place} of the column is {value!r}, of type {type(value).__name__}: "
                f"expected integers and nulls, or strings, bytes and nulls" + (
                    ". pandas makes floats of integers beside a null, unless they are Int64"
                    * isinstance(value, (float, np.floating))))
    for place, value in enumerate(values if integers else ()):
        if there[place] and not -1 << 63 <= value <= _MASK:
            raise BatchError(f"value {place} of the column, {value}, has more than 64 bits: make "
                             f"it a string")
    if integers:
        ids = np.full(len(values), string_ids([b""])[0])
        ids[there] = np.array([int(value) & _MASK for value in chosen], np.uint64).view(np.int64)
        return torch.from_numpy(ids)
    return torch.from_numpy(string_ids([_bytes(value) if known else b""
                                        for value, known in zip(values, there, strict=True)]))


_INTEGERS = (int, np.integer)


def _column(column: Any) -> NDArray[Any]:
    """A column as an array of integers or of objects."""
    if isinstance(column, torch.Tensor):
        check_elements(column, "a column of ids")
        column = column.detach().cpu()
    if isinstance(column, (str, bytes, Set, Mapping)) or not hasattr(column, "__iter__"):
        return np.array(None)
    if hasattr(column, "dtype") or hasattr(column, "shape"):
        with suppress(Exception):  # a type that NumPy has not
            values = np.asarray(column)
            if values.ndim != 1 or values.dtype.kind in "mM" or (
                    values.dtype.kind in "iu" and not np.ma.is_masked(column)):
                return values
            if values.dtype.kind in "USTO":
                return values.astype(object)
    # The lists of pandas, polars and Arrow have integers beside a null, where their arrays have
    # floats; NumPy's own strings end at trailing zeros, so that those of a list stay objects.
    for name in ("to_pylist", "to_list", "tolist"):
        if hasattr(column, name):
            column = getattr(column, name)()
            break
    return np.fromiter(column, object)


def _is_null(value: object) -> bool:
    # pandas writes NaN, its NA or NaT for a null.
    return value is None or type(value).__name__ in ("NAType", "NaTType") or (
        isinstance(value, (float, np.floating)) and value != value)


def _bytes(value: str | bytes) -> bytes:
    # A lone surrogate keeps its three bytes.
    return value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")


class NgramIds(nn.Module):
    """Rows of the n-grams that end at each token, in tables of hashed n-grams.

    Every order and head has a table of its own. The hash of an n-gram is the XOR of its tokens,
    each times the odd multiplier of its place, in wrapping int64; its row is the hash modulo the
    table's rows, a prime. The primes ascend from `rows` and none is used twice (Engram,
    arXiv 2601.07372, section 2). Before the first token stands `pad`. Ids depend on tokens alone,
    so that a pipeline has them ahead of the step.

    Parameters
    ----------
    orders : sequence of int
        Lengths of the n-grams, each 1 or more.
    heads : int
        Tables of each order.
    rows : int
        No table has fewer.
    seed : int
        Of the multipliers: give each layer another.
    pad : int
    vocabulary : int
        Tokens are less than this. Multipliers are less than 2^63 / vocabulary, as published.
    resets : bool
        Whether `pad` also ends a document: an n-gram has `pad` in the place of what stands before
        the last one that precedes its last token.
    joined : bool
        Whether ids are rows of one table in which all tables follow each other.

    Attributes
    ----------
    tables : tuple of int
        Rows of each table: order after order, head after head.
    rows : int
        Of all tables; of a published layout with those that pad it.
    multipliers : int64[max(orders)]
        Of the last token, the one before it, .... A `state_dict()` has them, and loads only where
        they are the same.

    Examples
    --------
    >>> ids = NgramIds((2, 3), heads=2, rows=100, seed=0)
    >>> ids.tables
    (101, 103, 107, 109)
    >>> ids(torch.tensor([[5, 6, 7]])).shape
    torch.Size([1, 3, 4])
    """

    def __init__(self, orders: Iterable[int], heads: int, rows: int, seed: int, pad: int = 0,
                 vocabulary: int = 1 << 20, resets: bool = False, joined: bool = False):
        super().__init__()
        orders = tuple(whole(order, "an order of n-grams") for order in orders)
        heads, rows, pad = whole(heads, "heads"), whole(rows, "rows"), whole(pad, "pad")
        vocabulary = whole(vocabulary, "vocabulary")
        self.orders, self.heads, self.pad = orders, heads, pad
        if not self.orders or min(self.orders) < 1 or heads < 1 or rows < 1:
            raise Error(f"n-gram ids need orders, heads and rows of 1 or more, not orders "
                        f"{self.orders}, {heads} heads and {rows} rows")
        if not 0 <= pad < vocabulary:
            raise Error(f"pad is a token of 0 to {vocabulary - 1}, not {pad}")
        self.vocabulary, self.resets, self.joined = vocabulary, resets, joined
        self.tables = _primes_from(rows, len(self.orders) * heads)
        self.rows = sum(self.tables)
        if whole(seed, "the seed") < 0:
            raise Error(f"the seed of n-gram ids is 0 or more, not {seed}")
        draw, half = np.random.default_rng(int(seed)), (1 << 63) // vocabulary // 2
        if half < _FEWEST_MULTIPLIERS:
            raise Error(f"a vocabulary of {vocabulary} leaves {half} multipliers, so that n-grams "
                        f"of the same tokens in another order would share rows: give it at most "
                        f"{(1 << 62) // _FEWEST_MULTIPLIERS}")
        # No buffers, whose memory `to_empty` of a module on a meta device leaves as it is.
        self._multipliers: tuple[int, ...] = tuple(
            (2 * draw.integers(0, half, max(self.orders), np.int64) + 1).tolist())

    @classmethod
    def preset(cls, name: str, layer: int = 0, pad: int | None = None,
               vocabulary: int | None = None, rows: int | None = None) -> NgramIds:
        """The ids of a published layout: rows of the one table that a layer's checkpoint has.

        "qwen" is that of Qwen3.8-Flash-Next (QwenLM, `qwen4_exp` in the library transformers):
        2- and 3-grams of token ids, 8 heads, multipliers drawn by SplitMix64, one layer; `pad` is
        the token that ends a document. "engram" is that of DeepSeek-V4.1-Flash (its
        inference/engram.py; arXiv 2601.07372): 2- to 4-grams, 8 heads, two layers. Its tokens are
        those that its map of tokens to normalised ones gives, and so is `pad`.

        Parameters
        ----------
        name : str
            "qwen" or "engram".
        layer : int
            Place among the layers with tables, from 0.
        pad : int, optional
            By default that of "qwen"; the map of "engram" gives it.
        vocabulary : int, optional
            Of the tokens, by default the published one, by which the multipliers are drawn.
        rows : int, optional
            No part has fewer, by default the published number: for tables of the same layout.

        Raises
        ------
        Error
            There is no such layout or layer, or `pad` is missing.

        Examples
        --------
        >>> ids = NgramIds.preset("qwen")
        >>> ids.rows, ids.multipliers.tolist()
        (320001536, [23703573157769, 20109073645365, 8052911324071])
        """
        layout = _LAYOUTS.get(name)
        if layout is None:
            raise Error(f"expected a published layout, one of {', '.join(_LAYOUTS)}, got {name!r}")
        layer = whole(layer, "layer")
        if not 0 <= layer < len(layout.seeds):
            raise Error(f"layout {name!r} has tables at {len(layout.seeds)} layers: expected layer "
                        f"0 to {len(layout.seeds) - 1}, got {layer}")
        pad = layout.pad if pad is None else pad
        if pad is None:
            raise Error(f"layout {name!r} needs pad: the token that the map of its tokenizer gives "
                        f"for the published pad")
        base = layout.rows if rows is None else rows
        found = cls(layout.orders, _HEADS, base, 0, pad, vocabulary or layout.vocabulary,
                    layout.resets, joined=True)
        heads = len(found.tables)
        found.tables = _primes_from(base, heads * (layer + 1))[heads * layer:]
        found.rows = -(-sum(found.tables) // layout.multiple) * layout.multiple
        half = ((1 << 63) - 1) // found.vocabulary // 2
        found._multipliers = tuple(2 * each + 1 for each in layout.draw(
            layout.seeds[layer], max(layout.orders), half))
        return found

    @property
    def multipliers(self) -> torch.Tensor:
        return torch.tensor(self._multipliers, device="cpu")

    def get_extra_state(self) -> dict[str, list[int]]:
        """What the rows of n-grams follow from, beside tokens."""
        return {"multipliers": [*self._multipliers], "orders": [*self.orders],
                "tables": [*self.tables], "pad": [self.pad],
                "of one table": [int(self.joined)], "resets": [int(self.resets)]}

    def set_extra_state(self, state: Any) -> None:
        """Raise Error if a saved module gives n-grams other rows."""
        own = self.get_extra_state()
        for name in own:
            if not isinstance(state, Mapping) or state.get(name) != own[name]:
                raise Error(f"this NgramIds has {name} {own[name]}, and the saved one "
                            f"{state.get(name) if isinstance(state, Mapping) else state}: its "
                            f"n-grams have other rows. Make it with the saved one's seed, orders, "
                            f"heads, rows, pad and vocabulary")

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Rows of the n-grams of a batch.

        Parameters
        ----------
        tokens : int32 or int64 [batch, length]

        Returns
        -------
        int64[batch, length, orders * heads]
            Row in each of `tables`, or in that of all.

        Raises
        ------
        BatchError
        """
        if tokens.dim() != 2 or tokens.dtype not in (torch.int32, torch.int64):
            raise BatchError(f"expected tokens [batch, length] of int32 or int64, got "
                             f"{list(tokens.shape)} of {tokens.dtype}")
        wrong = (tokens < 0) | (tokens >= self.vocabulary)
        if bool(wrong.any()):
            sample, place = wrong.nonzero()[0].tolist()
            raise BatchError(f"token {int(tokens[sample, place])} at place {place} of sample "
                             f"{sample} is not one of 0 to {self.vocabulary - 1}")
        tokens = tokens.long()
        padded = nn.functional.pad(tokens, (max(self.orders) - 1, 0), value=self.pad)
        length, last = tokens.shape[1], max(self.orders) - 1
        hashed, sofar = {}, torch.zeros_like(tokens)
        ended = torch.zeros_like(tokens, dtype=torch.bool)
        for back in range(last + 1):
            here = padded[:, last - back:last - back + length]
            if self.resets and back:
                here = here.masked_fill(ended, self.pad)
                ended = here == self.pad
            sofar = sofar ^ (here * self._multipliers[back])
            hashed[back + 1] = sofar
        grams = torch.stack([hashed[order] for order in self.orders], -1)
        sizes = torch.tensor(self.tables, device=tokens.device)
        found = torch.remainder(grams.repeat_interleave(self.heads, -1), sizes)
        return found + (sizes.cumsum(0) - sizes) if self.joined else found


def _numpy_draws(seed: int, count: int, below: int) -> list[int]:
    """Integers less than `below` as Engram draws them."""
    found: list[int] = np.random.default_rng(seed).integers(0, below, count, np.int64).tolist()
    return found


def _split_mix_draws(seed: int, count: int, below: int) -> list[int]:
    """Integers less than `below` by SplitMix64 (G. L. Steele, D. Lea and C. H. Flood, 2014), from
    its second state on."""
    found = []
    for state in range(2, count + 2):
        word = (seed + state * 0x9E3779B97F4A7C15) & _MASK
        word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
        word = (word ^ (word >> 27)) * 0x94D049BB133111EB & _MASK
        found.append((word ^ (word >> 31)) % below)
    return found


@dataclass(frozen=True)
class _Layout:
    orders: tuple[int, ...]
    rows: int  # no part has fewer
    vocabulary: int
    seeds: tuple[int, ...]  # of the multipliers of each layer
    draw: Callable[[int, int, int], list[int]]
    pad: int | None = None
    resets: bool = False
    multiple: int = 1  # of which the rows of all parts are one


_HEADS, _LAYER = 8, 10007
_LAYOUTS = {
    "qwen": _Layout((2, 3), 20_000_000, 248_320, (1234,), _split_mix_draws, 248_044, True, 128),
    "engram": _Layout((2, 3, 4), 16_000_000, 99_092, (_LAYER, 14 * _LAYER), _numpy_draws),
}


def _primes_from(least: int, count: int) -> tuple[int, ...]:
    """The first primes of at least `least`."""
    found: list[int] = []
    number = max(2, least)
    while len(found) < count:
        if all(number % divisor for divisor in range(2, int(number ** 0.5) + 1)):
            found.append(number)
        number += 1
    return tuple(found)
