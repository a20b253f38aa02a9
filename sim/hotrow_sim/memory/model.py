"""Python binding of the memory model, with latency, stalls, reordering and faults.

``memory_model.hpp`` describes the behaviour, and when to tick a port.
"""

import ctypes
import weakref
from dataclasses import dataclass

import numpy as np
from hotrow_rtl.memory.axi import DECERR, SLVERR

from .dram import DramStatistics
from .library import load

ADDRESS_SPACE = 1 << 64
FOREVER = ADDRESS_SPACE - 1


class _Behaviour(ctypes.Structure):
    _fields_ = [
        ("latency", ctypes.c_uint32), ("jitter", ctypes.c_uint32),
        ("outstanding", ctypes.c_uint32),
        ("out_of_order", ctypes.c_uint8), ("interleave", ctypes.c_uint8),
        ("stall_address", ctypes.c_double), ("stall_data", ctypes.c_double),
        ("stall_response", ctypes.c_double), ("seed", ctypes.c_uint64),
    ]


class ReadInputs(ctypes.Structure):
    """Outputs of a master on AR and R; `struct ReadInputs` of read_port.hpp."""

    _fields_ = [("araddr", ctypes.c_uint64), ("arid", ctypes.c_uint32)] + [
        (name, ctypes.c_uint8) for name in ("arvalid", "arlen", "arsize", "arburst", "rready")]


class ReadOutputs(ctypes.Structure):
    """Outputs of the memory on AR and R."""

    _fields_ = [("rid", ctypes.c_uint32)] + [
        (name, ctypes.c_uint8) for name in ("arready", "rvalid", "rlast", "rresp")
    ] + [("rdata", ctypes.c_uint8 * 64)]


