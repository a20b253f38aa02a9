"""Queues: what goes in comes out, in order, once; nothing is lost, and nothing waits for ever."""

import pytest
from amaranth import Elaboratable, Module, Mux, Signal
from amaranth.asserts import AnySeq
from amaranth.hdl import Assert, Cover
from hotrow_rtl.primitives.fifo import RamFifo
from hotrow_rtl.primitives.ping_pong_buffer import PingPong
from hotrow_rtl.primitives.skid_buffer import SkidBuffer

from tests.formal.prover import after_reset, free_inputs, mutated, opened, quick, row_of, verify

WIDTH = 2


def follow_one(m, queue, clear=0):
    """Pick any payload that goes in; say that it comes out after those before it, unchanged.

    Returns
    -------
    inside, follows, ahead, payload : Value
        Payloads inside; whether one is followed, how many are before it, and what it is.
    """
    inside, follows, ahead = Signal(8), Signal(), Signal(8)
    payload = Signal.like(queue.i.p)
    pick, taken, left = Signal(), Signal(), Signal()
    held, before = Signal(), Signal.like(queue.o.p)
    m.d.comb += [
        pick.eq(AnySeq(1)),
        taken.eq(queue.i.valid & queue.i.ready),
        left.eq(queue.o.valid & queue.o.ready),
        Assert(~queue.o.valid | (inside != 0)),
        Assert(~held | queue.o.valid & (queue.o.p == before)),  # until it is taken
    ]
    m.d.sync += [
        inside.eq(inside + taken - left), held.eq(queue.o.valid & ~queue.o.ready),
        before.eq(queue.o.p)]
    with m.If(follows):
        m.d.comb += Assert(ahead < inside)
        m.d.sync += ahead.eq(ahead - left)
        with m.If(queue.o.valid & (ahead == 0)):
            m.d.comb += [Assert(queue.o.p == payload), Cover(left)]
            with m.If(left):
                m.d.sync += follows.eq(0)
    with m.Elif(taken & pick):
        m.d.sync += [follows.eq(1), ahead.eq(inside - left), payload.eq(queue.i.p)]
    with m.If(clear):
        m.d.sync += [inside.eq(0), follows.eq(0), held.eq(0)]
    return inside, follows, ahead, payload


class Fifo(Elaboratable):
    """`RamFifo`: order, level, capacity; a payload waits at most one cycle for an empty output."""

    def __init__(self, fifo):
        self.fifo = fifo

    def elaborate(self, platform):
        m = Module()
        m.submodules.fifo = fifo = self.fifo
        free_inputs(m, fifo)
        depth = fifo.depth
        inside, follows, ahead, payload = follow_one(m, fifo, fifo.clear)
        waited = Signal()
        m.d.sync += waited.eq((fifo.level != 0) & ~fifo.o.valid & ~fifo.clear)
        m.d.comb += [
            Assert(fifo.level == inside),
            Assert(inside <= depth + 1),
            Assert(fifo.i.ready | (inside >= depth)),
            Assert(~waited | fifo.o.valid),
            Assert(~after_reset(m) | ~fifo.o.valid),
            Cover(inside == depth + 1),
        ]
        # What holds inside.
        own = opened(fifo)
        place = Signal.like(own.read_at)
        row, addressed = row_of(own.rows, place)
        m.d.comb += [
            Assert((own.write_at - own.read_at)[:len(place)] == own.stored[:len(place)]),
            Assert(own.stored <= depth),
            Assert(own.some == (own.stored != 0)),
            Assert(own.full == (own.stored == depth)),
            place.eq(own.read_at + ahead - fifo.o.valid),
            addressed,
        ]
        with m.If(follows & (ahead >= fifo.o.valid)):
            m.d.comb += Assert(row.data == payload)
        return m


