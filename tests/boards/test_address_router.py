"""Routers by address: bursts reach their memory, and responses keep their order."""

import numpy as np
import pytest
from amaranth import Module
from hotrow_boards.dram.address_router import ReadRouter, WriteRouter
from hotrow_rtl.memory.axi import OKAY, AXI4Read, AXI4Write
from hotrow_sim.memory import Behaviour, MemoryModel

from tests.rtl.memory.axi_masters import MastersBench
from tests.support.axi_responders import read_responder, write_responder

SIZE, BUS, PAGE = 1 << 13, 8, 4096
HALF = 1 << 31
BURSTS = 30
NEAR = {"latency": 1, "stall_address": 0.2, "stall_data": 0.2, "stall_response": 0.2}
FAR = {**NEAR, "latency": 30, "jitter": 20}  # responses that the near memory would overtake


class RoutersBench(MastersBench):
    """A reader and a writer, each with a router to a near and to a far memory.

    Attributes
    ----------
    octets : uint8[2, SIZE]
        The memories: at address 0, and at `HALF`.
    """

    def __init__(self, seed):
        bus = {"address_width": 32, "bus_bytes": BUS, "id_width": 2}
        top = Module()
        top.submodules.reads = reads = ReadRouter(AXI4Read(**bus))
        top.submodules.writes = writes = WriteRouter(AXI4Write(**bus))
        reads.read_0, writes.write_0 = reads.master, writes.master
        super().__init__(top, reads, writes, BUS, seed)
        self.octets, self.memories = np.zeros((2, SIZE), np.uint8), []
        for number, behaviour in enumerate((FAR, NEAR)):
            memory = MemoryModel()
            memory.map(self.octets[number], 0)  # an address with the highest bit is an error
            side, behaviour = ("low", "high")[number], Behaviour(seed=seed + number, **behaviour)
            self.background(read_responder(
                getattr(reads, side), memory.read_port(BUS, behaviour)))
            self.background(write_responder(
                getattr(writes, side), memory.write_port(BUS, behaviour)))
            self.memories.append(memory)

    def finish(self):
        self.run(100_000)
        for memory in self.memories:
            memory.check()


def spans(rng):
    """(memory, offset, beats) of random bursts, several to one memory in a row."""
    memory = 0
    for _ in range(BURSTS):
        memory ^= int(rng.random() < 0.4)
        beats = int(rng.integers(1, 17))
        page = PAGE * int(rng.integers(0, SIZE // PAGE))
        yield memory, page + BUS * int(rng.integers(0, PAGE // BUS - beats + 1)), beats


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_bursts_reach_their_memory(seed):
    """With few ids, so that bursts of one id go to both memories; data may precede addresses."""
    rng, bench = np.random.default_rng(seed), RoutersBench(seed)
    expected, bursts = np.zeros((2, SIZE), np.uint8), []
    for memory, at, beats in spans(rng):
        octets = rng.integers(0, 256, beats * BUS, np.uint8)
        strobes = rng.random(len(octets)) < 0.7
        expected[memory, at:at + len(octets)][strobes] = octets[strobes]
        bursts.append((memory * HALF + at, octets.tobytes(), strobes, int(rng.integers(0, 2))))
    answers = bench.write(0, bursts)
    bench.finish()
    assert [response for response, _ in answers] == [OKAY] * BURSTS
    assert (bench.octets == expected).all(), f"seed {seed}"
    bench = RoutersBench(seed)
    bench.octets[:] = expected
    asked = list(spans(rng))
    came = bench.read(0, [(memory * HALF + at, beats, int(rng.integers(0, 2)))
                          for memory, at, beats in asked])
    bench.finish()
    assert came == [(expected[memory, at:at + beats * BUS].tobytes(), OKAY)
                    for memory, at, beats in asked], f"seed {seed}"


def test_another_signature_is_refused():
    with pytest.raises(TypeError, match="expected a signature of AXI4Read"):
        ReadRouter(AXI4Write(address_width=32, bus_bytes=8, id_width=1))
