"""Records of the contract: their NumPy dtypes, their fields by name in memory, and addresses."""

from struct import Struct

import numpy as np

from .generated import (
    COMMAND_BYTES,
    COMPLETION_BYTES,
    COMPLETION_FIELDS,
    HARVEST_ENTRY_BYTES,
    HARVEST_ENTRY_FIELDS,
    OFFSET_WIDTH,
    OPERAND_FIELDS,
    ROW_ENTRY_BYTES,
    ROW_ENTRY_FIELDS,
)

_LETTERS = {1: "B", 2: "H", 4: "I", 8: "Q"}  # of `struct`, by bytes


def _record(fields: tuple[tuple[str, int, int], ...], size: int) -> np.dtype:
    """Structured dtype of a little-endian record of the contract."""
    names, offsets, widths = zip(*fields, strict=True)
    return np.dtype({"names": names, "formats": [f"<u{width}" for width in widths],
                     "offsets": offsets, "itemsize": size})


COMMAND = _record(OPERAND_FIELDS, COMMAND_BYTES)
COMPLETION = _record(COMPLETION_FIELDS, COMPLETION_BYTES)
ROW_ENTRY = _record(ROW_ENTRY_FIELDS, ROW_ENTRY_BYTES)
HARVEST_ENTRY = _record(HARVEST_ENTRY_FIELDS, HARVEST_ENTRY_BYTES)


def packed_address(handle: int, offset: int) -> int:
    """One address operand: the handle of a region and a byte offset into it."""
    return handle << OFFSET_WIDTH | offset


def unpack_address(address: int) -> tuple[int, int]:
    """The handle and the byte offset of an address operand."""
    return address >> OFFSET_WIDTH, address & (1 << OFFSET_WIDTH) - 1


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
