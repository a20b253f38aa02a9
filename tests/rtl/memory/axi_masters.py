"""AXI4 masters that drive the ports `read_0`, `write_0`, ... of a unit, with random stalls."""

import numpy as np
from hotrow_rtl.config import log2
from hotrow_rtl.memory.axi import BURST_INCR

from tests.support.benches.stream_bench import StreamBench


class MastersBench(StreamBench):
    """A unit with read and write masters.

    Parameters
    ----------
    dut : wiring.Component
    reads, writes : wiring.Component
        The components with the ports; may be `dut` itself.
    bus_bytes : int
        Bus width of the masters.
    seed : int
        Of all stalls; 0 for none.

    Attributes
    ----------
    reported : list of int
        Blocks that the unit reported as written, in order, in benches that record them.
    """

    def __init__(self, dut, reads, writes, bus_bytes, seed):
        super().__init__(dut)
        self.reads, self.writes, self.reported = reads, writes, []
        self.bus_bytes, self.seed, self.rng = bus_bytes, seed, np.random.default_rng(seed)

    def read(self, number, bursts, after=0):
        """Read (address, beats, id) bursts in order, the first after some cycles.

        Returns a list of (octets, response, ...), each response of the burst once.
        """
        bus, answers = getattr(self.reads, f"read_{number}"), []

        async def request(ctx):
            for _ in range(after):
                await ctx.tick()
            for address, beats, identity in bursts:
                await self._stall(ctx)
                self._set(ctx, bus, "ar", address, beats, identity)
                await ctx.tick().until(bus.arready)
                ctx.set(bus.arvalid, 0)

        async def receive(ctx):
            for _, beats, identity in bursts:
                octets, responses = b"", set()
                for beat in range(beats):
                    await self._stall(ctx)
                    ctx.set(bus.rready, 1)
                    data, response, last, found = await ctx.tick().sample(
                        bus.rdata, bus.rresp, bus.rlast, bus.rid).until(bus.rvalid)
                    ctx.set(bus.rready, 0)
                    assert (last, found) == (beat == beats - 1, identity), f"seed {self.seed}"
                    octets += data.to_bytes(self.bus_bytes, "little")
                    responses.add(response)
                answers.append((octets, *responses))
        self.process(f"requests of reader {number}", request)
        self.process(f"answers of reader {number}", receive)
        return answers

    def write(self, number, bursts, after=0):
        """Write (address, octets, strobes, id) bursts in order, the first after some cycles.

        Returns a list of responses, each with the set of blocks reported before it.
        """
        bus, answers = getattr(self.writes, f"write_{number}"), []

        async def request(ctx):
            for _ in range(after):
                await ctx.tick()
            for address, octets, _, identity in bursts:
                await self._stall(ctx)
                self._set(ctx, bus, "aw", address, len(octets) // self.bus_bytes, identity)
                await ctx.tick().until(bus.awready)
                ctx.set(bus.awvalid, 0)

        async def send(ctx):
            for _, octets, strobes, _ in bursts:
                for at in range(0, len(octets), self.bus_bytes):
                    await self._stall(ctx)
                    strobe = strobes[at:at + self.bus_bytes]
                    ctx.set(bus.wdata, int.from_bytes(octets[at:at + self.bus_bytes], "little"))
                    ctx.set(bus.wstrb, sum(1 << lane for lane in np.flatnonzero(strobe).tolist()))
                    ctx.set(bus.wlast, at + self.bus_bytes == len(octets))
                    ctx.set(bus.wvalid, 1)
                    await ctx.tick().until(bus.wready)
                    ctx.set(bus.wvalid, 0)

        async def receive(ctx):
            for *_, identity in bursts:
                await self._stall(ctx)
                ctx.set(bus.bready, 1)
                response, found = await ctx.tick().sample(bus.bresp, bus.bid).until(bus.bvalid)
                ctx.set(bus.bready, 0)
                assert found == identity
                answers.append((response, set(self.reported)))
        for process in (request, send, receive):
            self.process(f"{process.__name__} of writer {number}", process)
        return answers

    def _set(self, ctx, bus, channel, address, beats, identity):
        for name, value in (("addr", address), ("len", beats - 1), ("id", identity),
                            ("size", log2(self.bus_bytes)), ("burst", BURST_INCR), ("valid", 1)):
            ctx.set(getattr(bus, channel + name), value)

    async def _stall(self, ctx):
        if self.seed and self.rng.random() < 0.3:
            for _ in range(self.rng.integers(1, 4)):
                await ctx.tick()
