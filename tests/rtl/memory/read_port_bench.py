"""Test bench: a list port, a memory model, and the words that the clients must receive."""

from dataclasses import replace
from math import ceil

import numpy as np
from hotrow_rtl.config import PRESETS
from hotrow_rtl.memory.read_port import DmaReadPort
from hotrow_sim.memory import Behaviour, MemoryModel

from tests.support.axi_responders import read_responder
from tests.support.benches.stream_bench import STEADY, StreamBench
from tests.support.simulation import built

TINY, WIDE = PRESETS["tiny"], PRESETS["alveo-u55c"]
BASE, SIZE = 0xA_0000_0000, 1 << 16
ECP5 = replace(PRESETS["ecp5"], address_width=40)  # wide enough for BASE
STALLS = {"jitter": 12, "stall_address": 0.4, "stall_data": 0.3}
MEMORIES = {
    "ideal": Behaviour(),
    "latency": Behaviour(latency=40),
    "stalls": Behaviour(latency=7, **STALLS),
    "out-of-order": Behaviour(latency=7, out_of_order=True, **STALLS),
    "interleaved": Behaviour(latency=7, out_of_order=True, interleave=True, **STALLS),
}


class Bench(StreamBench):
    """A list port with a memory."""

    def __init__(self, config, clients, behaviour=MEMORIES["ideal"], **options):
        self.config, self.port = config, built(DmaReadPort, config, clients, **options)
        super().__init__(self.port)
        self.model = MemoryModel()
        self.array = np.random.default_rng(1).integers(0, 256, SIZE, dtype=np.uint8)
        self.model.map(self.array, BASE)
        self.memory = self.model.read_port(config.bus_bytes, behaviour)
        self.background(read_responder(self.port.bus, self.memory))

    def expected(self, requests, fault=lambda address: 0):
        """(data, fault, last) of every word of (address, bytes) requests; with a fault, no data."""
        bus, words = self.config.bus_bytes, []
        for address, size in requests:
            for at in range(address, address + size, bus):
                data = int.from_bytes(self.array[at - BASE:][:bus].tobytes(), "little")
                end = at + bus >= address + size
                words.append((None if fault(at) else data, fault(at), int(end)))
        return words

    def request(self, client, requests, gaps=STEADY):
        self.source(self.port.clients[client].request,
                    [{"address": address, "bytes": size} for address, size in requests], gaps)

    def receive(self, client, count, pauses=STEADY, more=False):
        def read(word):
            return None if word.fault else word.data, word.fault, word.last
        return self.sink(self.port.clients[client].words, count, pauses, f"client {client}", read,
                         more=more)

    def read(self, client, requests, gaps=STEADY, pauses=STEADY):
        self.request(client, requests, gaps)
        count = sum(ceil(size / self.config.bus_bytes) for _, size in requests)
        return self.receive(client, count, pauses)


def random_requests(rng, count, config):
    """Lists of up to six bursts, at any multiple of 64, with an odd number of bytes."""
    longest = 6 * config.burst_beats * config.bus_bytes
    sizes = rng.integers(1, longest, count)
    addresses = BASE + 64 * rng.integers(0, (SIZE - longest) // 64, count)
    return [(int(address), int(size)) for address, size in zip(addresses, sizes, strict=True)]


async def idle(ctx, port):
    """Wait until nothing is in flight."""
    if not ctx.get(port.idle):
        await ctx.tick().until(port.idle)


async def read(ctx, client, address, size):
    """Read one list with an idle client; return the (data, fault, last) words."""
    ctx.set(client.request.payload, {"address": address, "bytes": size})
    ctx.set(client.request.valid, 1)
    await ctx.tick().until(client.request.ready)
    ctx.set(client.request.valid, 0)
    ctx.set(client.words.ready, 1)
    words = []
    while not words or not words[-1][2]:
        (word,) = await ctx.tick().sample(client.words.payload).until(client.words.valid)
        words.append((word.data, word.fault, word.last))
    ctx.set(client.words.ready, 0)
    return words
