"""Test bench: a result port, a memory model, and its expected final content."""

from dataclasses import replace

import numpy as np
from hotrow_rtl.config import PRESETS
from hotrow_rtl.memory.write_port import DmaWritePort
from hotrow_sim.memory import Behaviour, MemoryModel

from tests.support.axi_responders import write_responder
from tests.support.benches.stream_bench import STEADY, StreamBench
from tests.support.simulation import built

TINY, WIDE = PRESETS["tiny"], PRESETS["alveo-u55c"]
BASE, SIZE = 0xA_0000_0000, 1 << 16
ECP5 = replace(PRESETS["ecp5"], address_width=40)  # wide enough for BASE
STALLS = {"jitter": 12, "stall_address": 0.4, "stall_data": 0.3, "stall_response": 0.3}
MEMORIES = {
    "ideal": Behaviour(),
    "latency": Behaviour(latency=40),
    "stalls": Behaviour(latency=7, **STALLS),
    "out-of-order": Behaviour(latency=7, out_of_order=True, **STALLS),
}


class Bench(StreamBench):
    """A result port with a memory."""

    def __init__(self, config, clients, behaviour=MEMORIES["ideal"], **options):
        self.config, self.port = config, built(DmaWritePort, config, clients, **options)
        super().__init__(self.port)
        self.model = MemoryModel()
        self.array = np.random.default_rng(1).integers(0, 256, SIZE, dtype=np.uint8)
        self.expected = self.array.copy()
        self.model.map(self.array, BASE)
        self.memory = self.model.write_port(config.bus_bytes, behaviour)
        self.background(write_responder(self.port.bus, self.memory))
        self.rng = np.random.default_rng(2)
        self.empty_beats = 0  # beats sent without strobes for an address sent before
        self.background(self._watch_dropped_beats)

    async def _watch_dropped_beats(self, ctx):
        """While the port is stopped or drains, only a beat that was valid before has strobes."""
        port, bus = self.port, self.port.bus
        restarted = valid_before = False
        while True:
            _, _, stopped, restart, idle, valid, ready, strobe = await ctx.tick().sample(
                port.stopped, port.restart, port.idle, bus.wvalid, bus.wready, bus.wstrb)
            if not (stopped or restarted):
                valid_before = True
            elif valid:
                assert valid_before or not strobe, "a beat of a dropped sequence carries data"
                self.empty_beats += ready and not valid_before
                valid_before &= not ready
            else:
                valid_before = False
            restarted = restart or (restarted and not idle)

    def words(self, address, count, ending="partial", striped=False):
        """Payloads of one sequence, which the expected content includes.

        ending : "full", "partial" (strobes for the first bytes only) or "empty" (none).
        striped : whether the sequence fills every second block.
        """
        bus, payloads = self.config.bus_bytes, []
        block = self.config.burst_beats * bus
        for i in range(count):
            last, data = i == count - 1, self.rng.bytes(bus)
            valid = bus
            if last and ending != "full":
                valid = 0 if ending == "empty" else int(self.rng.integers(1, bus))
            at = address - BASE + bus * i
            if striped:
                at += (at // block - (address - BASE) // block) * block
            self.expected[at:at + valid] = np.frombuffer(data[:valid], np.uint8)
            payloads.append({"data": int.from_bytes(data, "little"), "last": last,
                             "strobe": (1 << valid) - 1})
        return payloads

    def write(self, client, sequences, gaps=STEADY, pauses=STEADY, bypass_striping=False):
        """Write (address, words[, ending]) sequences; return the list of outcomes."""
        port = self.port.clients[client]
        striped = client in self.port.striped and not bypass_striping
        self.source(port.request, [{"address": address} for address, *_ in sequences], gaps)
        self.source(port.words, [word for sequence in sequences
                                 for word in self.words(*sequence, striped=striped)], gaps)
        return self.sink(port.outcome, len(sequences), pauses, name=f"outcomes of {client}",
                         read=lambda outcome: outcome.fault)


def random_sequences(rng, client, count, config):
    """Sequences of up to five bursts that do not overlap, with every kind of ending."""
    space = SIZE // 8 // count // 64 * 64  # up to 8 clients
    longest = min(5 * config.burst_beats, space // config.bus_bytes - 64 // config.bus_bytes)
    starts = BASE + SIZE // 8 * client + space * np.arange(count) + 64 * rng.integers(0, 2, count)
    return [(int(start), int(rng.integers(1, longest)), ("full", "partial", "empty")[i % 3])
            for i, start in enumerate(starts)]


async def write(ctx, client, address, words):
    """Write one sequence with an idle client; return its fault."""
    ctx.set(client.request.payload, {"address": address})
    ctx.set(client.request.valid, 1)
    await ctx.tick().until(client.request.ready)
    ctx.set(client.request.valid, 0)
    ctx.set(client.words.valid, 1)
    for word in words:
        ctx.set(client.words.payload, word)
        await ctx.tick().until(client.words.ready)
    ctx.set(client.words.valid, 0)
    ctx.set(client.outcome.ready, 1)
    (outcome,) = await ctx.tick().sample(client.outcome.payload).until(client.outcome.valid)
    ctx.set(client.outcome.ready, 0)
    return outcome.fault
