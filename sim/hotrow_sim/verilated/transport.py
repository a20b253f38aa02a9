"""The transport `sim`: the Verilated accelerator in this process, on the caller's arrays."""

import ctypes
import time
from functools import cache

from hotrow_rtl.config import DEFAULT_PRESET, Config
from hotrow_rtl.config import preset as preset_config
from hotrow_rtl.contract.encoding import QUEUES
from hotrow_rtl.contract.registers import REGISTERS

from ..address_space import AddressSpace, card_memory, check_attachable
from ..memory import Behaviour, Statistics, dram_timing
from ..memory.bare import bare_cycles
from .build import device_library
from .waveform import write_signal_list

FOREVER = (1 << 64) - 1
# A wait simulates FIRST_CYCLES, then twice as many each time up to CYCLES_PER_CALL, some
# milliseconds; Python checks the time-out between calls.
FIRST_CYCLES, CYCLES_PER_CALL = 128, 4096
POLL_INTERVAL = 16  # cycles between two reads of a register while waiting
COMPLETED = [REGISTERS[f"{queue.upper()}_COMPLETED"].offset for queue in QUEUES]


class DeviceFault(RuntimeError):
    """The simulated device does not respond, or is closed."""


def port_names(config: Config):
    """The memory ports of a device, in the order of the harness."""
    rows = (f"{half}{number}" for number in range(config.row_ports)
            for half in ("row_read", "row_write"))
    return ("list", *rows, *(f"result{number}" for number in range(config.result_ports)))


class Device:
    """Transport to the accelerator's RTL, simulated cycle by cycle.

    Its clock advances only while the host accesses a register or waits.

    Parameters
    ----------
    config : Config
    behaviour : Behaviour or dict of str to Behaviour
        Of the memory at every port, or by name of the port (`port_names`).
    trace : str or Path, optional
        File for all signals, `.vcd`; a list of signals for GTKWave is written beside it.
    dram : DramTiming, optional
        Banks and channels, which all ports share.

    Attributes
    ----------
    cycles : int
        Clock cycles simulated since reset.
    """

    name = "sim"
    _device = None

    def __init__(self, config: Config, behaviour, trace=None, dram=None):
        self.config, self.ports = config, port_names(config)
        self._behaviour, self._dram = behaviour, dram
        self._trace = trace
        if trace is not None:
            write_signal_list(trace, config)
        self._library = _load(str(device_library(config, trace is not None)))
        self._space = AddressSpace(config.host_address_width)
        self._arrays = {}
        each = [behaviour[name] if isinstance(behaviour, dict) else behaviour
                for name in self.ports]
        structs = [one._as_struct() for one in each]
        self._device = ctypes.c_void_p(
            self._library.hotrow_open((type(structs[0]) * len(structs))(*structs),
                                      dram and ctypes.byref(dram)))
        self.restart_trace()
        if own := card_memory(config):
            self._map(*own, True)

    def read_register(self, offset):
        """Read the 32-bit register at a byte offset."""
        value = ctypes.c_uint32()
        self._check(self._library.hotrow_read_register(
            self._open(), offset, ctypes.byref(value)), offset)
        return value.value

    def write_register(self, offset, value):
        """Write the 32-bit register at a byte offset."""
        self._check(self._library.hotrow_write_register(self._open(), offset, value), offset)

    def attach(self, array, writable):
        """Make a one-dimensional uint8 array part of the device's memory; return its address."""
        check_attachable(array)
        address = self._space.place(array.ctypes.data, array.size)
        if not self._map(address, array, writable):
            self._space.release(address)
            raise ValueError(f"an array of {array.size} bytes cannot be attached")
        return address

    def _map(self, address, array, writable):
        mapped = self._library.hotrow_map(
            self._open(), address, array.size, array.ctypes.data, writable)
        if mapped:
            self._arrays[address] = array
        return mapped

    def detach(self, address):
        """Remove the array at that device address from the device's memory."""
        self._space.release(address)
        self._library.hotrow_unmap(self._open(), address)
        del self._arrays[address]

    def wait(self, queue, completed, timeout):
        """Run the clock until a queue's COMPLETED differs from `completed`, for at most `timeout`
        seconds."""
        deadline, cycles = time.monotonic() + timeout, FIRST_CYCLES
        while True:
            seen = self._library.hotrow_wait(
                self._open(), COMPLETED[queue], completed, cycles, POLL_INTERVAL)
            self._check(seen, COMPLETED[queue])
            if seen or time.monotonic() >= deadline:
                return
            cycles = min(2 * cycles, CYCLES_PER_CALL)

    def close(self):
        """Free the device and release the arrays."""
        if self._device is not None:
            self._library.hotrow_close(self._device)
            self._device = None
            self._arrays.clear()

    def __del__(self):
        self.close()

    # The following is for tests and benches.

    def run(self, cycles):
        """Run the clock for a number of cycles."""
        self._library.hotrow_run(self._open(), cycles)

    def restart_trace(self):
        """Begin the file of the waveform again, if there is one: it then has only what follows."""
        if self._trace is not None:
            self._library.hotrow_trace(self._open(), str(self._trace).encode())

    def reset(self):
        """Pulse the reset input."""
        self._library.hotrow_reset(self._open())

    @property
    def cycles(self):
        return self._library.hotrow_cycles(self._open())

    @property
    def interrupt(self):
        """Whether the interrupt line is high."""
        return bool(self._library.hotrow_interrupt(self._open()))

    def fail_range(self, port, address, size, response):
        """See `memory.ReadPort.fail_range`; `port` by name."""
        self._library.hotrow_fail_range(self._open(), self._number(port), address, size, response)

    def fail_beat(self, port, index, response):
        """See `memory.ReadPort.fail_beat`; `port` by name."""
        self._library.hotrow_fail_beat(self._open(), self._number(port), index, response)

    def silence(self, port, first, end=FOREVER, accept=False):
        """See `memory.ReadPort.silence`; `port` by name, cycles counted since reset."""
        self._library.hotrow_silence(self._open(), self._number(port), first, end, accept)

    def statistics(self, port):
        """Totals of a port so far, a `memory.Statistics`; `port` by name."""
        found = Statistics()
        self._library.hotrow_statistics(self._open(), self._number(port), ctypes.byref(found))
        return found

    def bare_cycles(self, reads, writes, row_bytes):
        """Cycles of the same memory for the requests of the row ports from a bare master.

        Parameters
        ----------
        reads, writes : list of integers [n]
            Device addresses of the rows that each row port reads, and of those that it writes.
        row_bytes : int
        """
        behaviour = self._behaviour
        if isinstance(behaviour, dict):
            raise ValueError("expected one behaviour for all ports of the device, not one per port")
        return bare_cycles(
            reads, writes, row_bytes, arrays=self._arrays, bus_bytes=self.config.bus_bytes,
            outstanding=self.config.outstanding, dram=self._dram, behaviour=behaviour)

    def violations(self):
        """Violations of the AXI rules by the accelerator, as texts."""
        found = []
        for number, port in enumerate(self.ports):
            index = 0
            while text := self._library.hotrow_violation(self._open(), number, index):
                found.append(f"{port}: {text.decode()}")
                index += 1
        return found

    def _number(self, port):
        if port not in self.ports:
            raise ValueError(f"unknown port {port!r}: expected one of {', '.join(self.ports)}")
        return self.ports.index(port)

    def _open(self):
        if self._device is None:
            raise DeviceFault("the device has been closed")
        return self._device

    def _check(self, response, offset):
        if response < 0:
            raise DeviceFault(f"the device does not respond to the access to register {offset:#x}")


