"""Ids of batches for tables on disk: by Zipf's law, or n-grams of a text in its order."""

import re
from math import gcd
from pathlib import Path

import numpy as np
import torch
from hotrow.torch import NgramIds

_ORDERS = (3, 4, 5)
_VOCABULARY = 1 << 20


class ZipfBatches:
    """Endless batches of ids by Zipf's law, the popular ones all over the table: int64[samples,
    features].

    Parameters
    ----------
    rows, samples, features, seed : int
    slope : float
    """

    def __init__(self, rows, samples, features, slope, seed=0):
        self._rows, self._shape, self._slope = rows, (samples, features), slope
        self._draw, self._step = np.random.default_rng(seed), coprime(rows, 0.618)

    def __iter__(self):
        while True:
            u = self._draw.random(self._shape)
            if self._slope == 1:
                rank = self._rows**u
            else:  # the inverse of the integral of x**-slope from 1 to rows
                power = 1 - self._slope
                rank = (1 + u * (self._rows**power - 1))**(1 / power)
            rank = np.minimum(rank.astype(np.int64), self._rows) - 1
            yield torch.from_numpy(rank * self._step % self._rows)


class TextBatches:
    """Batches of the hashed 3- to 5-grams that end at each token of a text, in its order:
    int64[positions, 3]. After its end the text begins again.

    Parameters
    ----------
    path : Path
        File of tokens, as `write_tokens` makes it.
    rows, positions : int
    """

    def __init__(self, path, rows, positions):
        self._path, self._positions = path, positions
        # Primes for the rows of each order, which fit one table together.
        self._ids = NgramIds(_ORDERS, 1, rows // len(_ORDERS) - 2000, seed=0,
                             vocabulary=_VOCABULARY)
        self._first = torch.tensor([0, *self._ids.tables[:-1]]).cumsum(0)
        assert sum(self._ids.tables) <= rows

    def __iter__(self):
        tokens, before = np.memmap(self._path, np.uint32, "r"), max(_ORDERS) - 1
        while True:
            for first in range(before, len(tokens) - self._positions, self._positions):
                part = tokens[first - before:first + self._positions].astype(np.int64)
                yield self._ids(torch.from_numpy(part)[None])[0, before:] + self._first


def write_tokens(text, path, most=1 << 26):
    """Write the tokens of a folder's files, one file after the other by their names, as uint32.

    Words and other characters are tokens; numbers follow their first places in the text.
    """
    numbers, count = {}, 0
    with open(path, "wb") as out:
        for file in sorted(each for each in Path(text).rglob("*") if each.is_file()):
            found = [numbers.setdefault(token, len(numbers) % (_VOCABULARY - 1) + 1)
                     for token in re.findall(rb"\w+|[^\w\s]", file.read_bytes())]
            out.write(np.array(found, np.uint32).data)
            count += len(found)
            if count >= most:
                break
    return {"tokens": count, "vocabulary": len(numbers)}


def coprime(rows, share):
    """A step through all rows, in an order that is not theirs."""
    step = int(rows * share) | 1
    while gcd(step, rows) != 1:
        step += 2
    return step


def batches(options):
    """Those that the options name."""
    if options.text:
        return TextBatches(Path(options.folder) / "tokens", options.rows,
                           options.samples * options.features // len(_ORDERS))
    return ZipfBatches(options.rows, options.samples, options.features, options.slope)


def features(options):
    """Features of a batch."""
    return len(_ORDERS) if options.text else options.features
