"""Bursts to the card's DRAM before and after its bring-up, and where that failed."""

import numpy as np
import pytest
from hotrow_boards.dram import memory as dram_memory
from hotrow_boards.dram.levelling import Levelling
from hotrow_boards.dram.second_memory import SecondMemory
from hotrow_rtl.memory.axi import DECERR, OKAY, AXI4Read, AXI4Write
from hotrow_sim.memory import Behaviour, MemoryModel

from tests.boards.test_dram_bring_up import CONTROLLER
from tests.rtl.memory.axi_masters import MastersBench
from tests.support.axi_responders import read_responder, write_responder

BUS, SIZE, HIGH = 8, 1 << 12, 1 << 31
WHOLE = np.ones(32, bool)


class Levelled(Levelling):
    """A bring-up whose result the bench drives."""

    def elaborate(self, platform):
        return super().elaborate(platform).__class__()


class Bench(MastersBench):
    """A reader and a writer, host memory and DRAM; the bring-up ends when `state` is set."""

    def __init__(self, monkeypatch):
        made = []
        monkeypatch.setattr(dram_memory, "Levelling",
                            lambda program: made.append(Levelled(program)) or made[-1])
        bus = {"address_width": 32, "bus_bytes": BUS, "id_width": 2}
        unit = SecondMemory(CONTROLLER, [AXI4Read(**bus)], [AXI4Write(**bus)])
        super().__init__(unit, unit, unit, BUS, seed=0)
        self.unit, self.made, self.octets, self.memories = unit, made, [], []
        word = CONTROLLER.dram.word_bytes
        for read, write, width in ((unit.host_read_0, unit.host_write_0, BUS),
                                   (unit.dram.read, unit.dram.write, word)):
            memory, octets = MemoryModel(), np.zeros(SIZE, np.uint8)
            memory.map(octets, 0)
            self.background(read_responder(read, memory.read_port(width, Behaviour(latency=3))))
            self.background(write_responder(write, memory.write_port(width, Behaviour(latency=3))))
            self.octets.append(octets)
            self.memories.append(memory)

    def settle(self, after, name):
        async def drive(ctx):
            await ctx.tick().repeat(after)
            ctx.set(getattr(self.made[0], name), 1)
        self.process("bring-up", drive)


@pytest.mark.slow
@pytest.mark.parametrize("name, response", [("ready", OKAY), ("failed", DECERR)])
def test_bursts_wait_for_the_bring_up(monkeypatch, name, response):
    """The host's memory answers at once; the DRAM once it is ready, or with DECERR if it failed."""
    bench, octets = Bench(monkeypatch), bytes(range(1, 33))
    answers = bench.write(0, [(64, octets, WHOLE, 1), (HIGH + 64, octets, WHOLE, 2)])
    came = bench.read(0, [(128, 2, 1), (HIGH + 128, 4, 3)])
    early = []

    async def look(ctx):
        await ctx.tick().repeat(300)
        early.append((len(answers), len(came)))
    bench.process("early", look)
    bench.settle(400, name)
    bench.run(2000)
    assert early == [(1, 1)]
    assert [each for each, _ in answers] == [OKAY, response]
    assert [each for _, each in came] == [OKAY, response]
    assert bytes(bench.octets[0][64:96]) == octets
    assert bytes(bench.octets[1][64:96]) == (octets if response == OKAY else bytes(32))
    for memory in bench.memories:
        memory.check()
