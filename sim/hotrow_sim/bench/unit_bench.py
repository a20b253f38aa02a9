"""A unit under cocotb, with a driver at each of its streams and a memory at its AXI4 ports."""

import json
import os
from pathlib import Path
from typing import Any

from amaranth.lib import stream
from amaranth.lib.wiring import In
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge
from hotrow_rtl.memory.axi import AXI4, AXI4Read, AXI4Write
from hotrow_rtl.units.catalog import unit

from . import timing
from .host_arrays import HostArrays
from .streams import StreamSink, StreamSource

HALVES = {AXI4Read: "r", AXI4Write: "w", AXI4: "rw"}


class UnitBench:
    """The unit of a bench that `simulate_unit` runs; made by `start`.

    Attributes
    ----------
    config : Config
        With the parameters of the unit.
    NAME : StreamSource, StreamSink or AxiMemory
        For each stream and each AXI4 master of the unit, by its name.
    memory : HostArrays
        Of all AXI4 masters: `memory.map(array, address)` puts a uint8 array at an address.
    """

    def __init__(self, dut: Any, described: dict[str, Any], *, idle: float, stall: float,
                 seed: int | str):
        self.dut, known = dut, unit(described["unit"])
        self.config = known.config(described["parameters"])
        self.component = known.make(self.config)
        self.memory, self._named = HostArrays(), {}
        self._sources, self._sinks, self._ports = [], [], []
        for name, member in self.component.signature.members.items():
            interface = None if member.is_port else member.signature
            if isinstance(interface, stream.Signature):
                shape = interface.members["payload"].shape
                if member.flow is In:
                    made = StreamSource(dut, name, shape, idle=idle, seed=seed)
                    self._sources.append(made)
                else:
                    made = StreamSink(dut, name, shape, stall=stall, seed=seed)
                    self._sinks.append(made)
            elif half := HALVES.get(type(interface)):
                from .memory import AxiMemory  # needs cocotbext-axi

                made = AxiMemory(dut, name, half, self.memory, interface.bus_bytes, stall=stall,
                                 seed=seed)
                self._ports.append(made)
            else:
                self._quiet(name)
                continue
            self._named[name] = made

    def __getattr__(self, name: str) -> Any:
        named = self.__dict__.get("_named", {})
        if name not in named:
            raise AttributeError(f"the unit has no stream or memory {name!r}: expected one of "
                                 f"{', '.join(named)}")
        return named[name]

    def _quiet(self, name):
        """Drive other inputs with 0."""
        for path, leaf, _ in self.component.signature.flatten(self.component):
            if path[0] == name and leaf.flow is In:
                getattr(self.dut, "_".join(map(str, path))).value = 0

    @classmethod
    async def start(cls, dut: Any, *, idle: float = 0.0, stall: float = 0.0,
                    seed: int | str = 0) -> "UnitBench":
        """Start the clock, reset the unit and wait until it is ready.

        Parameters
        ----------
        dut : simulator handle
        idle : float
            Share of the cycles in which an input stream offers nothing.
        stall : float
            Share of the cycles in which an output stream is not accepted, and each channel of a
            memory stalls.
        seed : int or str
        """
        described = json.loads(Path(os.environ["HOTROW_UNIT"]).read_text())
        bench = cls(dut, described, idle=idle, stall=stall, seed=seed)
        Clock(dut.clk, 10, unit="ns").start()
        timing.start(dut, described)
        dut.rst.value = 1
        for _ in range(4):
            await RisingEdge(dut.clk)
        dut.rst.value = 0
        await bench.ready()
        return bench

    async def ready(self) -> None:
        """Wait until the unit is ready, as after its memories are cleared."""
        await RisingEdge(self.dut.clk)
        while hasattr(self.component, "ready") and not int(self.dut.ready.value):
            await RisingEdge(self.dut.clk)

    async def restart(self, wait: bool = True) -> None:
        """Restart the unit, or reset it if it has no restart; forget what its streams have not
        transferred, and wait until it is ready.

        Parameters
        ----------
        wait : bool
            Otherwise return at once, while its ports may drain: the unit accepts nothing yet.
        """
        pin = self.dut.restart if hasattr(self.component, "restart") else self.dut.rst
        pin.value = 1
        for each in (*self._sources, *self._sinks):
            each.drop()
        for sink in self._sinks:
            sink.ignores = True
        await RisingEdge(self.dut.clk)
        pin.value = 0
        await RisingEdge(self.dut.clk)
        for sink in self._sinks:
            sink.ignores = False
        if wait:
            await self.ready()

    def finish(self) -> None:
        """Check that every payload of an output stream was taken, that every AXI4 master has obeyed
        the rules, and that nothing is in flight.

        Raises
        ------
        AssertionError
        """
        for sink in self._sinks:
            assert not sink.received, f"{sink.name}: {len(sink.received)} more than expected"
        for port in self._ports:
            assert not port.rules.broken, f"{port.name}: {port.rules.broken[:5]}"
            assert port.rules.idle, f"{port.name}: a burst was not answered"
