"""The device contract as the driver uses it: the generated names, and records as NumPy dtypes."""

import numpy as np

from ._contract import *  # noqa: F403  the names that the driver's modules import from here
from ._contract import (
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
