"""Records of the contract as NumPy dtypes."""

import numpy as np
from hotrow_rtl.contract.encoding import (
    COMMAND_BYTES,
    COMPLETION,
    COMPLETION_BYTES,
    HARVEST_ENTRY,
    HARVEST_ENTRY_BYTES,
    OPERANDS,
    ROW_ENTRY,
    ROW_ENTRY_BYTES,
)


def record_dtype(fields, size_bytes):
    """The structured dtype of a record; bytes that belong to no field are padding."""
    return np.dtype({
        "names": list(fields),
        "formats": [f"<u{field.bytes}" for field in fields.values()],
        "offsets": [field.offset for field in fields.values()],
        "itemsize": size_bytes,
    })


COMMAND_RECORD = record_dtype(OPERANDS, COMMAND_BYTES)
COMPLETION_RECORD = record_dtype(COMPLETION, COMPLETION_BYTES)
ROW_RECORD = record_dtype(ROW_ENTRY, ROW_ENTRY_BYTES)
HARVEST_RECORD = record_dtype(HARVEST_ENTRY, HARVEST_ENTRY_BYTES)


def encode(dtype, **values):
    """One record with these fields, the others zero, as uint8[dtype.itemsize]."""
    record = np.zeros(1, dtype)
    for name, value in values.items():
        record[name] = value
    return record.view(np.uint8)


def decode(dtype, octets):
    """The fields of one record, as a dict of Python integers."""
    record = np.frombuffer(octets, dtype, count=1)[0]
    return {name: int(record[name]) for name in dtype.names}
