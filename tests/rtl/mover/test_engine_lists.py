"""The row mover with its lists behind the list port, as in the whole card."""

from dataclasses import replace

import numpy as np
import pytest
from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import connect, flipped
from hotrow_rtl.config import preset
from hotrow_rtl.contract.encoding import packed_address
from hotrow_rtl.memory.read_port import DmaReadPort
from hotrow_rtl.mover.engine import RowMover
from hotrow_rtl.top import list_clients, shallow_lists
from hotrow_sim.golden.region_check import Table
from hotrow_sim.memory import Behaviour

from tests.support.axi_responders import read_responder
from tests.support.benches.row_bench import LISTED, SOURCE_LIST, TABLES, Gather, RowBench, compare

LISTS = {"rows": "rows", "targets": "targets", "lengths": "bag lengths", "weights": "row weights"}
LONG_TARGETS = SOURCE_LIST + 0x10000


class Mover(wiring.Component):
    """A row mover, and a list port whose other clients are idle."""

    rows = targets = lengths = weights = None  # inside

    def __init__(self, config):
        self.clients = list_clients(config)
        self.port = DmaReadPort(config, len(self.clients), shallow={
            self.clients.index(name): depth for name, depth in shallow_lists(config).items()})
        self.mover = RowMover(config)
        members = {name: member for name, member in self.mover.signature.members.items()
                   if name not in LISTS}
        super().__init__(members | {"list_bus": self.port.signature.members["bus"]})

    def elaborate(self, platform):
        m = Module()
        m.submodules.port, m.submodules.mover = self.port, self.mover
        for name, member in self.mover.signature.members.items():
            if name in LISTS:
                connect(m, mover=getattr(self.mover, name),
                        port=self.port.clients[self.clients.index(LISTS[name])])
            elif member.is_port:
                inner, outer = getattr(self.mover, name), getattr(self, name)
                into = member.flow is wiring.In
                m.d.comb += inner.eq(outer) if into else outer.eq(inner)
            elif member.dimensions:
                for outer, inner in zip(
                        getattr(self, name), getattr(self.mover, name), strict=True):
                    connect(m, flipped(outer), inner)
            else:
                connect(m, flipped(getattr(self, name)), getattr(self.mover, name))  # either way
        connect(m, flipped(self.list_bus), self.port.bus)
        return m


class LongGather(Gather):
    """Its lists are longer than those of others."""

    def payload(self):
        return super().payload() | {"targets": LONG_TARGETS}


class Bench(RowBench):
    """Lists come over a bus of their own, from memory of the same latency."""

    make = Mover

    def __init__(self, config, behaviour, command):
        super().__init__(config, behaviour, behaviour)
        for address, elements in ((SOURCE_LIST, command.entries), (LONG_TARGETS, command.targets)):
            self.model.map(np.frombuffer(elements.tobytes(), np.uint8), address, writable=False)
        port = self.model.read_port(config.bus_bytes, behaviour)
        self.bench.background(read_responder(self.dut.list_bus, port))

    def _lists(self, *_):
        async def nothing(ctx):
            return
        return nothing


@pytest.mark.slow
@pytest.mark.parametrize("latency, outstanding", [
    (200, 512), *(pytest.param(latency, 1024, marks=pytest.mark.long) for latency in (200, 512))])
def test_lists_cost_no_bubbles(monkeypatch, latency, outstanding):
    """64-byte rows on a 64-byte bus, as many as are outstanding: a row and a slot per cycle."""
    config = replace(preset("tiny"), tables=16, handles=8, counter_sets=256, directory_sets=256,
                     miss_entries=1024, bus_bytes=64, outstanding=outstanding, row_ports=1,
                     arithmetic=0)
    monkeypatch.setitem(TABLES, 0, Table(63, packed_address(0, 0xBF0), 64, 64))
    command = LongGather(1, [0], outstanding * 7 // 8, LISTED, stride=64, rows=63,
                         destination=packed_address(1, 0xFF0))
    command.targets %= 64
    bench = Bench(config, Behaviour(latency=latency), command)
    compare(bench, [command])
    read = bench.read.statistics
    assert read.last_beat - read.first_request == latency + read.beats - 1
