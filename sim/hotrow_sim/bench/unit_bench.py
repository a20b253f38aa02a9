"""A unit under cocotb, with a driver at each of its streams."""

import json
import os
from pathlib import Path

from amaranth.lib import stream
from amaranth.lib.wiring import In
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge
from hotrow_rtl.units.catalog import unit

from .streams import StreamSink, StreamSource


class UnitBench:
    """The unit of a bench that `simulate` runs; made by `start`.

    Attributes
    ----------
    config : Config
        With the parameters of the unit.
    NAME : StreamSource or StreamSink
        For each stream of the unit, by its name.
    """

    def __init__(self, dut, described, *, idle, stall, seed):
        self.dut, known = dut, unit(described["unit"])
        self.config = known.config(described["parameters"])
        self.component = known.make(self.config)
        self._streams = []
        for name, member in self.component.signature.members.items():
            if not member.is_port and isinstance(member.signature, stream.Signature):
                shape = member.signature.members["payload"].shape
                made = (StreamSource(dut, name, shape, idle=idle, seed=seed)
                        if member.flow is In else
                        StreamSink(dut, name, shape, stall=stall, seed=seed))
                setattr(self, name, made)
                self._streams.append(made)
            elif member.is_port and member.flow is In:
                getattr(dut, name).value = 0

    @classmethod
    async def start(cls, dut, *, idle=0.0, stall=0.0, seed=0):
        """Start the clock, reset the unit and wait until it is ready.

        Parameters
        ----------
        dut : simulator handle
        idle : float
            Share of the cycles in which an input stream offers nothing.
        stall : float
            Share of the cycles in which an output stream is not accepted.
        seed : int or str
        """
        bench = cls(dut, json.loads(Path(os.environ["HOTROW_UNIT"]).read_text()),
                    idle=idle, stall=stall, seed=seed)
        Clock(dut.clk, 10, unit="ns").start()
        dut.rst.value = 1
        for _ in range(4):
            await RisingEdge(dut.clk)
        dut.rst.value = 0
        await bench.ready()
        return bench

    async def ready(self):
        """Wait until the unit has cleared its memories."""
        await RisingEdge(self.dut.clk)
        while hasattr(self.component, "ready") and not int(self.dut.ready.value):
            await RisingEdge(self.dut.clk)

    async def restart(self):
        """Restart the unit, and forget what its streams have not transferred."""
        sinks = [each for each in self._streams if isinstance(each, StreamSink)]
        self.dut.restart.value = 1
        for each in self._streams:
            each.drop()
        for sink in sinks:
            sink.ignores = True
        await RisingEdge(self.dut.clk)
        self.dut.restart.value = 0
        await RisingEdge(self.dut.clk)
        for sink in sinks:
            sink.ignores = False

    def finish(self):
        """Check that every payload of an output stream was taken.

        Raises
        ------
        AssertionError
        """
        for each in self._streams:
            if isinstance(each, StreamSink):
                assert not each.received, f"{each.name}: {len(each.received)} more than expected"