class WriteInputs(ctypes.Structure):
    """Outputs of a master on AW, W and B; `struct WriteInputs` of write_port.hpp."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("awaddr", "wstrb")] + [
        ("awid", ctypes.c_uint32)] + [
        (name, ctypes.c_uint8)
        for name in ("awvalid", "awlen", "awsize", "awburst", "wvalid", "wlast", "bready")
    ] + [("wdata", ctypes.c_uint8 * 64)]


class WriteOutputs(ctypes.Structure):
    """Outputs of the memory on AW, W and B."""

    _fields_ = [("bid", ctypes.c_uint32)] + [
        (name, ctypes.c_uint8) for name in ("awready", "wready", "bvalid", "bresp")]


class Statistics(ctypes.Structure):
    """Totals of a port: `cycles` ticked, `bursts` (address handshakes), `beats` (data handshakes),
    `worst_outstanding` bursts, cycles of `first_request` and `last_beat`."""

    _fields_ = [(name, ctypes.c_uint64) for name in (
        "cycles", "bursts", "beats", "worst_outstanding", "first_request", "last_beat")]


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """Behaviour of a port of the memory; the default is one cycle, without stalls, in order.

    Parameters
    ----------
    latency : int
        Cycles from the address handshake (of a write: the last data beat) to the response.
    jitter : int
        Maximum of random extra cycles per burst.
    outstanding : int
        Bursts in flight; 0 means any number.
    out_of_order : bool
        Any id that is due may respond next; bursts of one id stay in order.
    interleave : bool
        With `out_of_order`: beats of read bursts of different ids alternate at random.
    stall_address, stall_data, stall_response : float
        Probability per cycle that AR or AW is not ready; that R is not valid or W not ready; that B
        is not valid.
    seed : int
    """

    latency: int = 1
    jitter: int = 0
    outstanding: int = 0
    out_of_order: bool = False
    interleave: bool = False
    stall_address: float = 0.0
    stall_data: float = 0.0
    stall_response: float = 0.0
    seed: int = 0

    def __post_init__(self):
        for name, least in (("latency", 1), ("jitter", 0), ("outstanding", 0), ("seed", 0)):
            if not least <= getattr(self, name) < 1 << 32:
                raise ValueError(f"{name} must be {least} to 2**32 - 1, "
                                 f"not {getattr(self, name)}")
        for name in ("stall_address", "stall_data", "stall_response"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 0 and below 1, "
                                 f"not {getattr(self, name)}")

    def _as_struct(self):
        return _Behaviour(**{name: getattr(self, name) for name, _ in _Behaviour._fields_})


class _Port:
    """Set `inputs`, call `tick()`, use `outputs`: once per clock cycle."""

    def __init__(self, model, bus_bytes, behaviour):
        if bus_bytes not in (8, 16, 32, 64):
            raise ValueError(f"bus_bytes must be 8, 16, 32 or 64, not {bus_bytes}")
        self.bus_bytes, self.behaviour = bus_bytes, behaviour
        self.inputs, self.outputs = self._Inputs(), self._Outputs()
        self._model = model  # keeps the map of the port alive
        self._handle = ctypes.c_void_p(
            self._call("create", model._map, bus_bytes, ctypes.byref(behaviour._as_struct())))
        weakref.finalize(self, getattr(load(), f"hotrow_{self._kind}_free"), self._handle)
        self._tick = getattr(load(), f"hotrow_{self._kind}_tick")
        self._arguments = (self._handle, ctypes.byref(self.inputs), ctypes.byref(self.outputs))
        self.reset()

    def _call(self, name, *arguments):
        return getattr(load(), f"hotrow_{self._kind}_{name}")(*arguments)

    def tick(self):
        """One clock cycle: `inputs` sampled before the edge; returns the `outputs` after it."""
        self._tick(*self._arguments)
        return self.outputs

    def reset(self):
        """Drop all bursts in flight, as for a reset of the device."""
        self._call("reset", self._handle, ctypes.byref(self.outputs))

    def fail_range(self, address, size, response=SLVERR):
        """Beats that touch `size` bytes at `address` respond `response` without effect."""
        self._call("fail_range", self._handle, address, size, response)

    def fail_beat(self, index, response=SLVERR):
        """Data beat number `index` of the port, in the order of requests, responds `response`."""
        self._call("fail_beat", self._handle, index, response)

    def silence(self, first, end=FOREVER, accept=False):
        """Send no response in cycles `first` to `end` - 1; accept no request unless `accept`."""
        self._call("silence", self._handle, first, end, accept)

    @property
    def idle(self) -> bool:
        """Whether nothing is in flight."""
        return bool(self._call("idle", self._handle))

    @property
    def statistics(self) -> Statistics:
        statistics = Statistics()
        self._call("statistics", self._handle, ctypes.byref(statistics))
        return statistics

    @property
    def violations(self) -> list[str]:
        """Violations of the AXI rules by the master, in order; at most the first 100."""
        found = []
        while (text := self._call("violation", self._handle, len(found))) is not None:
            found.append(text.decode())
        return found


class ReadPort(_Port):
    """AR and R of the memory, see `MemoryModel.read_port`."""

    _kind, _Inputs, _Outputs = "read", ReadInputs, ReadOutputs


class WritePort(_Port):
    """AW, W and B of the memory, see `MemoryModel.write_port`."""

    _kind, _Inputs, _Outputs = "write", WriteInputs, WriteOutputs


class MemoryModel:
    """NumPy arrays at device addresses, and AXI4 ports that access them.

    Parameters
    ----------
    dram : DramTiming, optional
        Banks and channels, which the ports share; the ports then tick in lockstep, and their
        behaviours add to its timing. Without it every port is served at once.
    """

    def __init__(self, dram=None):
        self._dram = dram  # None: ideal
        self._map = ctypes.c_void_p(load().hotrow_map_create(
            None if dram is None else ctypes.byref(dram)))
        weakref.finalize(self, load().hotrow_map_free, self._map)
        self._arrays = {}
        self._ports = []

    def map(self, array, address, writable=True):
        """Map the bytes of a C-contiguous array at `address`, without a copy.

        Raises
        ------
        ValueError
            If the array is empty, not contiguous, read-only with `writable`, or overlaps a mapped
            array.
        """
        if not isinstance(array, np.ndarray) or not array.flags.c_contiguous or not array.nbytes:
            raise ValueError("expected a C-contiguous NumPy array with at least one byte")
        if writable and not array.flags.writeable:
            raise ValueError("the array is read-only: map it with writable=False")
        if not 0 <= address <= ADDRESS_SPACE - array.nbytes:
            raise ValueError(f"{array.nbytes} bytes at {address:#x} leave the 64-bit address space")
        if not load().hotrow_map_add(self._map, address, array.nbytes, array.ctypes.data, writable):
            raise ValueError(f"{array.nbytes} bytes at {address:#x} overlap an array that is "
                             f"mapped at one of {', '.join(map(hex, sorted(self._arrays)))}")
        self._arrays[address] = array

    def unmap(self, address):
        """Unmap the array at `address`.

        Raises
        ------
        ValueError
            If no array is mapped there.
        """
        if address not in self._arrays:
            raise ValueError(f"no array is mapped at {address:#x}")
        load().hotrow_map_remove(self._map, address)
        del self._arrays[address]

    def read_port(self, bus_bytes, behaviour=Behaviour()) -> ReadPort:
        return self._add(ReadPort(self, bus_bytes, behaviour))

    def write_port(self, bus_bytes, behaviour=Behaviour()) -> WritePort:
        return self._add(WritePort(self, bus_bytes, behaviour))

    def _add(self, port):
        self._ports.append(port)
        return port

    @property
    def dram_statistics(self) -> DramStatistics:
        """Totals of the DRAM so far.

        Raises
        ------
        ValueError
            Without DRAM.
        """
        if self._dram is None:
            raise ValueError("this memory is ideal: give the model a DramTiming")
        found = DramStatistics()
        load().hotrow_map_dram(self._map, ctypes.byref(found))
        return found

    def check(self):
        """Fail if a port saw a violation of the AXI rules or is not idle.

        Raises
        ------
        AssertionError
        """
        for number, port in enumerate(self._ports):
            assert not port.violations, f"port {number}: " + "; ".join(port.violations)
            assert port.idle, f"port {number}: something is still in flight"


__all__ = ["DECERR", "SLVERR", "Behaviour", "MemoryModel", "ReadPort", "Statistics", "WritePort"]
