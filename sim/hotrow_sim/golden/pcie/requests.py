"""Golden model of the bridge's memory requests.

Source: PCI Express Base Specification, sections 2.2.5, 2.2.7 and 2.3.1.
"""

from dataclasses import dataclass

import numpy as np

DWORD, PAGE, LARGEST = 4, 4096, 512  # bytes


@dataclass(frozen=True)
class MemoryWrite:
    """A posted write of whole double words, with byte enables for the first and the last one."""

    address: int
    payload: bytes
    first_strobes: int
    last_strobes: int


def write_requests(address, octets, strobes, bus_bytes, max_payload):
    """The writes of a burst.

    Parameters
    ----------
    address : int
        Of the first bus word.
    octets : bytes
        Whole bus words.
    strobes : bool[n]
        Bytes that are written.
    bus_bytes : int
    max_payload : int
        Bytes, a power of two.

    Returns
    -------
    list of MemoryWrite
    """
    limit, runs = min(max_payload, LARGEST), []
    strobes = np.asarray(strobes, bool)

    def add(first, end, alone):
        """Bytes [first, end); a run joins the one before, unless either is alone."""
        if runs and not alone and not runs[-1][2] and runs[-1][1] == first \
                and (address + first) % limit:
            runs[-1] = (runs[-1][0], end, False)
        else:
            runs.append((first, end, alone))

    for word in range(0, len(octets), bus_bytes):
        places = np.flatnonzero(strobes[word:word + bus_bytes])
        if len(places) and places[-1] - places[0] + 1 == len(places):
            add(word + int(places[0]), word + int(places[-1]) + 1, False)
        else:  # a gap: a request for each double word
            for at in range(word, word + bus_bytes, DWORD):
                if strobes[at:at + DWORD].any():
                    add(at, at + DWORD, True)
    return [_write(address, octets, strobes, first, end) for first, end, _ in runs]


def _write(address, octets, strobes, first, end):
    first -= first % DWORD
    end += -end % DWORD
    bits = [sum(int(bit) << place for place, bit in enumerate(strobes[at:at + DWORD]))
            for at in (first, end - DWORD)]
    if end - first > DWORD:  # the neighbours' bytes in these double words belong to other runs
        bits = [_from_top(bits[0]), _from_bottom(bits[1])]
    return MemoryWrite(address + first, octets[first:end], bits[0],
                       bits[1] if end - first > DWORD else 0)


def _from_top(bits):
    """The upper bits that are set without a gap."""
    return next(mask for mask in (0xF, 0xE, 0xC, 0x8) if bits & mask == mask)


def _from_bottom(bits):
    return next(mask for mask in (0xF, 0x7, 0x3, 0x1) if bits & mask == mask)
