"""Block RAM with several AXI4 ports: reads return what was written, and writes are reported."""

import numpy as np
import pytest
from hotrow_boards.block_memory import BlockMemory
from hotrow_rtl.memory.axi import BURST_INCR, DECERR, OKAY, AXI4Read, AXI4Write

from tests.support.benches.stream_bench import StreamBench

SIZE, BLOCK_LOG2, BUS = 4096, 8, 16
SHARE = SIZE // 2  # of the memory belongs to each pair of ports
BUSES = {"address_width": 32, "bus_bytes": BUS}


class MemoryBench(StreamBench):
    """Two masters that write and two that read; `marks` reports the second master's writes.

    Attributes
    ----------
    memory : uint8[SIZE]
        Expected content.
    marked : set of int
        Blocks that `marks` reported.
    """

    def __init__(self, seed):
        dut = BlockMemory(SIZE, BLOCK_LOG2,
                          [AXI4Read(id_width=2, **BUSES), AXI4Read(id_width=1, **BUSES)],
                          [(AXI4Write(id_width=1, **BUSES), False),
                           (AXI4Write(id_width=3, **BUSES), True)])
        super().__init__(dut)
        self.rng, self.seed = np.random.default_rng(seed), seed
        self.memory, self.marked = np.zeros(SIZE, np.uint8), set()
        self.background(self._listen)

    async def write(self, ctx, port, address, words, strobes, identity=0):
        """One burst; its response."""
        bus = getattr(self.dut, f"write_{port}")
        for name, value in (("awaddr", address), ("awlen", len(words) - 1), ("awid", identity),
                            ("awburst", BURST_INCR), ("awvalid", 1)):
            ctx.set(getattr(bus, name), value)
        await ctx.tick().until(bus.awready)
        ctx.set(bus.awvalid, 0)
        for number, (word, strobe) in enumerate(zip(words, strobes, strict=True)):
            await ctx.tick().repeat(int(self.rng.integers(1, 3)))
            ctx.set(bus.wdata, word)
            ctx.set(bus.wstrb, strobe)
            ctx.set(bus.wlast, number == len(words) - 1)
            ctx.set(bus.wvalid, 1)
            await ctx.tick().until(bus.wready)
            ctx.set(bus.wvalid, 0)
        ctx.set(bus.bready, 1)
        response, found = await ctx.tick().sample(bus.bresp, bus.bid).until(bus.bvalid)
        ctx.set(bus.bready, 0)
        assert found == identity
        return response

    async def read(self, ctx, port, address, beats, identity=0):
        """One burst; its words and responses."""
        bus = getattr(self.dut, f"read_{port}")
        for name, value in (("araddr", address), ("arlen", beats - 1), ("arid", identity),
                            ("arburst", BURST_INCR), ("arvalid", 1)):
            ctx.set(getattr(bus, name), value)
        await ctx.tick().until(bus.arready)
        ctx.set(bus.arvalid, 0)
        words, responses = [], []
        for beat in range(beats):
            await ctx.tick().repeat(int(self.rng.integers(1, 3)))
            ctx.set(bus.rready, 1)
            word, response, last, found = await ctx.tick().sample(
                bus.rdata, bus.rresp, bus.rlast, bus.rid).until(bus.rvalid)
            ctx.set(bus.rready, 0)
            assert (last, found) == (beat == beats - 1, identity)
            words.append(word)
            responses.append(response)
        return words, responses

    async def _listen(self, ctx):
        marks = self.dut.marks
        while True:
            ctx.set(marks.ready, self.rng.random() < 0.5)
            _, _, valid, ready, block = await ctx.tick().sample(
                marks.valid, marks.ready, marks.p)
            if valid and ready:
                self.marked.add(block)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_random_bursts(seed):
    """Each pair of ports has half of the memory; all of them work at the same time."""
    bench, written = MemoryBench(seed), [set(), set()]

    def master(port):
        rng = np.random.default_rng([seed, port])

        async def run(ctx):
            for _ in range(12):
                beats = int(rng.integers(1, 20))
                at = port * SHARE + BUS * int(rng.integers(0, SHARE // BUS - beats + 1))
                octets = rng.integers(0, 256, beats * BUS, np.uint8)
                strobed = rng.random(beats * BUS) < 0.7
                words = [int.from_bytes(octets[BUS * n:BUS * (n + 1)].tobytes(), "little")
                         for n in range(beats)]
                strobes = [sum(1 << lane for lane in range(BUS) if strobed[BUS * n + lane])
                           for n in range(beats)]
                assert await bench.write(ctx, port, at, words, strobes, port) == OKAY
                part = bench.memory[at:at + beats * BUS]
                part[strobed] = octets[strobed]
                touched = range(at >> BLOCK_LOG2, (at + beats * BUS - 1 >> BLOCK_LOG2) + 1)
                written[port].update(touched)
                if port == 1:
                    assert bench.marked >= set(touched), "reported before the response"
                known[port].append((at, beats))
                at, beats = known[port][rng.integers(0, len(known[port]))]
                words, responses = await bench.read(ctx, port, at, beats, 1)
                assert responses == [OKAY] * beats
                found = b"".join(word.to_bytes(BUS, "little") for word in words)
                assert found == bench.memory[at:at + beats * BUS].tobytes(), f"seed {seed}"
        return run

    known = [[], []]
    for port in range(2):
        bench.process(f"master {port}", master(port))
    bench.run(20_000)
    assert bench.marked == written[1]


def test_beyond_the_memory():
    bench = MemoryBench(0)

    async def run(ctx):
        assert await bench.write(ctx, 1, SIZE, [1, 2], [0xFFFF, 0xFFFF]) == DECERR
        assert await bench.read(ctx, 0, SIZE, 2) == ([0, 0], [DECERR] * 2)
        assert await bench.write(ctx, 1, 0, [7], [0xFFFF]) == OKAY
        assert await bench.read(ctx, 0, 0, 1) == ([7], [OKAY]), "the memory hangs"
    bench.process("master", run)
    bench.run(1000)
    assert bench.marked == {0}


@pytest.mark.filterwarnings("ignore::amaranth.UnusedElaboratable")
def test_a_size_that_cannot_be():
    with pytest.raises(ValueError, match="size must be a power of two, not 1000"):
        BlockMemory(1000, 8, [], [])
