"""Connects a port of the memory model to an AXI4 bus in Amaranth's simulator.

Each function returns a coroutine for `StreamBench.background`.
"""

from amaranth import Cat

READ_INPUTS = ("araddr", "arid", "arvalid", "arlen", "arsize", "arburst", "rready")
WRITE_INPUTS = ("awaddr", "awid", "awvalid", "awlen", "awsize", "awburst",
                "wvalid", "wlast", "wstrb", "bready")


def read_responder(bus, port):
    """Serve the `AXI4Read` interface `bus` of a master from `port`, a `ReadPort`."""
    async def respond(ctx):
        outputs, inputs = port.outputs, port.inputs
        signals = [getattr(bus, name) for name in READ_INPUTS]
        answer = Cat(bus.arready, bus.rvalid, bus.rlast, bus.rresp, bus.rid, bus.rdata)
        rid_at = 5
        rdata_at = rid_at + len(bus.rid)
        while True:
            data = int.from_bytes(bytes(outputs.rdata[:port.bus_bytes]), "little")
            ctx.set(answer, outputs.arready | outputs.rvalid << 1 | outputs.rlast << 2
                    | outputs.rresp << 3 | outputs.rid << rid_at | data << rdata_at)
            _, _, *values = await ctx.tick().sample(*signals)
            for name, value in zip(READ_INPUTS, values, strict=True):
                setattr(inputs, name, value)
            port.tick()
    return respond


def write_responder(bus, port):
    """Serve the `AXI4Write` interface `bus` of a master from `port`, a `WritePort`."""
    async def respond(ctx):
        outputs, inputs = port.outputs, port.inputs
        signals = [getattr(bus, name) for name in WRITE_INPUTS]
        answer = Cat(bus.awready, bus.wready, bus.bvalid, bus.bresp, bus.bid)
        while True:
            ctx.set(answer, outputs.awready | outputs.wready << 1 | outputs.bvalid << 2
                    | outputs.bresp << 3 | outputs.bid << 5)
            _, _, data, *values = await ctx.tick().sample(bus.wdata, *signals)
            for name, value in zip(WRITE_INPUTS, values, strict=True):
                setattr(inputs, name, value)
            inputs.wdata[:port.bus_bytes] = data.to_bytes(port.bus_bytes, "little")
            port.tick()
    return respond
