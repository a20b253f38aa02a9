"""The planner's work as a C++ program of one core, built by the system's compiler.

An array holds the slot of each row: there is no hash and no set. The victim is the least recent of
all slots, the card's of those of two sets.
"""

import ctypes
from pathlib import Path

import numpy as np
from hotrow.kernels import compiler

from .plan_check import Planned

SOURCE = Path(__file__).with_name("plan_native.cpp")
_ARRAY = np.ctypeslib.ndpointer(np.int64, flags="C_CONTIGUOUS")
_COUNT = ctypes.c_int64


def load():
    """Build the planner, unless it is cached, and load it.

    Raises
    ------
    Error
        There is no compiler, or it failed: with its message.
    """
    loaded = compiler.load(SOURCE.stem, [SOURCE])
    loaded.planner_make.argtypes = [_COUNT, ctypes.c_int32]
    loaded.planner_make.restype = ctypes.c_void_p
    loaded.planner_free.argtypes = [ctypes.c_void_p]
    loaded.planner_mark.argtypes = [ctypes.c_void_p, _ARRAY, _COUNT, _COUNT]
    loaded.planner_plan.argtypes = [ctypes.c_void_p, _ARRAY, *[_COUNT] * 3, *[_ARRAY] * 4]
    loaded.planner_mark.restype = loaded.planner_plan.restype = loaded.planner_free.restype = None
    return loaded


class NativePlanner:
    """Plans batches: LRU with holds.

    Parameters
    ----------
    library : ctypes.CDLL
        Returned by `load`.
    rows, slots, longest : int
        Rows of all tables, slots of the trainer, lookups of the longest batch.
    """

    def __init__(self, library, rows, slots, longest):
        self._library = library
        self._planner = library.planner_make(rows, slots)
        self._results = [np.empty(longest, np.int64) for _ in range(3)]
        self._counts = np.empty(2, np.int64)

    def __del__(self):
        self._library.planner_free(self._planner)

    def mark(self, rows, batch):
        """Hold the rows that have slots for a coming batch."""
        self._library.planner_mark(self._planner, rows, len(rows), batch)

    def plan(self, rows, batch, retired) -> Planned:
        """Give slots to the rows of a batch; evict no row that a batch after `retired` needs. The
        next call overwrites the arrays."""
        slots, fills, evicted = self._results
        self._library.planner_plan(self._planner, rows, len(rows), batch, retired, slots, fills,
                                   evicted, self._counts)
        filled, left = self._counts
        return Planned(slots[:len(rows)], fills[:filled], evicted[:left])
