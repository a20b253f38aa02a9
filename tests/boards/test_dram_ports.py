"""Masters that share a wider port: what is read is what was written, writes are told, in order."""

import numpy as np
import pytest
from amaranth import Module
from hotrow_boards.dram.shared_read import SharedRead
from hotrow_boards.dram.shared_write import SharedWrite
from hotrow_rtl.axi import BURST_INCR, DECERR, OKAY, AXI4Read, AXI4Write
from hotrow_rtl.config import log2
from hotrow_sim.memory import Behaviour, MemoryModel
from hotrow_sim.memory.amaranth import read_responder, write_responder
from hotrow_sim.streambench import StreamBench

SIZE, BLOCK_LOG2, PAGE = 1 << 14, 8, 4096
WORD, ADDRESS_WIDTH = 16, 20
MASTERS = 2
ROUGH = {"latency": 7, "jitter": 9, "stall_address": 0.3, "stall_data": 0.3, "stall_response": 0.3}


class PortsBench(StreamBench):
    """Two masters of each kind on one port of the memory model; what the second writes is told.

    Parameters
    ----------
    bus_bytes : int
        Width of the masters.
    seed : int
        Of all stalls; 0 for none.

    Members
    -------
    octets : uint8[SIZE]
        The memory.
    told : list of int
        Blocks, in the order in which they were told.
    """

    def __init__(self, bus_bytes, seed):
        bus = {"address_width": 32, "bus_bytes": bus_bytes}
        self.reads = SharedRead(SIZE, [AXI4Read(id_width=2, **bus), AXI4Read(id_width=3, **bus)],
                                WORD, ADDRESS_WIDTH)
        self.writes = SharedWrite(
            SIZE, BLOCK_LOG2, [(AXI4Write(id_width=3, **bus), False),
                               (AXI4Write(id_width=2, **bus), True)], WORD, ADDRESS_WIDTH)
        both = Module()
        both.submodules.reads, both.submodules.writes = self.reads, self.writes
        super().__init__(both)
        self.bus_bytes, self.seed, self.rng = bus_bytes, seed, np.random.default_rng(seed)
        self.octets, self.told = np.zeros(SIZE, np.uint8), []
        self.memory = MemoryModel()
        self.memory.map(self.octets, 0)
        behaviour = Behaviour(seed=seed, **ROUGH) if seed else Behaviour()
        self.background(read_responder(self.reads.bus, self.memory.read_port(WORD, behaviour)))
        self.background(write_responder(self.writes.bus, self.memory.write_port(WORD, behaviour)))
        self.background(self._listen)

    def read(self, number, bursts):
        """Ask for (address, beats, id) one after the other; what comes, as (octets, response)."""
        bus, came = getattr(self.reads, f"read_{number}"), []

        async def ask(ctx):
            for address, beats, identity in bursts:
                await self._rest(ctx)
                self._set(ctx, bus, "ar", address, beats, identity)
                await ctx.tick().until(bus.arready)
                ctx.set(bus.arvalid, 0)

        async def take(ctx):
            for _, beats, identity in bursts:
                octets, responses = b"", set()
                for beat in range(beats):
                    await self._rest(ctx)
                    ctx.set(bus.rready, 1)
                    data, response, last, found = await ctx.tick().sample(
                        bus.rdata, bus.rresp, bus.rlast, bus.rid).until(bus.rvalid)
                    ctx.set(bus.rready, 0)
                    assert (last, found) == (beat == beats - 1, identity), f"seed {self.seed}"
                    octets += data.to_bytes(self.bus_bytes, "little")
                    responses.add(response)
                came.append((octets, *responses))
        self.process(f"requests of reader {number}", ask)
        self.process(f"answers of reader {number}", take)
        return came

    def write(self, number, bursts):
        """Write (address, octets, strobes, id) one after the other; the responses that come, each
        with the blocks told before it."""
        bus, came = getattr(self.writes, f"write_{number}"), []

        async def ask(ctx):
            for address, octets, _, identity in bursts:
                await self._rest(ctx)
                self._set(ctx, bus, "aw", address, len(octets) // self.bus_bytes, identity)
                await ctx.tick().until(bus.awready)
                ctx.set(bus.awvalid, 0)

        async def give(ctx):
            for _, octets, strobes, _ in bursts:
                for at in range(0, len(octets), self.bus_bytes):
                    await self._rest(ctx)
                    chosen = strobes[at:at + self.bus_bytes]
                    ctx.set(bus.wdata, int.from_bytes(octets[at:at + self.bus_bytes], "little"))
                    ctx.set(bus.wstrb, sum(1 << lane for lane in np.flatnonzero(chosen).tolist()))
                    ctx.set(bus.wlast, at + self.bus_bytes == len(octets))
                    ctx.set(bus.wvalid, 1)
                    await ctx.tick().until(bus.wready)
                    ctx.set(bus.wvalid, 0)

        async def take(ctx):
            for *_, identity in bursts:
                await self._rest(ctx)
                ctx.set(bus.bready, 1)
                response, found = await ctx.tick().sample(bus.bresp, bus.bid).until(bus.bvalid)
                ctx.set(bus.bready, 0)
                assert found == identity
                came.append((response, set(self.told)))
        for what in (ask, give, take):
            self.process(f"{what.__name__} of writer {number}", what)
        return came

    def _set(self, ctx, bus, channel, address, beats, identity):
        for name, value in (("addr", address), ("len", beats - 1), ("id", identity),
                            ("size", log2(self.bus_bytes)), ("burst", BURST_INCR), ("valid", 1)):
            ctx.set(getattr(bus, channel + name), value)

    async def _rest(self, ctx):
        if self.seed and self.rng.random() < 0.3:
            await ctx.tick().repeat(int(self.rng.integers(1, 4)))

    async def _listen(self, ctx):
        marks = self.writes.marks
        while True:
            ctx.set(marks.ready, not self.seed or self.rng.random() < 0.5)
            _, _, valid, ready, block = await ctx.tick().sample(marks.valid, marks.ready, marks.p)
            if valid and ready:
                self.told.append(block)


def random_span(rng, bus_bytes, half):
    """Address and beats within one half of the memory and one page."""
    beats = int(rng.integers(1, 40))
    page = half * SIZE // 2 + PAGE * int(rng.integers(0, SIZE // 2 // PAGE))
    return page + bus_bytes * int(rng.integers(0, PAGE // bus_bytes - beats + 1)), beats


@pytest.mark.parametrize("bus_bytes", [8, 16])
@pytest.mark.parametrize("seed", [0, 1, pytest.param(2, marks=pytest.mark.long)])
def test_random_bursts(bus_bytes, seed):
    """Each writer has half of the memory; both write, then both readers read, at the same time."""
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
    for blocks, (_, told) in zip(touched, answers[1]):
        assert blocks <= told, "told before the response"
    assert set(bench.told) == set.union(*touched)
    bench = PortsBench(bus_bytes, seed)
    bench.octets[:] = expected
    asked = [[(*random_span(rng, bus_bytes, int(rng.integers(0, 2))), int(rng.integers(0, 4)))
              for _ in range(25)] for _ in range(MASTERS)]
    came = [bench.read(number, bursts) for number, bursts in enumerate(asked)]
    bench.run(50_000)
    bench.memory.check()
    for bursts, found in zip(asked, came):
        assert found == [(expected[at:at + beats * bus_bytes].tobytes(), OKAY)
                         for at, beats, _ in bursts], f"seed {seed}"


@pytest.mark.parametrize("seed", [0, 1])
def test_beyond_the_memory(seed):
    """Refused in its turn, between bursts that are not; the memory is asked for nothing there."""
    bench, some = PortsBench(8, seed), bytes(range(24))
    whole = np.ones(24, bool)
    answers = bench.write(1, [(8, some, whole, 1), (SIZE + 8, some, whole, 2),
                              (1 << 31, some, whole, 3), (40, some, whole, 0)])
    bench.run(2000)
    assert [response for response, _ in answers] == [OKAY, DECERR, DECERR, OKAY]
    assert bench.told == [0, 0] and bytes(bench.octets[8:32]) == bytes(bench.octets[40:64]) == some
    bench = PortsBench(8, seed)
    bench.octets[8:32] = list(some)
    came = bench.read(0, [(8, 3, 1), (SIZE, 2, 2), (1 << 31, 1, 0), (8, 3, 3)])
    bench.run(2000)
    assert came == [(some, OKAY), (bytes(16), DECERR), (bytes(8), DECERR), (some, OKAY)]
    bench.memory.check()


@pytest.mark.parametrize("bus_bytes", [8, 16])
def test_the_rate_without_stalls(bus_bytes):
    """A beat a cycle, and one cycle more for each burst that is read, three that is written."""
    count, beats = 12, 32
    at = [beats * bus_bytes * number for number in range(count)]
    bench = PortsBench(bus_bytes, 0)
    bench.read(0, [(address, beats, 0) for address in at])
    assert count * beats < bench.run(5000) <= count * (beats + 1) + 20
    bench = PortsBench(bus_bytes, 0)
    bench.write(1, [(address, bytes(beats * bus_bytes), np.ones(beats * bus_bytes, bool), 0)
                    for address in at])
    assert count * beats < bench.run(5000) <= count * (beats + 3) + 20
