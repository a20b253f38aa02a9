"""The ceiling of a memory: the requests of a command from a master that does nothing else."""

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
    """`size` bytes from each address, in bursts of whole bus words that cross no page.

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
    """Lists of bursts as the C interface takes them.

    Parameters
    ----------
    sides : sequence of (list of integers [n])
        Byte addresses of each port's rows, those that are read and those that are written.
    size, bus_bytes : int
        See `bursts`.

    Returns
    -------
    (list of ctypes array, list)
        One array per side, an entry per port; and what must live as long as they are used.
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
                behaviour=None):
    """Cycles from the first request to the last answer.

    Parameters
    ----------
    reads, writes : list of integers [n]
        Byte addresses of each port's rows. Its nth write is asked for once n reads have ended.
    size : int
        Bytes of each row.
    arrays : dict of int to numpy.ndarray
        Memory by device address; nothing is written to it.
    bus_bytes, outstanding : int
        Outstanding bursts per port and direction.
    dram : DramTiming, optional
    behaviour : Behaviour, optional
        Of every port; ideal by default.

    Returns
    -------
    int
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
