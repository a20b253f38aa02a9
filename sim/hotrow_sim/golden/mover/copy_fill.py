"""Golden model of the row mover's spans: consecutive bytes that are copied or filled."""

import numpy as np
from hotrow_rtl.config import Config
from hotrow_rtl.contract.encoding import Opcode, Status

from ..region_check import unpack_address
from .addressing import FAULT_DECERR, Moved, fault_status


def move_span(command, regions, memory, config: Config):
    """Copy `count` bytes (COPY), or set every 4 of them to `value` (FILL), in pieces.

    What bytes hold that are source and destination is undefined.

    Parameters
    ----------
    command : mapping of str to int
        `opcode`, `count`, `value`, and packed `source` and `destination`, both checked.
    regions, memory, config
        As of `rows.move_rows`.

    Returns
    -------
    Moved
        Entries and error index count pieces of `config.row_bytes`.
    """
    count, size = command["count"], config.row_bytes
    pattern = np.array([command["value"]], "<u4").view(np.uint8)
    if command["opcode"] == Opcode.FILL:
        read = lambda start, length: np.resize(pattern, length)  # noqa: E731
    else:
        source = _byte_address(regions, command["source"])
        read = lambda start, length: memory.view(source + start, length)  # noqa: E731
    destination = _byte_address(regions, command["destination"])

    octets, target = read(0, count), memory.view(destination, count, write=True)
    if octets is not None and target is not None:
        target[:] = octets
        return Moved(Status.OK, 0, 0, -(-count // size), count)

    status, index, address, entries, moved = Status.OK, 0, 0, 0, 0
    for piece, start in enumerate(range(0, count, size)):
        length = min(size, count - start)
        octets, at = read(start, length), command["source"]
        fault = FAULT_DECERR
        if octets is not None:
            fault, at = memory.write(destination + start, octets.copy()), command["destination"]
        if not fault:
            entries, moved = entries + 1, moved + length
        elif status == Status.OK:
            status, index, address = Status(int(fault_status(fault))), piece, at + start
    return Moved(status, index, address, entries, moved)


def _byte_address(regions, packed):
    handle, offset = unpack_address(packed)
    return regions[handle].base + offset
