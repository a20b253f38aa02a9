"""AXI4 masters on an AXI4-Lite memory: data, strobes, errors."""

import numpy as np
import pytest
from hotrow_rtl.memory.axi import DECERR, OKAY, SLVERR, AXI4Read, AXI4Write
from hotrow_rtl.memory.axi_to_axilite import AXIToAXILite

from tests.rtl.memory.axi_masters import MastersBench

SIZE, ADDRESS_WIDTH, BAD = 4096, 16, 0x8000  # a slave that answers SLVERR from BAD on
ANSWER_CYCLES = 32


class BridgeBench(MastersBench):
    """Two masters of each kind, and a slave that records its accesses.

    Attributes
    ----------
    octets : uint8[SIZE]
        The slave's memory.
    bad : range or set of int
        Addresses that the slave answers with SLVERR.
    silent : dict of int to (str, int or None)
        By address, the handshake that the slave delays, "address" or "answer", and until which
        cycle; None for ever.
    accesses : list of (str, int)
        "read" or "write", and the address.
    """

    bad = range(BAD, 1 << ADDRESS_WIDTH)
    silent = None

    def __init__(self, bus_bytes, seed):
        bus = {"address_width": 32, "bus_bytes": bus_bytes}
        bridge = AXIToAXILite(
            [AXI4Read(id_width=2, **bus), AXI4Read(id_width=3, **bus)],
            [AXI4Write(id_width=3, **bus), AXI4Write(id_width=2, **bus)], ADDRESS_WIDTH,
            answer_cycles=ANSWER_CYCLES)
        super().__init__(bridge, bridge, bridge, bus_bytes, seed)
        self.bus, self.octets, self.accesses = bridge.bus, np.zeros(SIZE, np.uint8), []
        self.cycles = 0
        for responder in (self._count, self._reads):
            self.background(responder)
        self.background(self._writes)

    async def _reads(self, ctx):
        bus = self.bus
        while True:
            await self._stall(ctx)
            await self._silence(ctx, "address", bus.arvalid, bus.araddr)
            address = await self._accept(ctx, bus.arvalid, bus.arready, bus.araddr)
            self.accesses.append(("read", address))
            await self._stall(ctx)
            await self._silence(ctx, "answer", address)
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
            await self._silence(ctx, "address", bus.awvalid, bus.awaddr)
            if self.rng.random() < 0.5:
                address = await self._accept(ctx, bus.awvalid, bus.awready, bus.awaddr)
                data, strobe = await self._accept(ctx, bus.wvalid, bus.wready, bus.wdata, bus.wstrb)
            else:
                data, strobe = await self._accept(ctx, bus.wvalid, bus.wready, bus.wdata, bus.wstrb)
                address = await self._accept(ctx, bus.awvalid, bus.awready, bus.awaddr)
            self.accesses.append(("write", address))
            assert strobe, "a write without a strobe"
            await self._silence(ctx, "answer", address)
            for lane in range(4):
                if strobe >> lane & 1 and address not in self.bad:
                    self.octets[address + lane] = data >> 8 * lane & 0xFF
            ctx.set(bus.bresp, SLVERR if address in self.bad else OKAY)
            ctx.set(bus.bvalid, 1)
            await ctx.tick().until(bus.bready)
            ctx.set(bus.bvalid, 0)

    async def _silence(self, ctx, handshake, *found):
        """Delay a handshake of an address in `silent`; `found` is it, or its valid and signal."""
        if not self.silent:
            return
        if len(found) == 2:
            while not ctx.get(found[0]):
                await ctx.tick()
            found = [ctx.get(found[1])]
        delayed, until = self.silent.get(found[0], (None, 0))
        while delayed == handshake and (until is None or self.cycles < until):
            await ctx.tick()

    async def _count(self, ctx):
        while True:
            await ctx.tick()
            self.cycles += 1

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


@pytest.mark.parametrize("handshake", ["address", "answer"])
@pytest.mark.parametrize("returns", [False, True], ids=["lost", "late"])
def test_a_missing_answer_to_a_read_ends_as_decerr(handshake, returns):
    """The burst ends and later ones end at once; after the late answer the bridge serves again."""
    bench, octets = BridgeBench(8, seed=0), bytes(range(1, 25))
    bench.octets[:24] = list(octets)
    bench.silent = {8: (handshake, 300 if returns else None)}
    answers = bench.read(0, [(0, 1, 1), (0, 3, 2), (0, 2, 3)])
    written = bench.write(1, [(64, octets, np.ones(24, bool), 0)])
    later = bench.read(1, [(16, 1, 2)], after=350)
    bench.run(500)
    assert [responses for _, *responses in answers] == [[OKAY], [OKAY, DECERR], [DECERR]]
    assert answers[0][0] == octets[:8] and answers[1][0][:8] == octets[:8]
    assert written[0][0] == OKAY
    assert later == [(octets[16:24], OKAY)] if returns else later[0][1] == DECERR


@pytest.mark.parametrize("handshake", ["address", "answer"])
@pytest.mark.parametrize("returns", [False, True], ids=["lost", "late"])
def test_a_missing_answer_to_a_write_ends_as_decerr(handshake, returns):
    bench, octets = BridgeBench(8, seed=0), bytes(range(1, 25))
    bench.silent = {8: (handshake, 300 if returns else None)}
    strobes = np.ones(24, bool)
    answers = bench.write(0, [(0, octets[:8], strobes[:8], 1), (0, octets, strobes, 2),
                              (32, octets[:16], strobes[:16], 3)])
    read = bench.read(1, [(0, 1, 0)])
    later = bench.write(1, [(48, octets[:8], strobes[:8], 2)], after=350)
    bench.run(500)
    assert [response for response, _ in answers] == [OKAY, DECERR, DECERR]
    assert read[0][1] == OKAY
    assert later[0][0] == (OKAY if returns else DECERR)
    expected = np.zeros(SIZE, np.uint8)
    expected[:8] = list(octets[:8])
    if returns:  # the late double word, and the burst after it
        expected[8:12], expected[48:56] = list(octets[8:12]), list(octets[:8])
    assert (bench.octets == expected).all()
