"""Golden model of COPY and FILL: consecutive bytes in chunks of the longest row."""

import numpy as np
from hotrow_rtl.config import Config
from hotrow_rtl.contract.encoding import Opcode, Status

from ..outcome import FAULT_DECERR, Outcome, fault_status
from ..region_check import unpack_address


def move_span(command, regions, memory, config: Config):
    """Copy `count` bytes (COPY), or set every four of them to `value` (FILL).

    The bytes of an overlap of source and destination are undefined.

    Parameters
    ----------
    command : mapping of str to int
        `opcode`, `count`, `value`, and the packed addresses `source` and `destination`, both
        checked.
    regions, memory, config
        As for `gather_scatter.move_rows`.

    Returns
    -------
    Outcome
        `entries` and `error_index` count chunks of `config.row_bytes`.
    """
    count, size = command["count"], config.row_bytes
    pattern = np.array([command["value"]], "<u4").view(np.uint8)
    fills = command["opcode"] == Opcode.FILL
    source = 0 if fills else _byte_address(regions, command["source"])
    destination = _byte_address(regions, command["destination"])

    def read(start, length):
        return np.resize(pattern, length) if fills else memory.view(source + start, length)

    octets, target = read(0, count), memory.view(destination, count, write=True)
    if octets is not None and target is not None:
        target[:] = octets
        return Outcome(entries=-(-count // size), bytes=count)

    outcome = Outcome()
    for chunk, start in enumerate(range(0, count, size)):
        length = min(size, count - start)
        octets, failed = read(start, length), command["source"]
        fault = FAULT_DECERR
        if octets is not None:
            failed = command["destination"]
            fault = memory.write(destination + start, octets.copy())
        if not fault:
            outcome.entries, outcome.bytes = outcome.entries + 1, outcome.bytes + length
        elif outcome.status == Status.OK:
            outcome.status, outcome.error_index = Status(int(fault_status(fault))), chunk
            outcome.error_address = failed + start
    return outcome


def _byte_address(regions, packed):
    handle, offset = unpack_address(packed)
    return regions[handle].base + offset
