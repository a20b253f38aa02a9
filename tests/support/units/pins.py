"""A Verilated component whose ports a test drives and samples in every cycle."""

import ctypes
from functools import cache
from pathlib import Path

import numpy as np
from amaranth import Module, Value
from amaranth.hdl import Const
from amaranth.lib import wiring
from amaranth.lib.wiring import Flow, In, Out
from hotrow_rtl.emit.component import to_verilog
from hotrow_sim.verilated.compilation import model_library

HARNESS = Path(__file__).with_name("pins.cpp")
WORDS = 128  # of 32 bits: all inputs, and all outputs


class FlatPins(wiring.Component):
    """All ports of a component in two vectors, each port from a multiple of 32 bits on.

    Attributes
    ----------
    places : dict of str to (int, int)
        First word and bits of each port, by its name: the path joined by `_`.
    """

    def __init__(self, unit):
        self.unit, self.places, self._ports = unit, {}, []
        used = {Flow.In: 0, Flow.Out: 0}
        for path, member, value in unit.signature.flatten(unit):
            signal = Value.cast(value)
            if isinstance(signal, Const):
                continue
            name = "_".join(map(str, path))
            self.places[name] = used[member.flow], len(signal)
            self._ports.append((member.flow, used[member.flow], signal))
            used[member.flow] += -(-len(signal) // 32)
        if max(used.values()) > WORDS:
            raise ValueError(f"the ports need {max(used.values())} words, more than {WORDS}")
        super().__init__({"inputs": In(32 * WORDS), "outputs": Out(32 * WORDS)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.unit = self.unit
        for flow, word, signal in self._ports:
            place = slice(32 * word, 32 * word + len(signal))
            m.d.comb += (signal.eq(self.inputs[place]) if flow is Flow.In
                         else self.outputs[place].eq(signal))
        return m


class PinnedUnit:
    """Drive inputs with `set`, run a cycle with `step`, then sample its outputs with `get`.

    Parameters
    ----------
    make : callable
        Returns the component for `arguments`; it is built once for equal ones.

    Raises
    ------
    ToolMissing, CompilerError, BuildError
    """

    def __init__(self, make, *arguments):
        self.places, self._library = _load(make, *arguments)
        self._handle = ctypes.c_void_p(self._library.hotrow_pins_open())
        self._inputs, self._outputs = np.zeros(WORDS, np.uint32), np.zeros(WORDS, np.uint32)
        self._given, self._found = memoryview(self._inputs), memoryview(self._outputs)
        self._pointers = (self._inputs.ctypes.data_as(ctypes.c_void_p),
                          self._outputs.ctypes.data_as(ctypes.c_void_p))

    def __del__(self):
        if hasattr(self, "_handle"):
            self._library.hotrow_pins_close(self._handle)

    def set(self, name, value):
        """Drive an input."""
        word, bits = self.places[name]
        self._given[word] = value & 0xFFFFFFFF
        if bits > 32:
            for step in range(1, -(-bits // 32)):
                self._given[word + step] = value >> 32 * step & 0xFFFFFFFF

    def get(self, name) -> int:
        """An output in the cycle of the last `step`."""
        word, bits = self.places[name]
        value = self._found[word]
        if bits > 32:
            for step in range(1, -(-bits // 32)):
                value |= self._found[word + step] << 32 * step
        return value

    def step(self, reset=0):
        """Run a cycle."""
        self._library.hotrow_pins_step(self._handle, reset, *self._pointers)


@cache
def _load(make, *arguments):
    """The places of the ports, and the library."""
    flat = FlatPins(make(*arguments))
    library = ctypes.CDLL(str(model_library(
        "pins", "pins", to_verilog(flat, "pins"), HARNESS)))
    library.hotrow_pins_open.restype = ctypes.c_void_p
    return flat.places, library
