"""Cycles of reads and writes over PCI Express, with a link and masters that never stall."""

from hotrow_rtl.pcie.layouts import DWORD, TAGS

REQUESTED = 3  # from the address to the first beat of its request
RETURNED = 4  # from the last beat of the completion to the first word
WRITTEN = 4  # from the last word of a segment to the first beat of its packet
HEADER = 3  # double words of a completion
REUSED = 6  # from the last word of a chunk to the next request with its tag


def packet_beats(payload, bus_bytes, header=HEADER) -> int:
    """Beats of a packet with `payload` bytes."""
    return -(-(DWORD * header + payload) // bus_bytes)


def read_cycles(size, bus_bytes, latency, long=False) -> int:
    """From the address of a burst to its last word, if one request and one completion suffice.

    Parameters
    ----------
    size : int
        Bytes.
    bus_bytes : int
    latency : int
        From the last beat of the request to the first beat of the completion.
    long : bool
        The address has more than 32 bits.
    """
    return (REQUESTED + packet_beats(0, bus_bytes, HEADER + long) - 1 + latency
            + packet_beats(size, bus_bytes) - 1 + RETURNED + size // bus_bytes - 1)


def cycles_per_read(size, bus_bytes, latency, link_bytes=None) -> float:
    """Cycles between reads of `size` bytes in the steady state, at most 512 bytes.

    Parameters
    ----------
    size, bus_bytes, latency : int
        As for `read_cycles`.
    link_bytes : float, optional
        Bytes a cycle that the link carries, which adds 8 bytes to each packet.
    """
    link = (DWORD * HEADER + size + 8) / link_bytes if link_bytes else 0
    trip = read_cycles(size, bus_bytes, latency) + REUSED
    return max(link, packet_beats(size, bus_bytes), size // bus_bytes, trip / TAGS)


def write_cycles(size, bus_bytes, long=False) -> int:
    """From the last word of a segment of `size` bytes to its answer."""
    return WRITTEN + packet_beats(size, bus_bytes, HEADER + long) - 1
