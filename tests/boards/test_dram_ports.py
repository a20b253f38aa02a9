"""Masters that share a wider port: reads return what was written, writes are reported in order."""

import numpy as np
import pytest
from amaranth import Module
from hotrow_boards.dram.shared_read import SharedRead
from hotrow_boards.dram.shared_write import SharedWrite
from hotrow_rtl.memory.axi import DECERR, OKAY, AXI4Read, AXI4Write
from hotrow_sim.memory import Behaviour, MemoryModel

from tests.rtl.memory.axi_masters import MastersBench
from tests.support.axi_responders import read_responder, write_responder

SIZE, BLOCK_LOG2, PAGE = 1 << 14, 8, 4096
WORD, ADDRESS_WIDTH = 16, 20
MASTERS = 2
ROUGH = {"latency": 7, "jitter": 9, "stall_address": 0.3, "stall_data": 0.3, "stall_response": 0.3}


class PortsBench(MastersBench):
    """Two masters of each kind on one port of the memory model; `marks` reports the second writer.

    Parameters
    ----------
    bus_bytes, seed : int
        See `MastersBench`.
    address_width : int
        Of the wider port; 14 if the masters have all of its memory.

    Attributes
    ----------
    octets : uint8[SIZE]
        The memory.
    """

    def __init__(self, bus_bytes, seed, address_width=ADDRESS_WIDTH):
        bus = {"address_width": 32, "bus_bytes": bus_bytes}
        reads = SharedRead(SIZE, [AXI4Read(id_width=2, **bus), AXI4Read(id_width=3, **bus)], WORD,
                           address_width)
        writes = SharedWrite(
            SIZE, BLOCK_LOG2, [(AXI4Write(id_width=3, **bus), False),
                               (AXI4Write(id_width=2, **bus), True)], WORD, address_width)
        both = Module()
        both.submodules.reads, both.submodules.writes = reads, writes
        super().__init__(both, reads, writes, bus_bytes, seed)
        self.octets = np.zeros(SIZE, np.uint8)
        self.memory = MemoryModel()
        self.memory.map(self.octets, 0)
        behaviour = Behaviour(seed=seed, **ROUGH) if seed else Behaviour()
        self.background(read_responder(self.reads.bus, self.memory.read_port(WORD, behaviour)))
        self.background(write_responder(self.writes.bus, self.memory.write_port(WORD, behaviour)))
        self.background(self._listen)

    async def _listen(self, ctx):
        marks = self.writes.marks
        while True:
            ctx.set(marks.ready, not self.seed or self.rng.random() < 0.5)
            _, _, valid, ready, block = await ctx.tick().sample(marks.valid, marks.ready, marks.p)
            if valid and ready:
                self.reported.append(block)


def random_span(rng, bus_bytes, half):
    """Address and beats within one half of the memory and one page."""
    beats = int(rng.integers(1, 40))
    page = half * SIZE // 2 + PAGE * int(rng.integers(0, SIZE // 2 // PAGE))
    return page + bus_bytes * int(rng.integers(0, PAGE // bus_bytes - beats + 1)), beats


@pytest.mark.slow
@pytest.mark.parametrize("bus_bytes, seed", [
    (8, 1), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((8, 0), (16, 0), (16, 1))),
    *(pytest.param(width, 2, marks=pytest.mark.long) for width in (8, 16))])
def test_random_bursts(bus_bytes, seed):
    """Both writers write, each to its half of the memory; then both readers read."""
    rng, bench = np.random.default_rng([seed, bus_bytes]), PortsBench(bus_bytes, seed)
    expected, answers, touched = np.zeros(SIZE, np.uint8), [], []
    for number in range(MASTERS):
        bursts = []
        for _ in range(25):
            at, beats = random_span(rng, bus_bytes, number)
            octets = rng.integers(0, 256, beats * bus_bytes, np.uint8)
            strobes = rng.random(len(octets)) < 0.7
            expected[at:at + len(octets)][strobes] = octets[strobes]
            bursts.append((at, octets.tobytes(), strobes, int(rng.integers(0, 4))))
            if number == 1:
                last = at + len(octets) - 1
                touched.append(set(range(at >> BLOCK_LOG2, (last >> BLOCK_LOG2) + 1)))
        answers.append(bench.write(number, bursts))
    bench.run(50_000)
    bench.memory.check()
    assert (bench.octets == expected).all(), f"seed {seed}"
    assert all(response == OKAY for response, _ in answers[0] + answers[1])
    for blocks, (_, told) in zip(touched, answers[1], strict=True):
        assert blocks <= told, "reported before the response"
    assert set(bench.reported) == set.union(*touched)
    bench = PortsBench(bus_bytes, seed)
    bench.octets[:] = expected
    asked = [[(*random_span(rng, bus_bytes, int(rng.integers(0, 2))), int(rng.integers(0, 4)))
              for _ in range(25)] for _ in range(MASTERS)]
    came = [bench.read(number, bursts) for number, bursts in enumerate(asked)]
    bench.run(50_000)
    bench.memory.check()
    for bursts, found in zip(asked, came, strict=True):
        assert found == [(expected[at:at + beats * bus_bytes].tobytes(), OKAY)
                         for at, beats, _ in bursts], f"seed {seed}"


@pytest.mark.parametrize("seed, address_width", [
    (0, ADDRESS_WIDTH), (0, 14), pytest.param(1, ADDRESS_WIDTH, marks=pytest.mark.slow)])
def test_beyond_the_memory(seed, address_width):
    """A burst beyond the memory gets DECERR, in order, without an access."""
    bench, some = PortsBench(8, seed, address_width), bytes(range(24))
    whole = np.ones(24, bool)
    answers = bench.write(1, [(8, some, whole, 1), (SIZE + 8, some, whole, 2),
                              (1 << 31, some, whole, 3), (40, some, whole, 0)])
    bench.run(2000)
    assert [response for response, _ in answers] == [OKAY, DECERR, DECERR, OKAY]
    assert bench.reported == [0, 0]
    assert bytes(bench.octets[8:32]) == bytes(bench.octets[40:64]) == some
    bench = PortsBench(8, seed, address_width)
    bench.octets[8:32] = list(some)
    came = bench.read(0, [(8, 3, 1), (SIZE, 2, 2), (1 << 31, 1, 0), (8, 3, 3)])
    bench.run(2000)
    assert came == [(some, OKAY), (bytes(16), DECERR), (bytes(8), DECERR), (some, OKAY)]
    bench.memory.check()


@pytest.mark.parametrize("bus_bytes", [8, pytest.param(16, marks=pytest.mark.slow)])
def test_the_rate_without_stalls(bus_bytes):
    """A beat a cycle, and three cycles more per burst that is written."""
    count, beats = 12, 32
    at = [beats * bus_bytes * number for number in range(count)]
    bench = PortsBench(bus_bytes, 0)
    bench.read(0, [(address, beats, 0) for address in at])
    assert count * beats < bench.run(5000) <= count * beats + 20
    bench = PortsBench(bus_bytes, 0)
    bench.write(1, [(address, bytes(beats * bus_bytes), np.ones(beats * bus_bytes, bool), 0)
                    for address in at])
    assert count * beats < bench.run(5000) <= count * (beats + 3) + 20
