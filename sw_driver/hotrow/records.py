"""Little-endian records of the contract in memory: their fields by name, in one pass."""

from struct import Struct

import numpy as np

_LETTERS = {1: "B", 2: "H", 4: "I", 8: "Q"}  # of `struct`, by bytes


class Record:
    """How a record lies in memory. Fields share a place where their names differ only.

    Parameters
    ----------
    dtype : numpy.dtype
        Structured, of unsigned integers.
    """

    def __init__(self, dtype: np.dtype):
        assert dtype.fields is not None
        places = {name: (offset, kind.itemsize) for name, (kind, offset, *_) in
                  dtype.fields.items()}
        each, text, end = sorted(set(places.values())), "<", 0
        for offset, size in each:
            text += f"{offset - end}x{_LETTERS[size]}"
            end = offset + size
        self._struct = Struct(f"{text}{dtype.itemsize - end}x")
        self._at = {name: each.index(place) for name, place in places.items()}
        self._names = sorted(places, key=places.__getitem__)
        self._zeros = [0] * len(each)
        self.size = dtype.itemsize

    def write(self, memory: memoryview, number: int, fields: dict[str, int]) -> None:
        """Set record `number` of an array; fields without a value are 0."""
        values, at = self._zeros.copy(), self._at
        for name, value in fields.items():
            values[at[name]] = value
        self._struct.pack_into(memory, number * self.size, *values)

    def read(self, memory: memoryview, number: int) -> dict[str, int]:
        """Record `number` of an array whose fields have a place each."""
        return dict(zip(self._names, self._struct.unpack_from(memory, number * self.size),
                        strict=True))
