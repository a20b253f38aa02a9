"""AXI4 masters that drive a unit's ports `read_0`, `write_0`, ... with random gaps."""

import numpy as np
from hotrow_rtl.config import log2
from hotrow_rtl.memory.axi import BURST_INCR
from hotrow_sim.testing.benches.stream_bench import StreamBench


class MastersBench(StreamBench):
    """A unit, or two, with masters of both kinds.

    Parameters
    ----------
    dut : wiring.Component
    reads, writes : wiring.Component
        What has the ports; may be `dut` itself.
    bus_bytes : int
        Width of the masters.
    seed : int
        Of all stalls; 0 for none.

    Members
    -------
    told : list of int
        Blocks, in the order in which the unit told them, for benches that listen.
    """

    def __init__(self, dut, reads, writes, bus_bytes, seed):
        super().__init__(dut)
        self.reads, self.writes, self.told = reads, writes, []
        self.bus_bytes, self.seed, self.rng = bus_bytes, seed, np.random.default_rng(seed)

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
            for _ in range(self.rng.integers(1, 4)):
                await ctx.tick()
