"""Access registers over AXI4-Lite, one at a time."""

from amaranth import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from hotrow_rtl.host.axi_lite_slave import register_reply
from hotrow_rtl.memory.axi import OKAY, AXI4Lite

from .layouts import register_request


class RegisterMaster(wiring.Component):
    """Convert requests to AXI4-Lite accesses.

    Parameters
    ----------
    address_width : int
        Width of the register space; a request beyond it is refused without an access.

    Attributes
    ----------
    requests : In(stream(register_request))
    replies : Out(stream(register_reply))
        One per request, in order; `data` is valid for a read.
    bus : Out(AXI4Lite(address_width=address_width))

    Timing
    ------
    2 cycles plus those of the slave.
    """

    def __init__(self, address_width):
        self.address_width = address_width
        super().__init__({
            "requests": In(stream.Signature(register_request)),
            "replies": Out(stream.Signature(register_reply)),
            "bus": Out(AXI4Lite(address_width=address_width)),
        })

    def elaborate(self, platform):
        m = Module()
        bus, request, reply = self.bus, self.requests, self.replies
        m.d.comb += [
            bus.awaddr.eq(request.p.address), bus.araddr.eq(request.p.address),
            bus.wdata.eq(request.p.data), bus.wstrb.eq(0b1111),
        ]

        def clear_after(valid, ready):
            """Clear `valid` after the handshake."""
            with m.If(valid & ready):
                m.d.sync += valid.eq(0)

        for channel in ("aw", "w", "ar"):
            clear_after(getattr(bus, f"{channel}valid"), getattr(bus, f"{channel}ready"))
        with m.FSM():
            with m.State("IDLE"), m.If(request.valid):
                write = request.p.write
                m.d.sync += [reply.p.data.eq(0), reply.p.refused.eq(1)]
                with m.If(request.p.address[self.address_width:].any()):
                    m.next = "REPLY"
                with m.Else():
                    m.d.sync += [bus.awvalid.eq(write), bus.wvalid.eq(write),
                                 bus.arvalid.eq(~write)]
                    m.next = "WAIT"
            with m.State("WAIT"):
                m.d.comb += [bus.bready.eq(request.p.write), bus.rready.eq(~request.p.write)]
                with m.If(bus.bvalid & bus.bready):
                    m.d.sync += reply.p.refused.eq(bus.bresp != OKAY)
                    m.next = "REPLY"
                with m.If(bus.rvalid & bus.rready):
                    refused = Signal()
                    m.d.comb += refused.eq(bus.rresp != OKAY)
                    m.d.sync += reply.p.refused.eq(refused)
                    with m.If(~refused):
                        m.d.sync += reply.p.data.eq(bus.rdata)
                    m.next = "REPLY"
            with m.State("REPLY"):
                m.d.comb += reply.valid.eq(1)
                with m.If(reply.ready):
                    m.d.comb += request.ready.eq(1)
                    m.next = "IDLE"
        return m
