"""A unit whose AXI4 masters end at a memory, so that its other ports alone are left to drive."""

from amaranth import Cat, Module, Shape, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from hotrow_rtl.memory.axi import AXI4Read, AXI4Write
from hotrow_rtl.primitives.fifo import RamFifo

BURSTS = 64  # at the memory


class OnMemory(wiring.Component):
    """A unit, and a memory at each of its buses.

    The memory answers bursts in order, each with what its inputs say, and at once unless they
    stall it.

    Parameters
    ----------
    unit : wiring.Component
        It has buses named `bus`, `read_bus` or `write_bus`.
    flush : bool
        `restart` is that of a mover: `clear` of the unit follows it until the unit is idle.

    Attributes
    ----------
    memory_data, memory_fault : In
        Of the next beat that a memory returns.
    late : In(5)
        Stalls AR, R, AW, W and B.
    seen_ar, seen_aw, seen_w : Out(stream)
        What the unit sends to its memories.
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
                members |= {"memory_data": In(8 * bus.bus_bytes), "seen_ar": _seen(bus, "ar")}
            else:
                members |= {"seen_aw": _seen(bus, "aw"), "seen_w": _seen(bus, "w")}
        super().__init__(members | {"memory_fault": In(1), "late": In(5)})

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

    def _read(self, m, bus):
        m.submodules.ar = bursts = RamFifo(len(bus.arid) + len(bus.arlen), BURSTS)
        beat = Signal.like(bus.arlen)
        ar_late, r_late, *_ = self.late
        _show(m, self.seen_ar, bus, "ar")
        m.d.comb += [
            bursts.i.valid.eq(bus.arvalid & ~ar_late),
            bursts.i.p.eq(Cat(bus.arlen, bus.arid)),
            bus.arready.eq(bursts.i.ready & ~ar_late),
            bus.rvalid.eq(bursts.o.valid & ~r_late),
            bus.rid.eq(bursts.o.p >> len(bus.arlen)),
            bus.rlast.eq(beat == bursts.o.p[:len(bus.arlen)]),
            bus.rdata.eq(self.memory_data),
            bus.rresp.eq(self.memory_fault << 1),
            bursts.o.ready.eq(bus.rvalid & bus.rready & bus.rlast),
        ]
        with m.If(bus.rvalid & bus.rready):
            m.d.sync += beat.eq(beat + 1)
            with m.If(bus.rlast):
                m.d.sync += beat.eq(0)

    def _write(self, m, bus):
        m.submodules.aw = bursts = RamFifo(len(bus.awid), BURSTS)
        written = Signal(range(BURSTS))  # bursts whose words have come
        *_, aw_late, w_late, b_late = self.late
        _show(m, self.seen_aw, bus, "aw")
        _show(m, self.seen_w, bus, "w")
        ends, answered = bus.wvalid & bus.wready & bus.wlast, bus.bvalid & bus.bready
        m.d.comb += [
            bursts.i.valid.eq(bus.awvalid & ~aw_late),
            bursts.i.p.eq(bus.awid),
            bus.awready.eq(bursts.i.ready & ~aw_late),
            bus.wready.eq(~w_late),
            bus.bvalid.eq(bursts.o.valid & (written != 0) & ~b_late),
            bus.bid.eq(bursts.o.p),
            bus.bresp.eq(self.memory_fault << 1),
            bursts.o.ready.eq(answered),
        ]
        m.d.sync += written.eq(written + ends - answered)


def _sent(signature, channel):
    """Payload signals of a master's channel."""
    return [name for name in signature.members
            if name.startswith(channel) and name[len(channel):] not in ("valid", "ready")]


def _seen(signature, channel):
    width = sum(signature.members[name].shape for name in _sent(signature, channel))
    return Out(stream.Signature(width, always_ready=True))


def _show(m, port, bus, channel):
    m.d.comb += [port.valid.eq(getattr(bus, f"{channel}valid")),
                 port.payload.eq(Cat(getattr(bus, name)
                                     for name in _sent(bus.signature, channel)))]


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
