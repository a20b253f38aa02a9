"""The planner's work as a C++ program of one core, built by the system's compiler."""

import ctypes
import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from ..errors import Error
from .plan_cpu import Planned

SOURCE = Path(__file__).with_name("plan_native.cpp")
FLAGS = ("-O3", "-march=native", "-std=c++17", "-shared", "-fPIC")
_ARRAY = np.ctypeslib.ndpointer(np.int64, flags="C_CONTIGUOUS")
_COUNT = ctypes.c_int64


def find_compiler():
    """Command of a C++ compiler: $CXX, or the first that is installed; None if there is none."""
    if os.environ.get("CXX"):
        return shlex.split(os.environ["CXX"])
    found = next(filter(shutil.which, ("g++", "c++", "clang++")), None)
    return [found] if found else None


def load(compiler):
    """Compile the planner and load it.

    Raises
    ------
    Error
        With what the compiler said.
    """
    with tempfile.TemporaryDirectory(prefix="hotrow-") as folder:
        library = Path(folder) / "plan_native.so"
        done = subprocess.run([*compiler, *FLAGS, str(SOURCE), "-o", str(library)],
                              capture_output=True, text=True)
        if done.returncode:
            raise Error(f"{compiler[0]} could not build {SOURCE.name}: {done.stderr.strip()}")
        loaded = ctypes.CDLL(str(library))
    loaded.planner_make.argtypes = [_COUNT, ctypes.c_int32]
    loaded.planner_make.restype = ctypes.c_void_p
    loaded.planner_free.argtypes = [ctypes.c_void_p]
    loaded.planner_mark.argtypes = [ctypes.c_void_p, _ARRAY, _COUNT, _COUNT]
    loaded.planner_plan.argtypes = [ctypes.c_void_p, _ARRAY, *[_COUNT] * 3, *[_ARRAY] * 4]
    loaded.planner_mark.restype = loaded.planner_plan.restype = loaded.planner_free.restype = None
    return loaded


class NativePlanner:
    """As `NumpyPlanner`.

    Parameters
    ----------
    library : ctypes.CDLL
        As `load` returns it.
    rows, slots, longest : int
    """

    def __init__(self, library, rows, slots, longest):
        self._library, self._longest = library, longest
        self._planner = library.planner_make(rows, slots)
        self._results = [np.empty(longest, np.int64) for _ in range(3)]
        self._counts = np.empty(2, np.int64)

    def __del__(self):
        self._library.planner_free(self._planner)

    def mark(self, rows, batch):
        self._library.planner_mark(self._planner, rows, len(rows), batch)

    def plan(self, rows, batch, retired) -> Planned:
        """The arrays are good until the next call."""
        slots, fills, evicted = self._results
        self._library.planner_plan(self._planner, rows, len(rows), batch, retired, slots, fills,
                                   evicted, self._counts)
        filled, left = self._counts
        return Planned(slots[:len(rows)], fills[:filled], evicted[:left])
