"""The golden model of COPY and FILL against byte-by-byte assignment."""

from dataclasses import replace

import numpy as np
import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.contract.encoding import Opcode, Status, packed_address
from hotrow_sim.golden.mover.copy_fill import move_span
from hotrow_sim.golden.region_check import Region
from hotrow_sim.model.memory import Memory

CONFIG = replace(preset("tiny"), row_bytes=256)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("opcode", [Opcode.COPY, Opcode.FILL])
def test_bytes_and_faults(opcode, seed):
    """Source and destination of 4 KiB, of which 3 KiB or all exist."""
    rng = np.random.default_rng(seed)
    memory = Memory(CONFIG.address_width, CONFIG.bus_bytes)
    there = [4096, 3072 + 16][seed % 2]
    source, destination = (rng.integers(0, 256, there, np.uint8) for _ in range(2))
    bases = [memory.attach(array, writable=True) for array in (source, destination)]
    regions = {n: Region(base, 4096, True) for n, base in enumerate(bases)}
    count = 4 * int(rng.integers(1, 700))
    at = [4 * int(rng.integers((4096 - count) // 4 + 1)) for _ in range(2)]
    value = int(rng.integers(1 << 32))
    wanted, bus = destination.copy(), CONFIG.bus_bytes
    octets = (source if opcode == Opcode.COPY else np.array(0), np.array([value], "<u4"))
    status, index, address, entries, moved = Status.OK, 0, 0, 0, 0
    for piece, start in enumerate(range(0, count, 256)):
        size = min(256, count - start)
        unread = opcode == Opcode.COPY and at[0] + start + size > there
        if not unread:
            for byte in range(start, start + size):
                # A bus word is written if all bytes of it in the chunk exist.
                word_end = (bases[1] + at[1] + byte) // bus * bus + bus - bases[1]
                if min(word_end, at[1] + start + size) <= there:
                    wanted[at[1] + byte] = (octets[0][at[0] + byte] if opcode == Opcode.COPY
                                            else octets[1].view(np.uint8)[byte % 4])
        if unread or at[1] + start + size > there:
            if status == Status.OK:
                end = 0 if unread else 1
                status, index = Status.DECERR, piece
                address = packed_address(end, at[end] + start)
        else:
            entries, moved = entries + 1, moved + size
    got = move_span({"opcode": opcode, "count": count, "value": value,
                     "source": packed_address(0, at[0]), "destination": packed_address(1, at[1])},
                    regions, memory, CONFIG)
    assert (got.status, got.error_index, got.error_address, got.entries, got.bytes) == (
        status, index, address, entries, moved), f"seed {seed}"
    np.testing.assert_array_equal(destination, wanted)