def open_transport(preset=DEFAULT_PRESET, config=None, latency=200, jitter=0, stall=0.0,
                   reorder=False, seed=0, behaviour=None, trace=None, memory="ideal") -> Device:
    """Open a simulated accelerator. The first use builds it, in a minute or more.

    Parameters
    ----------
    preset : str
        Name of a preset of ``hotrow_rtl.config``.
    config : Config, optional
        Replaces the preset.
    latency, jitter : int
        Cycles of the memory, and the maximum of random extra cycles per burst.
    stall : float
        Probability per cycle that a channel of the memory stalls.
    reorder : bool
        Responses of different ids are out of order, and their beats interleaved.
    seed : int
        Of the random numbers.
    behaviour : Behaviour or dict of str to Behaviour, optional
        Replaces the five parameters before it.
    trace : str or Path, optional
        Record all signals to this file, `.vcd`, with a slower variant of the library; a list of
        signals for GTKWave, `.gtkw`, is written beside it.
    memory : str
        "ideal" serves every port at once. "ddr3" and "hbm" model banks and channels that all ports
        share, at the preset's clock; latency and stalls add to their timing.

    Raises
    ------
    ToolMissing
        If Verilator or a C++ compiler is missing.
    ValueError
        If there is no such preset or memory, or a parameter is out of its range.
    """
    config = preset_config(config or preset)
    dram = dram_timing(memory, config.clock_mhz, config.bus_bytes)
    if behaviour is None:
        behaviour = Behaviour(latency=latency, jitter=jitter, stall_address=stall,
                              stall_data=stall, stall_response=stall,
                              out_of_order=reorder or memory == "hbm",  # channels differ
                              interleave=reorder, seed=seed)
    return Device(config, behaviour, trace, dram)


@cache
def _load(path):
    """The library with the types of its functions."""
    library = ctypes.CDLL(path)
    pointer, u64, u32, u8 = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint8
    integer, text = ctypes.c_int, ctypes.c_char_p
    for name, result, arguments in (
        ("open", pointer, (pointer, pointer)),
        ("close", None, (pointer,)),
        ("reset", None, (pointer,)),
        ("map", integer, (pointer, u64, u64, pointer, integer)),
        ("unmap", integer, (pointer, u64)),
        ("read_register", integer, (pointer, u32, pointer)),
        ("write_register", integer, (pointer, u32, u32)),
        ("wait", integer, (pointer, u32, u32, u64, u32)),
        ("run", None, (pointer, u64)),
        ("cycles", u64, (pointer,)),
        ("interrupt", integer, (pointer,)),
        ("trace", integer, (pointer, text)),
        ("fail_range", None, (pointer, integer, u64, u64, u8)),
        ("fail_beat", None, (pointer, integer, u64, u8)),
        ("silence", None, (pointer, integer, u64, u64, integer)),
        ("statistics", None, (pointer, integer, pointer)),
        ("violation", text, (pointer, integer, u32)),
    ):
        function = getattr(library, f"hotrow_{name}")
        function.restype, function.argtypes = result, arguments
    return library
