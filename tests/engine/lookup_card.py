"""The compiled engine of the lookup queue, called without rings."""

import ctypes
from pathlib import Path

import numpy as np
from hotrow.kernels import compiler, native
from hotrow.transports.cpu import GEOMETRY_FIELDS

FOLDER = Path(compiler.__file__).parent / "engine"
# The lists of a command share bytes as in the contract.
PLACES = {"source": 0, "lengths": 1, "targets": 2, "slots": 3, "popular": 4, "fill_slots": 4,
          "nonpopular": 5, "victim_slots": 5, "misses": 6, "fills": 6, "victims": 7,
          "destination": 7}
OUTCOME = np.dtype({
    "names": ["status", "error_index", "error_address", "bytes", "lookups", "hits", "misses",
              "unique", "popular", "entries", "refused", "evictions", "bypasses", "wait_for"],
    "formats": ["u1", "u8", "u8", "u8", *["u4"] * 10],
    "offsets": [0, 8, 16, 24, *range(32, 72, 4)], "itemsize": 72})


def library():
    """The engine's lookup queue as a shared library, of the objects of the product's."""
    sources = [FOLDER / f"{name}.cpp" for name in (
        "batch_reader", "counters", "lookup_engine", "lookup_parts", "lookup_passes", "memory",
        "planner", "splitter", "workers")] + [FOLDER.parent / "places.cpp"]
    loaded = compiler.load("lookup-engine", [Path(__file__).with_name("lookup_api.cpp"), *sources],
                           native.headers())
    word, wide, pointer = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_void_p
    loaded.lookup_make.restype = pointer
    loaded.lookup_make.argtypes = [pointer, ctypes.c_int]
    loaded.lookup_free.argtypes = [pointer]
    loaded.lookup_map.argtypes = [pointer, wide, pointer, wide, ctypes.c_int]
    loaded.lookup_table.argtypes = [pointer, word, wide, word, word]
    loaded.lookup_execute.argtypes = [pointer] * 4
    loaded.lookup_retire.argtypes = [pointer, word]
    loaded.lookup_retired.argtypes = [pointer]
    loaded.lookup_retired.restype = word
    return loaded


class LookupCard:
    """One engine.

    Parameters
    ----------
    config : Config
    threads : int
    """

    def __init__(self, config, threads=1):
        self._library, self._arrays = library(), []
        geometry = np.array([getattr(config, name) for name in GEOMETRY_FIELDS], np.uint32)
        self._card = self._library.lookup_make(geometry.ctypes.data, threads)

    def __del__(self):
        if hasattr(self, "_card"):
            self._library.lookup_free(self._card)

    def map(self, address, array, writable):
        """Put a uint8 array at a device address."""
        self._arrays.append(array)
        self._library.lookup_map(self._card, address, array.ctypes.data, array.size, writable)

    def table(self, number, last_row, parts_log2=0, part=0):
        """Register a table."""
        self._library.lookup_table(self._card, number, last_row, parts_log2, part)

    def execute(self, record, addresses):
        """Execute a command record; returns the fields of its outcome."""
        places, outcome = np.zeros(9, np.uint64), np.zeros(1, OUTCOME)  # without `Places`
        for name, address in addresses.items():
            places[PLACES[name]] = address
        self._library.lookup_execute(self._card, record.ctypes.data, places.ctypes.data,
                                     outcome.ctypes.data)
        return {name: int(outcome[0][name]) for name in OUTCOME.names}

    def retire(self, batch):
        """Write PLAN_RETIRED; whether the engine accepts it."""
        return bool(self._library.lookup_retire(self._card, batch & 0xFFFF_FFFF))

    @property
    def retired(self):
        """The register PLAN_RETIRED."""
        return self._library.lookup_retired(self._card)
