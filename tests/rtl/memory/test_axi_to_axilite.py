"""AXI4 masters on an AXI4-Lite memory: data, strobes, errors."""

import numpy as np
import pytest
from hotrow_rtl.memory.axi import DECERR, OKAY, SLVERR, AXI4Read, AXI4Write
from hotrow_rtl.memory.axi_to_axilite import AXIToAXILite

from tests.rtl.memory.axi_masters import MastersBench

SIZE, ADDRESS_WIDTH, BAD = 4096, 16, 0x8000  # a slave that answers SLVERR from BAD on


class BridgeBench(MastersBench):
    """Two masters of each kind, and a slave that records its accesses.

    Attributes
    ----------
    octets : uint8[SIZE]
        The slave's memory.
    bad : range or set of int
        Addresses that the slave answers with SLVERR.
    accesses : list of (str, int)
        "read" or "write", and the address.
    """

    bad = range(BAD, 1 << ADDRESS_WIDTH)

    def __init__(self, bus_bytes, seed):
        bus = {"address_width": 32, "bus_bytes": bus_bytes}
        bridge = AXIToAXILite(
            [AXI4Read(id_width=2, **bus), AXI4Read(id_width=3, **bus)],
            [AXI4Write(id_width=3, **bus), AXI4Write(id_width=2, **bus)], ADDRESS_WIDTH)
        super().__init__(bridge, bridge, bridge, bus_bytes, seed)
        self.bus, self.octets, self.accesses = bridge.bus, np.zeros(SIZE, np.uint8), []
        self.background(self._reads)
        self.background(self._writes)

    async def _reads(self, ctx):
        bus = self.bus
        while True:
            await self._stall(ctx)
            address = await self._accept(ctx, bus.arvalid, bus.arready, bus.araddr)
            self.accesses.append(("read", address))
            await self._stall(ctx)
            good = address not in self.bad
            ctx.set(bus.rdata, int.from_bytes(self.octets[address:address + 4].tobytes(), "little")
                    if good else 0xBAD)
            ctx.set(bus.rresp, OKAY if good else SLVERR)
            ctx.set(bus.rvalid, 1)
            await ctx.tick().until(bus.rready)
            ctx.set(bus.rvalid, 0)

    async def _writes(self, ctx):
        bus = self.bus
        while True:
            await self._stall(ctx)
            if self.rng.random() < 0.5:
                address = await self._accept(ctx, bus.awvalid, bus.awready, bus.awaddr)
                data, strobe = await self._accept(ctx, bus.wvalid, bus.wready, bus.wdata, bus.wstrb)
            else:
                data, strobe = await self._accept(ctx, bus.wvalid, bus.wready, bus.wdata, bus.wstrb)
                address = await self._accept(ctx, bus.awvalid, bus.awready, bus.awaddr)
            self.accesses.append(("write", address))
            assert strobe, "a write without a strobe"
            for lane in range(4):
                if strobe >> lane & 1 and address not in self.bad:
                    self.octets[address + lane] = data >> 8 * lane & 0xFF
            ctx.set(bus.bresp, SLVERR if address in self.bad else OKAY)
            ctx.set(bus.bvalid, 1)
            await ctx.tick().until(bus.bready)
            ctx.set(bus.bvalid, 0)

    @staticmethod
    async def _accept(ctx, valid, ready, *values):
        while not ctx.get(valid):
            await ctx.tick()
        found = [ctx.get(value) for value in values]
        ctx.set(ready, 1)
        await ctx.tick()
        ctx.set(ready, 0)
        return found if len(found) > 1 else found[0]


@pytest.mark.parametrize("bus_bytes", [8, 16])
@pytest.mark.parametrize("seed", [0, 1, pytest.param(2, marks=pytest.mark.long)])
def test_random_bursts(bus_bytes, seed):
    rng, bench = np.random.default_rng([seed, bus_bytes]), BridgeBench(bus_bytes, seed)
    expected, answers = np.zeros(SIZE, np.uint8), []

    def span(half):
        beats = int(rng.integers(1, 12))
        return (half * SIZE // 2 + bus_bytes * int(rng.integers(0, SIZE // 2 // bus_bytes - beats)),
                beats)

    for number in range(2):
        bursts = []
        for _ in range(12):
            at, beats = span(number)
            octets = rng.integers(0, 256, beats * bus_bytes, np.uint8)
            strobes = rng.random(len(octets)) < rng.choice([0.1, 0.9])
            expected[at:at + len(octets)][strobes] = octets[strobes]
            bursts.append((at, octets.tobytes(), strobes, int(rng.integers(0, 4))))
        answers.append(bench.write(number, bursts))
    bench.run(50_000)
    assert (bench.octets == expected).all(), f"seed {seed}"
    assert all(response == OKAY for response, _ in answers[0] + answers[1])
    bench = BridgeBench(bus_bytes, seed)
    bench.octets[:] = expected
    requests = [[(*span(int(rng.integers(0, 2))), int(rng.integers(0, 4))) for _ in range(12)]
             for _ in range(2)]
    answers = [bench.read(number, bursts) for number, bursts in enumerate(requests)]
    bench.run(50_000)
    for bursts, found in zip(requests, answers, strict=True):
        assert found == [(expected[at:at + beats * bus_bytes].tobytes(), OKAY)
                         for at, beats, _ in bursts], f"seed {seed}"


@pytest.mark.parametrize("seed", [0, 1])
def test_errors_are_answered_with_decerr(seed):
    """Errors of the slave, and addresses that it does not have; later bursts are served."""
    bench, octets, strobes = BridgeBench(8, seed), bytes(range(16)), np.ones(16, bool)
    bursts = [(0, octets, strobes, 1), (BAD, octets, strobes, 2), (1 << 20, octets, strobes, 3),
              (32, octets, strobes, 0)]
    answers = bench.write(1, bursts)
    bench.run(2000)
    assert [response for response, _ in answers] == [OKAY, DECERR, DECERR, OKAY]
    assert bytes(bench.octets[:16]) == bytes(bench.octets[32:48]) == octets
    assert [address for _, address in bench.accesses] == [
        0, 4, 8, 12, *range(BAD, BAD + 16, 4), 32, 36, 40, 44]
    bench = BridgeBench(8, seed)
    bench.octets[:16] = list(octets)
    answers = bench.read(0, [(0, 2, 1), (BAD, 1, 2), (1 << 20, 1, 0), (0, 2, 3)])
    bench.run(2000)
    assert [responses for _, *responses in answers] == [[OKAY], [DECERR], [DECERR], [OKAY]]
    assert answers[0][0] == answers[3][0] == octets
    assert {address for _, address in bench.accesses} == {0, 4, 8, 12, BAD, BAD + 4}


@pytest.mark.parametrize("bad", range(0, 32, 4))
def test_one_bad_double_word_fails_its_beat_or_burst(bad):
    """Each beat of a read has an answer of its own; a write has one, and the next is served."""
    bench = BridgeBench(16, seed=3)
    bench.bad = {bad}
    beats = bench.read(0, [(16 * beat, 1, beat) for beat in range(3)])
    written = bench.write(0, [(at, bytes(size), np.ones(size, bool), 1) for at, size in (
        (0, 32), (32, 16))])
    bench.run(2000)
    assert [response for _, response in beats] == [
        DECERR if beat == bad // 16 else OKAY for beat in range(3)]
    assert [response for response, _ in written] == [DECERR, OKAY]
