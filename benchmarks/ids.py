"""Ids a second of one thread: a map of ids beside a bare lookup in an open hash table, and beside
TorchRec's managed collisions, where TorchRec is installed.

    python -m benchmarks.ids --rows 1000000 --load 0.95
"""

import argparse
import statistics
import time
from ctypes import c_int64, c_void_p
from pathlib import Path

import numpy as np
import torch
from hotrow.ids import IdMap
from hotrow.kernels import compiler

from .auc import ManagedCollisions

_BATCH, _BATCHES, _REPEATS = 1 << 16, 16, 5


class BareTable:
    """`ska::flat_hash_map` of PyTorch's headers, with its own hash.

    Parameters
    ----------
    ids : uint64[n]
    rows : int64[n]
    """

    def __init__(self, ids, rows):
        headers = Path(torch.__file__).parent / "include"
        self._calls = compiler.load("bare_lookup", [Path(__file__).with_name("bare_lookup.cpp")],
                                    command=[*compiler.find_compiler(), f"-I{headers}"])
        self._calls.make_table.restype = c_void_p
        self._calls.make_table.argtypes = [c_void_p, c_void_p, c_int64]
        self._calls.find_rows.argtypes = [c_void_p, c_void_p, c_int64, c_void_p]
        self._table = self._calls.make_table(ids.ctypes.data, rows.ctypes.data, len(ids))

    def find(self, ids):
        """Rows of ids, 0 without one: int64[n]."""
        rows = np.empty(len(ids), np.int64)
        self._calls.find_rows(self._table, ids.ctypes.data, len(ids), rows.ctypes.data)
        return rows


def managed_collisions(rows, ids):
    """The call of TorchRec's module that profiles and remaps ids, of which it has most; None
    without TorchRec."""
    try:
        import torchrec  # noqa: F401
    except ImportError:
        return None
    made = ManagedCollisions(0, rows)
    for first in range(0, len(ids), _BATCH):
        made.step(ids[first:first + _BATCH])
    return lambda part: made.rows_of(part, True)


def measure(rows, load, seed=0):
    """Millions of ids a second of one thread's processor time, by what was done.

    Parameters
    ----------
    rows : int
        Of the map.
    load : float
        Share of them that have an id.
    seed : int

    Returns
    -------
    dict of str to float
        "admit" of ids that come first; then medians over repeats of the same uniform and skewed
        ids: "bare", "plan", "find", which counts nothing, and "torchrec".
    """
    draw = np.random.default_rng(seed)
    ids = draw.integers(0, 1 << 64, max(1, int(load * (rows - 1))), np.uint64)
    mapped = IdMap(rows, threads=1)
    seconds = _seconds(mapped.plan, ids)
    figures = {"admit": len(ids) / seconds / 1e6}
    bare, times = BareTable(*mapped.items()), {}  # type: BareTable, dict
    works = {"bare": bare.find, "plan": lambda part: mapped.plan(part).rows, "find": mapped.find,
             "torchrec": managed_collisions(rows, ids)}
    for _ in range(_REPEATS):
        for shape, places in (("uniform", draw.random(_BATCH * _BATCHES) * len(ids)),
                              ("skewed", len(ids) ** draw.random(_BATCH * _BATCHES) - 1)):
            lookups = ids[places.astype(np.int64)]
            for name, work in works.items():
                if work is not None:
                    times.setdefault(f"{shape} {name}", []).append(_seconds(work, lookups))
            assert (bare.find(lookups) == mapped.find(lookups)).all()
    return figures | {name: _BATCH * _BATCHES / statistics.median(taken) / 1e6
                      for name, taken in times.items()}


def _seconds(work, ids):
    begin = time.process_time()
    for first in range(0, len(ids), _BATCH):
        work(ids[first:first + _BATCH])
    return time.process_time() - begin


def main(arguments=None):
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--load", type=float, default=0.95)
    options = parser.parse_args(arguments)
    if options.rows < 2 or not 0 < options.load <= 1:
        parser.error("needs 2 rows or more and a load above 0, at most 1")
    if compiler.find_compiler() is None:
        parser.error("needs a C++ compiler: install g++ or clang++, or name one in CXX")
    torch.set_num_threads(1)
    figures = measure(options.rows, options.load)
    for name, rate in figures.items():
        bare = figures.get(f"{name.split()[0]} bare")
        print(f"{name:14} {rate:7.1f} M ids/s" + (f", {rate / bare:4.2f} of bare" if bare else ""))


if __name__ == "__main__":
    main()
