"""An AXI4-Lite master for Amaranth's simulator."""

from hotrow_rtl.contract.registers import REGISTERS


class AXI4LiteMaster:
    """Reads and writes registers, one access at a time.

    Parameters
    ----------
    bus : AXI4Lite
        The slave's interface.

    Attributes
    ----------
    address_delay, data_delay, response_delay : int
        Delay in cycles of the address, of the write data and of `ready` for the response.
    """

    def __init__(self, bus, *, address_delay=0, data_delay=0, response_delay=0):
        self.bus = bus
        self.address_delay, self.data_delay = address_delay, data_delay
        self.response_delay = response_delay

    async def write(self, ctx, register, value, strobe=0b1111):
        """Write a register (name or byte offset); return the response."""
        bus, waiting = self.bus, {"aw": self.address_delay, "w": self.data_delay}
        ctx.set(bus.awaddr, _offset(register))
        ctx.set(bus.wdata, value)
        ctx.set(bus.wstrb, strobe)
        while waiting:
            for channel, delay in waiting.items():
                ctx.set(getattr(bus, f"{channel}valid"), delay <= 0)
            _, _, *ready = await ctx.tick().sample(bus.awready, bus.wready)
            fired = {channel for channel, accepted in zip(("aw", "w"), ready, strict=True)
                     if accepted and waiting.get(channel, 1) <= 0}
            for channel in fired:
                ctx.set(getattr(bus, f"{channel}valid"), 0)
            waiting = {channel: delay - 1 for channel, delay in waiting.items()
                       if channel not in fired}
        response, = await self._response(ctx, bus.bvalid, bus.bready, bus.bresp)
        return response

    async def read(self, ctx, register):
        """Read a register; return its value and the response."""
        bus = self.bus
        if self.address_delay:
            await ctx.tick().repeat(self.address_delay)
        ctx.set(bus.araddr, _offset(register))
        ctx.set(bus.arvalid, 1)
        await ctx.tick().until(bus.arready)
        ctx.set(bus.arvalid, 0)
        value, response = await self._response(ctx, bus.rvalid, bus.rready, bus.rdata, bus.rresp)
        return value, response

    async def _response(self, ctx, valid, ready, *members):
        """Accept a response after the delay, and check that it holds meanwhile."""
        first = await ctx.tick().sample(*members).until(valid)
        for _ in range(self.response_delay):
            _, _, still, *now = await ctx.tick().sample(valid, *members)
            assert still and tuple(now) == tuple(first), "a response changed before it was accepted"
        ctx.set(ready, 1)
        response = await ctx.tick().sample(*members).until(valid)
        ctx.set(ready, 0)
        return response

    async def write_wide(self, ctx, register, value):
        """Write the registers `register`_LOW and `register`_HIGH."""
        await self.write(ctx, f"{register}_LOW", value & 0xFFFF_FFFF)
        await self.write(ctx, f"{register}_HIGH", value >> 32)

    async def read_value(self, ctx, register):
        """Read a register; asserts an OKAY response."""
        value, response = await self.read(ctx, register)
        assert response == 0, f"reading {register} answered {response}"
        return value


def _offset(register):
    return REGISTERS[register].offset if isinstance(register, str) else register
