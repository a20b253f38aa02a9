"""The rows of ids: a compiled index over the rows' state."""

from __future__ import annotations

from ctypes import (
    POINTER,
    Structure,
    byref,
    c_int,
    c_int32,
    c_int64,
    c_uint32,
    c_uint64,
    c_void_p,
)

import numpy as np
from numpy.typing import NDArray

from ..contract.errors import Error
from ..kernels.library import declared, library, threads_for

ROW = np.dtype([("id", np.uint64), ("count", np.uint32), ("last", np.uint32)])
ENTRY = np.dtype([("row", np.int32), ("hash", np.uint32)])
ROW_BYTES = ROW.itemsize + 3 * ENTRY.itemsize // 2 + 4  # of the index and the free rows, too
MOST_COUNT = 1 << 31
SKETCH_ROWS = 4
_PER_ID = 16  # elements of a pass whose work is that of one id


class _Map(Structure):
    _fields_ = [("state", c_void_p), ("index", c_void_p), ("free", c_void_p), ("rows", c_int64),
                ("buckets", c_int64), ("free_count", c_int64), ("fresh", c_int64),
                ("used", c_int64), ("seed", c_uint64)]


ARGUMENTS = {
    "id_map_find": [POINTER(_Map), c_void_p, c_int64, c_uint32, c_void_p, c_int],
    "id_map_rebuild": [POINTER(_Map)],
    "id_map_add": [POINTER(_Map), c_void_p, c_void_p, c_int64, c_uint32, c_void_p],
    "id_map_expire": [POINTER(_Map), c_uint32, c_uint32, c_uint32, c_int32, c_int64, c_void_p,
                      c_void_p],
    "id_map_count": [c_void_p, c_int64, c_uint64, c_void_p, c_void_p, c_int64, c_void_p],
}


class Index:
    """Ids with a row, and free rows.

    Parameters
    ----------
    rows : int
        Row 0 belongs to no id.
    seed : int

    Attributes
    ----------
    state : ROW[rows]
        Of each row; `last` is 0 where it is free.
    free : int32[rows]
        The first `free_count` are freed rows; the last of them is taken first, and row `fresh`
        where there are none.
    """

    def __init__(self, rows: int, seed: int):
        self.seed, self._calls = seed, declared(library(), ARGUMENTS)
        self.state, self.free = np.zeros(rows, ROW), np.zeros(rows, np.int32)
        self.free_count, self.fresh, self.used = 0, 1, 0
        self.rebuild()

    def rebuild(self) -> int:
        """Follow changed state. Returns a row whose id another row has, too, or 0."""
        rows = len(self.state)
        self._index = np.zeros(rows + rows // 2 + 8, ENTRY)
        with self._map() as native:
            return int(self._calls.id_map_rebuild(byref(native)))

    def find(self, ids: NDArray[np.uint64], batch: int, threads: int | None) -> NDArray[np.int64]:
        """Rows of ids, 0 without one; unless batch is 0, each is counted in its row."""
        rows = np.empty(len(ids), np.int64)
        with self._map() as native:
            self._calls.id_map_find(byref(native), ids.ctypes.data, len(ids), batch,
                                    rows.ctypes.data, threads or threads_for(len(ids) * _PER_ID))
        return rows

    def add(self, ids: NDArray[np.uint64], counts: NDArray[np.uint32],
            batch: int) -> NDArray[np.int64]:
        """Rows given to distinct ids without one; fewer where the rows end."""
        ids, rows = np.ascontiguousarray(ids), np.empty(len(ids), np.int64)
        counts = np.ascontiguousarray(counts, np.uint32)
        with self._map() as native:
            given = self._calls.id_map_add(byref(native), ids.ctypes.data, counts.ctypes.data,
                                           len(ids), batch, rows.ctypes.data)
        if given < 0:
            raise Error(f"id {int(ids[-1 - given]):#x} has a row, or its row has an id: expected "
                        f"ids without rows, each once")
        return rows[:given]

    def expire(self, done: int, before: int, below: int, by_count: bool,
               most: int) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Free at most `most` rows last looked up before `before` or counted below `below`, none
        of a batch after `done`: their ids and rows, in the order in which rows expire. A freed row
        keeps its count until it is given."""
        most = min(most, self.used)
        rows, ids = np.empty(most, np.int64), np.empty(most, np.uint64)
        with self._map() as native:
            freed = self._calls.id_map_expire(byref(native), done, before, below, by_count, most,
                                              rows.ctypes.data, ids.ctypes.data)
        return ids[:freed], rows[:freed]

    def grow(self, rows: int) -> None:
        """Have more rows."""
        state, free = np.zeros(rows, ROW), np.zeros(rows, np.int32)
        state[:len(self.state)], free[:len(self.free)] = self.state, self.free
        self.state, self.free = state, free
        self.rebuild()

    def fill(self, ids: NDArray[np.uint64], counts: NDArray[np.uint32], last: NDArray[np.uint32],
             free: NDArray[np.int32]) -> None:
        """Have the rows of a saved index, of which `ids` begins with row 0.

        Raises
        ------
        Error
            An id has two rows, or a row has an id and is free, or neither.
        """
        fresh = len(ids)
        if free.ndim != 1:
            raise ValueError(f"free rows of shape {free.shape}")
        for name, part in (("id", ids), ("count", counts), ("last", last)):
            self.state[name][:fresh] = part
        self.free[:len(free)] = free
        taken = np.flatnonzero(self.state["last"][:fresh])
        self.free_count, self.fresh, self.used = len(free), fresh, len(taken)
        twice = self.rebuild()
        if twice:
            raise Error(f"id {int(self.state['id'][twice]):#x} has two rows, one of them {twice}: "
                        f"the state is damaged")
        if not np.array_equal(np.sort(np.concatenate((taken, free))), np.arange(1, fresh)):
            raise Error(f"rows 1 to {fresh - 1} must each have an id or be free, once: the "
                        f"state is damaged")

    def count(self, sketch: NDArray[np.uint16], ids: NDArray[np.uint64],
              counts: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Add counts of distinct ids to a sketch [4, width]: the estimates of them."""
        ids, estimates = np.ascontiguousarray(ids), np.empty(len(ids), np.uint32)
        counts = np.ascontiguousarray(counts, np.uint32)
        self._calls.id_map_count(sketch.ctypes.data, sketch.shape[1], self.seed, ids.ctypes.data,
                                 counts.ctypes.data, len(ids), estimates.ctypes.data)
        return estimates

    def _map(self) -> _Call:
        return _Call(self)


class _Call:
    """The index as the library's structure during a call."""

    def __init__(self, index: Index):
        self._index = index

    def __enter__(self) -> _Map:
        index = self._index
        self._native = _Map(index.state.ctypes.data, index._index.ctypes.data,
                            index.free.ctypes.data, len(index.state), len(index._index),
                            index.free_count, index.fresh, index.used, index.seed)
        return self._native

    def __exit__(self, *_: object) -> None:
        index, native = self._index, self._native
        index.free_count, index.fresh, index.used = (native.free_count, native.fresh, native.used)
