"""The memory master of a link, with a memory that falls silent for a while."""

import numpy as np
import pytest
from hotrow_boards.link.memory_master import MemoryMaster
from hotrow_sim.memory import Behaviour, MemoryModel

from tests.support.axi_responders import read_responder, write_responder
from tests.support.benches.stream_bench import StreamBench

BASE, SIZE, TIMEOUT = 0x4000, 1024, 40


class Bench(StreamBench):
    """A master and its memory."""

    def __init__(self):
        self.dut = MemoryMaster(32, 16, TIMEOUT)
        super().__init__(self.dut)
        self.octets = np.arange(SIZE, dtype=np.uint32).astype(np.uint8)
        self.model = MemoryModel()
        self.model.map(self.octets, BASE)
        self.ports = {"read": self.model.read_port(16, Behaviour(latency=3)),
                      "write": self.model.write_port(16, Behaviour(latency=3))}
        self.background(read_responder(self.dut.read_bus, self.ports["read"]))
        self.background(write_responder(self.dut.write_bus, self.ports["write"]))

    async def request(self, ctx, at, size, octets=b""):
        """Perform a request: whether it was refused, the cycles it took, and the bytes read."""
        dut, found, begun, sent = self.dut, [], self.cycles, list(octets)
        ctx.set(dut.requests.payload, {"write": bool(octets), "address": BASE + at, "length": size})
        ctx.set(dut.requests.valid, 1)
        ctx.set(dut.o.ready, 1)
        while True:
            ctx.set(dut.i.valid, bool(sent))
            ctx.set(dut.i.payload, sent[0] if sent else 0)
            _, _, done, refused, valid, octet, taken = await ctx.tick().sample(
                dut.requests.ready, dut.refused, dut.o.valid, dut.o.payload, dut.i.ready)
            if valid:
                found.append(octet)
            if taken and sent:
                sent.pop(0)
            if done:
                ctx.set(dut.requests.valid, 0)
                assert not sent and len(found) == (0 if octets else size)
                return bool(refused), self.cycles - begun, bytes(found)


@pytest.mark.slow
@pytest.mark.parametrize("silent", ["read", "write"])
@pytest.mark.parametrize("accept", [True, False])
@pytest.mark.parametrize("at", [1, 20, 60])  # the first byte, alone in its word, or a later word
def test_a_silent_memory_refuses_until_it_has_answered(silent, accept, at):
    bench, taken = Bench(), []

    async def drive(ctx):
        assert await bench.request(ctx, 5, 50) == (False, bench.cycles, bytes(range(5, 55)))
        bench.ports[silent].silence(bench.cycles + at, bench.cycles + 600, accept)
        for number in range(3):
            write = b"" if silent == "read" else bytes([7]) * 60
            taken.append((await bench.request(ctx, 96 * number + 111, 60, write))[:2])
        await ctx.tick().repeat(700 - bench.cycles)
        written = bytes(range(90, 130))
        assert not (await bench.request(ctx, 500, 40, written))[0]
        assert (await bench.request(ctx, 498, 44))[::2] == (False, bytes(
            [498 % 256, 499 % 256]) + written + bytes([540 % 256, 541 % 256]))
    bench.process("requests", drive)
    bench.run(2000)
    assert all(refused for refused, _ in taken)
    assert [cycles < 2 * TIMEOUT + 90 for _, cycles in taken] == [True] * 3
    assert [cycles < TIMEOUT + 30 for _, cycles in taken[1:]] == [True] * 2
    assert (bench.octets[192:500] == np.arange(192, 500).astype(np.uint8)).all()
    bench.model.check()
