"""AXI4 memories of cocotbext-axi at a unit's masters, with a checker of the rules on each."""

from random import Random
from typing import Any

import cocotb
from cocotb.triggers import FallingEdge
from cocotbext.axi import (
    AxiBus,
    AxiRam,
    AxiRamRead,
    AxiRamWrite,
    AxiReadBus,
    AxiWriteBus,
)

from .axi_rules import READ, WRITE, AxiRules
from .host_arrays import HostArrays

_KINDS = {"r": (AxiRamRead, AxiReadBus, READ, ("ar", "r")),
          "w": (AxiRamWrite, AxiWriteBus, WRITE, ("aw", "w", "b")),
          "rw": (AxiRam, AxiBus, READ + WRITE, ("ar", "r", "aw", "w", "b"))}


class AxiMemory:
    """A memory at an AXI4 master, or at one half of it.

    Parameters
    ----------
    dut : simulator handle
    name : str
        Prefix of the signals, as "m_axi_list".
    half : str
        "r" for reads, "w" for writes, "rw" for both.
    memory : HostArrays
        Addresses without an array answer SLVERR.
    bus_bytes : int
    stall : float
        Share of the cycles in which each channel stalls.
    seed : int or str

    Attributes
    ----------
    rules : AxiRules
        What the master has broken.
    """

    def __init__(self, dut: Any, name: str, half: str, memory: HostArrays, bus_bytes: int, *,
                 stall: float = 0.0, seed: int | str = 0):
        kind, bus, channels, names = _KINDS[half]
        self.name, self.rules = f"{name} {half}", AxiRules(channels, bus_bytes)
        ram = kind(bus.from_prefix(dut, name), dut.clk, dut.rst, mem=memory)
        halves = (ram.read_if, ram.write_if) if half == "rw" else (ram,)
        for each in halves:
            each.log.disabled = True
        self._channels = {each: getattr(halves[each in ("aw", "w", "b") and half == "rw"],
                                        f"{each}_channel") for each in names}
        for each, channel in self._channels.items():
            if stall:
                rng = Random(f"{name} {each} {seed}")
                channel.set_pause_generator(rng.random() < stall for _ in iter(int, 1))
        self._pins = {pin: getattr(dut, f"{name}_{pin}") for pin in self.rules.pins}
        cocotb.start_soon(self._check(dut))

    def silence(self, silent: bool = True) -> None:
        """Answer nothing from now on, or answer again."""
        for channel in self._channels.values():
            channel.set_pause_generator(None)
            channel.pause = silent

    async def _check(self, dut):
        def value(pin):
            found = self._pins[pin].value
            if found.is_resolvable:
                return int(found)
            return str(found) if pin.endswith("data") else None  # lanes without strobes

        while True:
            await FallingEdge(dut.clk)
            self.rules.cycle(value, bool(int(dut.rst.value)))
