"""AXI4-Lite slave: one register access at a time."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..memory.axi import OKAY, SLVERR, AXI4Lite


def register_access(address_width) -> data.StructLayout:
    """A read or write of the 32-bit register at `word` * 4."""
    return data.StructLayout({
        "word": address_width - 2, "write": 1, "data": 32, "strobe": 4})


register_reply = data.StructLayout({"data": 32, "refused": 1})


class AXI4LiteSlave(wiring.Component):
    """Convert the five channels to a stream of accesses, and its replies to responses.

    AW and W may arrive in either order. The lower two bits of an address are ignored. A write has
    priority over a read that waits with it; as the next write needs the master to accept the
    response first, the read is then served.

    Parameters
    ----------
    address_width : int
        Bits of a byte address, at least 3.

    Attributes
    ----------
    bus : In(AXI4Lite(address_width=address_width))
    accesses : Out(stream(register_access(address_width)))
    replies : In(stream(register_reply))
        One per access, in order; `refused` becomes SLVERR.

    Timing
    ------
    An access is valid 2 cycles after its last handshake; its response follows its reply by 1. An
    access waits for at most one of the other direction, beside responses that the master does not
    accept: with accesses accepted within A cycles and replied to within R, a response is valid
    2 * (A + R) + 3 cycles after its request at the latest.
    """

    def __init__(self, address_width):
        self.address_width = address_width
        super().__init__({
            "bus": In(AXI4Lite(address_width=address_width)),
            "accesses": Out(stream.Signature(register_access(address_width))),
            "replies": In(stream.Signature(register_reply)),
        })

    def elaborate(self, platform):
        m = Module()
        bus, access, reply = self.bus, self.accesses, self.replies

        def register(valid, ready, *members):
            """Register a channel; the caller clears the first signal returned."""
            full = Signal(name=f"{members[0].name}_full")
            registers = [Signal.like(member, name=f"{member.name}_q") for member in members]
            m.d.comb += ready.eq(~full)
            with m.If(valid & ready):
                m.d.sync += [full.eq(1), *(
                    register.eq(member)
                    for register, member in zip(registers, members, strict=True))]
            return full, registers

        write_address_full, [write_address] = register(bus.awvalid, bus.awready, bus.awaddr)
        write_data_full, [write_data, strobe] = register(
            bus.wvalid, bus.wready, bus.wdata, bus.wstrb)
        read_full, [read_address] = register(bus.arvalid, bus.arready, bus.araddr)

        # A response that waits for the master blocks only its own direction.
        can_write = write_address_full & write_data_full & ~bus.bvalid
        can_read = read_full & ~bus.rvalid
        writing = Signal()
        with m.If(bus.bvalid & bus.bready):
            m.d.sync += bus.bvalid.eq(0)
        with m.If(bus.rvalid & bus.rready):
            m.d.sync += bus.rvalid.eq(0)

        with m.FSM() as fsm:
            with m.State("ARBITRATE"), m.If(can_write | can_read):
                m.d.sync += writing.eq(can_write)
                m.next = "ACCESS"
            with m.State("ACCESS"), m.If(access.ready):
                m.next = "REPLY"
            with m.State("REPLY"):
                response = Mux(reply.p.refused, SLVERR, OKAY)
                with m.If(reply.valid):
                    with m.If(writing):
                        m.d.sync += [
                            write_address_full.eq(0),
                            write_data_full.eq(0),
                            bus.bvalid.eq(1),
                            bus.bresp.eq(response),
                        ]
                    with m.Else():
                        m.d.sync += [
                            read_full.eq(0),
                            bus.rvalid.eq(1),
                            bus.rresp.eq(response),
                            bus.rdata.eq(reply.p.data),
                        ]
                    m.next = "ARBITRATE"
        m.d.comb += [
            access.valid.eq(fsm.ongoing("ACCESS")),
            reply.ready.eq(fsm.ongoing("REPLY")),
            access.p.word.eq(Mux(writing, write_address, read_address)[2:]),
            access.p.write.eq(writing),
            access.p.data.eq(write_data),
            access.p.strobe.eq(strobe),
        ]
        return m
