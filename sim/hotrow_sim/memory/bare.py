"""The upper bound of a memory: the requests of a command from a bare master."""

import ctypes

import numpy as np

from .library import load
from .model import Behaviour, MemoryModel

PAGE = 4096  # bytes; no burst crosses one
LIMIT = 1 << 40  # cycles


class _Bursts(ctypes.Structure):
    _fields_ = [("address", ctypes.c_void_p), ("beats", ctypes.c_void_p),
                ("count", ctypes.c_uint64)]


def bursts(addresses, size, bus_bytes):
    """Bursts of whole bus words, within pages, for `size` bytes at each address.

    Parameters
    ----------
    addresses : integers [n]
    size : int
        At most a page.

    Returns
    -------
    (uint64[m], uint32[m])
        Address and beats of each burst, in order.
    """
    first = np.asarray(addresses, np.uint64)
    last = first + np.uint64(size - 1)
    crosses = first // PAGE != last // PAGE
    count = 1 + crosses
    start, second = np.repeat(first, count), np.zeros(int(count.sum()), bool)
    second[np.cumsum(count)[crosses] - 1] = True
    end = np.repeat(last, count)
    page = end // PAGE * PAGE
    start = np.where(second, page, start) // bus_bytes * bus_bytes
    cut = np.repeat(crosses, count) & ~second
    end = np.where(cut, page - np.uint64(1), end)
    return start.astype(np.uint64), ((end - start) // bus_bytes + 1).astype(np.uint32)


def bursts_of_ports(sides, size, bus_bytes):
    """Lists of bursts for the C interface.

    Parameters
    ----------
    sides : sequence of (list of integers [n])
        Byte addresses of the rows that each port reads, and of those that it writes.
    size, bus_bytes : int
        See `bursts`.

    Returns
    -------
    (list of ctypes array, list)
        An array per side with an entry per port; the arrays that must outlive them.
    """
    lists, kept = [], []
    for side in sides:
        made = [bursts(addresses, size, bus_bytes) for addresses in side]
        kept += made
        lists.append((_Bursts * len(made))(*(
            _Bursts(address.ctypes.data, beats.ctypes.data, len(beats))
            for address, beats in made)))
    return lists, kept


def bare_cycles(reads, writes, size, *, arrays, bus_bytes, outstanding, dram=None,
                behaviour=None) -> int:
    """Cycles from the first request to the last response.

    Parameters
    ----------
    reads, writes : list of integers [n]
        Byte addresses of each port's rows. A port requests its nth write once n reads have ended.
    size : int
        Bytes of each row.
    arrays : dict of int to numpy.ndarray
        Memory by device address; stays unchanged.
    bus_bytes, outstanding : int
        `outstanding`: bursts in flight per port and direction.
    dram : DramTiming, optional
    behaviour : Behaviour, optional
        Of every port; ideal by default.
    """
    model, behaviour = MemoryModel(dram), behaviour or Behaviour()
    for address, array in arrays.items():
        model.map(array, address, array.flags.writeable)
    count = len(reads)
    ports = [[make(bus_bytes, behaviour) for make in (model.read_port, model.write_port)]
             for _ in range(count)]
    lists, _kept = bursts_of_ports((reads, writes), size, bus_bytes)
    cycles = load().hotrow_bare(
        *((ctypes.c_void_p * count)(*(each._handle for each in side))
          for side in zip(*ports, strict=True)),
        count, *lists, outstanding, LIMIT)
    model.check()
    return cycles