class Register(Elaboratable):
    """`SkidBuffer`: order, `ready` a register, a payload a cycle; a rigid one moves when it may."""

    def __init__(self, skid):
        self.skid = skid

    def elaborate(self, platform):
        m = Module()
        m.submodules.skid = skid = self.skid
        free_inputs(m, skid)
        inside, follows, ahead, payload = follow_one(m, skid)
        own = opened(skid)
        stopped = Signal()
        m.d.sync += stopped.eq(~skid.o.ready)
        m.d.comb += [
            Assert(inside == skid.o.valid + ~own.empty),
            Assert(skid.i.ready | stopped),  # it takes one a cycle while nothing stops it
            Cover(inside == 2),
            Cover(~skid.i.ready & skid.o.ready),
        ]
        if not skid.rigid:
            m.d.comb += Assert(own.empty | skid.o.valid)
        with m.If(follows & (ahead == skid.o.valid)):
            m.d.comb += Assert(own.spare == payload)
        return m


class Alike(Elaboratable):
    """`PingPong`: what `SkidBuffer` does, cycle for cycle."""

    def __init__(self, ping_pong):
        self.ping_pong = ping_pong

    def elaborate(self, platform):
        m = Module()
        m.submodules.ping_pong = ping_pong = self.ping_pong
        m.submodules.skid = skid = SkidBuffer(WIDTH)
        free_inputs(m, skid)
        own, other = opened(ping_pong), opened(skid)
        m.d.comb += [
            ping_pong.i.valid.eq(skid.i.valid),
            ping_pong.i.p.eq(skid.i.p),
            ping_pong.o.ready.eq(skid.o.ready),
            Assert(ping_pong.i.ready == skid.i.ready),
            Assert(ping_pong.o.valid == skid.o.valid),
            Assert(~skid.o.valid | (ping_pong.o.p == skid.o.p)),
            Cover(~skid.i.ready & skid.o.ready),
            # What holds inside.
            Assert(other.empty | skid.o.valid),
            Assert(own.writes ^ own.reads == (skid.o.valid & other.empty)),
            Assert(other.empty | (Mux(own.reads, *own.held) == other.spare)),
        ]
        return m


QUEUES = {
    "fifo-2": lambda: Fifo(RamFifo(WIDTH, 2)),
    "fifo-8": lambda: Fifo(RamFifo(WIDTH, 8)),
    "skid": lambda: Register(SkidBuffer(WIDTH)),
    "rigid": lambda: Register(SkidBuffer(WIDTH, rigid=True)),
    "ping-pong": lambda: Alike(PingPong(WIDTH)),
}
BUGS = {
    "full a row late": lambda: Fifo(mutated(
        RamFifo, "store & (stored == self.depth - 1)", "store & (stored == self.depth)")(WIDTH, 2)),
    "loads when empty": lambda: Fifo(mutated(
        RamFifo, "store | (stored != 1)", "store | some")(WIDTH, 2)),
    "clear forgets the output": lambda: Fifo(mutated(
        RamFifo, "some, full, self.o.valid)]", "some, full)]")(WIDTH, 2)),
    "spare overwritten": lambda: Register(mutated(
        SkidBuffer, "with m.If(empty):", "with m.If(self.i.valid):")(WIDTH)),
    "spare forgotten": lambda: Register(mutated(
        SkidBuffer, "self.o.valid.eq(~empty | self.i.valid)", "self.o.valid.eq(self.i.valid)")(WIDTH)),
    "full takes more": lambda: Alike(mutated(
        PingPong, "goes | ready & ~(comes & self.o.valid)", "goes | ready & ~comes")(WIDTH)),
}


@pytest.mark.parametrize("queue", QUEUES)
def test_queue(queue, tmp_path):
    assert verify(QUEUES[queue](), tmp_path, depth=3) == "PASS"


@pytest.mark.formal
@pytest.mark.parametrize("queue", ["fifo-2", "rigid"])
def test_queue_reaches(queue, tmp_path):
    assert verify(QUEUES[queue](), tmp_path, mode="cover", depth=12) == "PASS"


@pytest.mark.parametrize("bug", quick(BUGS, "full a row late", "spare forgotten"))
def test_queue_bug(bug, tmp_path):
    assert verify(BUGS[bug](), tmp_path, mode="bmc", depth=12) == "FAIL"
