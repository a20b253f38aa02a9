"""A unit whose AXI4 masters end at a memory, so that its other ports alone are left to drive."""

from amaranth import Assert, Cat, Module, Mux, Shape, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from hotrow_rtl.memory.axi import LENGTH_WIDTH, AXI4Read, AXI4Write
from hotrow_rtl.primitives.fifo import RamFifo

BURSTS = 64  # at the memory


class OnMemory(wiring.Component):
    """A unit, and a memory at each of its buses.

    The memory answers bursts in order, at once unless `late` stalls it, with data and faults that
    depend on the address only.

    Parameters
    ----------
    unit : wiring.Component
        It has buses named `bus`, `read_bus` or `write_bus`.
    flush : bool
        `restart` is that of a mover: `clear` of the unit follows it until the unit is idle.

    Attributes
    ----------
    late : In(5)
        Stalls AR, R, AW, W and B.
    read : Out(stream)
        The bursts that the unit requests.
    written : Out(stream).array
        By id: address, data and strobes of each word that the unit writes.

    What is on a bus after a restart stays there, as AXI4 demands; `read` and `written` leave it
    out.
    """

    def __init__(self, unit, flush=False):
        self.unit, self.flush = unit, flush
        members: dict = {}
        self.buses, self.inner = {}, []
        for name, member in unit.signature.members.items():
            if member.is_signature and isinstance(member.signature, AXI4Read | AXI4Write):
                self.buses[name] = member.signature
            elif not (flush and name == "clear"):
                members[name] = _pulsed(member) or member
                self.inner.append(name)
        for bus in self.buses.values():
            if isinstance(bus, AXI4Read):
                members["read"] = Out(stream.Signature(
                    bus.id_width + bus.address_width + LENGTH_WIDTH, always_ready=True))
            else:
                members["written"] = Out(stream.Signature(
                    bus.address_width + 9 * bus.bus_bytes, always_ready=True)).array(
                        1 << bus.id_width)
        super().__init__(members | {"late": In(5)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.unit = unit = self.unit
        for name in self.inner:
            _join(m, self.signature.members[name], getattr(self, name), getattr(unit, name))
        for name, signature in self.buses.items():
            side = self._read if isinstance(signature, AXI4Read) else self._write
            side(m, getattr(unit, name))
        if self.flush:
            with m.If(self.restart):
                m.d.sync += unit.clear.eq(1)
            with m.Elif(unit.idle):
                m.d.sync += unit.clear.eq(0)
        return m

    def _kept(self, m, valid, ready):
        """Whether what is on a channel may be from before a restart."""
        restarted, waits = Signal(), Signal()
        m.d.sync += [restarted.eq(self.restart), waits.eq((restarted | waits) & valid & ~ready)]
        return restarted | waits

    def _read(self, m, bus):
        m.submodules.ar = bursts = RamFifo(_burst(bus, bus.araddr, bus.arid), BURSTS)
        beat = Signal(LENGTH_WIDTH)
        ar_late, r_late, *_ = self.late
        word = _word(bursts.o.p.address, beat, bus)
        m.d.comb += [
            bus.arready.eq(bursts.i.ready & ~ar_late),
            bursts.i.valid.eq(bus.arvalid & bus.arready),
            bursts.i.p.address.eq(bus.araddr),
            bursts.i.p.id.eq(bus.arid),
            bursts.i.p.len_minus_1.eq(bus.arlen),
            self.read.valid.eq(bursts.i.valid & ~self._kept(m, bus.arvalid, bus.arready)),
            self.read.payload.eq(bursts.i.p),
            bus.rvalid.eq(bursts.o.valid & ~r_late),
            bus.rid.eq(bursts.o.p.id),
            bus.rlast.eq(beat == bursts.o.p.len_minus_1),
            bus.rdata.eq(word[:32].replicate(-(-len(bus.rdata) // 32))),
            bus.rresp.eq(_fault(word)),
            bursts.o.ready.eq(bus.rvalid & bus.rready & bus.rlast),
        ]
        with m.If(bus.rvalid & bus.rready):
            m.d.sync += beat.eq(Mux(bus.rlast, 0, beat + 1))

    def _write(self, m, bus):
        m.submodules.aw = bursts = RamFifo(_burst(bus, bus.awaddr, bus.awid), BURSTS)
        m.submodules.b = answers = RamFifo(
            data.StructLayout({"id": len(bus.bid), "fault": 2}), BURSTS)
        beat = Signal(LENGTH_WIDTH)
        *_, aw_late, w_late, b_late = self.late
        word = _word(bursts.o.p.address, beat, bus)
        m.d.comb += [
            bus.awready.eq(bursts.i.ready & ~aw_late),
            bursts.i.valid.eq(bus.awvalid & bus.awready),
            bursts.i.p.address.eq(bus.awaddr),
            bursts.i.p.id.eq(bus.awid),
            bursts.i.p.len_minus_1.eq(bus.awlen),
            bus.wready.eq(bursts.o.valid & answers.i.ready & ~w_late),
            bursts.o.ready.eq(bus.wvalid & bus.wready & bus.wlast),
            answers.i.valid.eq(bursts.o.ready),
            answers.i.p.id.eq(bursts.o.p.id),
            answers.i.p.fault.eq(_fault(word)),
            bus.bvalid.eq(answers.o.valid & ~b_late),
            bus.bid.eq(answers.o.p.id),
            bus.bresp.eq(answers.o.p.fault),
            answers.o.ready.eq(bus.bvalid & bus.bready),
        ]
        kept = self._kept(m, bus.wvalid, bus.wready)
        for number, port in enumerate(self.written):
            m.d.comb += [
                port.valid.eq(bus.wvalid & bus.wready & bus.wstrb.any() & ~kept
                              & (bursts.o.p.id == number)),
                port.payload.eq(Cat(bus.wstrb, *(
                    Mux(strobe, octet, 0) for strobe, octet in zip(
                        bus.wstrb, (bus.wdata.word_select(lane, 8)
                                    for lane in range(len(bus.wstrb))), strict=True)), word)),
            ]
        with m.If(bus.wvalid & bus.wready):
            m.d.sync += beat.eq(Mux(bus.wlast, 0, beat + 1))
            m.d.sync += Assert(bus.wlast == (beat == bursts.o.p.len_minus_1))


def _burst(bus, address, identity):
    return data.StructLayout({
        "len_minus_1": LENGTH_WIDTH, "address": len(address), "id": len(identity)})


def _word(address, beat, bus):
    """Number of the bus word that a beat accesses."""
    width = bus.signature.bus_bytes.bit_length() - 1
    return (address[width:] + beat)[:len(address) - width]


def _fault(word):
    """The response to an access of a word: an error at one word in eight."""
    return (word[1] & word[3] & word[4]) << 1


def _pulsed(member):
    """An output with a field `valid`, as a stream that is always ready."""
    if (member.is_port and member.flow is not In and isinstance(member.shape, data.StructLayout)
            and "valid" in dict(member.shape)):
        return Out(stream.Signature(Shape.cast(member.shape).width, always_ready=True))
    return None


def _join(m, member, outer, inner):
    """Connect a port of a component with the same port of the unit inside."""
    if member.is_signature and isinstance(inner, data.View):  # see `_pulsed`
        m.d.comb += [outer.valid.eq(inner.valid), outer.payload.eq(inner)]
        return
    if member.dimensions:
        for one, other in zip(outer, inner, strict=True):
            _join(m, type(member)(member.flow, member.signature if member.is_signature
                                  else member.shape), one, other)
    elif member.is_signature:
        connect(m, flipped(outer), inner)
    elif member.flow is In:
        m.d.comb += inner.eq(outer)
    else:
        m.d.comb += outer.eq(inner)
