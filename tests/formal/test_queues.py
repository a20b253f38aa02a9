"""Queues: payloads leave in order, once, unchanged, after a bounded wait."""

import pytest
from amaranth import Elaboratable, Module, Signal
from amaranth.asserts import AnySeq
from amaranth.hdl import Assert, Cover
from hotrow_rtl.primitives.fifo import RamFifo
from hotrow_rtl.primitives.skid_buffer import SkidBuffer

from tests.formal.prover import after_reset, free_inputs, mutated, opened, row_of, verify

WIDTH = 2


def follow_one(m, queue, clear=0):
    """Track an arbitrary payload; assert that it leaves in order, unchanged.

    Returns
    -------
    inside, follows, ahead, payload : Value
        Number of payloads inside; whether one is tracked; how many precede it; its value.
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
        Assert(~held | queue.o.valid & (queue.o.p == before)),  # until `ready`
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
        # Invariants.
        own = opened(fifo)
        place = Signal.like(own.read_row)
        row, addressed = row_of(own.rows, place)
        m.d.comb += [
            Assert((own.write_row - own.read_row)[:len(place)] == own.stored[:len(place)]),
            Assert(own.stored <= depth),
            Assert(own.not_empty == (own.stored != 0)),
            Assert(own.full == (own.stored == depth)),
            place.eq(own.read_row + ahead - fifo.o.valid),
            addressed,
        ]
        with m.If(follows & (ahead >= fifo.o.valid)):
            m.d.comb += Assert(row.data == payload)
        return m


class Register(Elaboratable):
    """`SkidBuffer`: order, capacity, a payload a cycle."""

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
            Assert(inside == skid.o.valid + ~own.spare_empty),
            Assert(skid.i.ready | stopped),  # it accepts a payload a cycle without stalls
            Cover(inside == 2),
            Cover(~skid.i.ready & skid.o.ready),
        ]
        if not skid.rigid:
            m.d.comb += Assert(own.spare_empty | skid.o.valid)
        with m.If(follows & (ahead == skid.o.valid)):
            m.d.comb += Assert(own.spare == payload)
        return m


QUEUES = {
    "fifo-2": lambda: Fifo(RamFifo(WIDTH, 2)),
    "fifo-8": lambda: Fifo(RamFifo(WIDTH, 8)),
    "skid": lambda: Register(SkidBuffer(WIDTH)),
    "rigid": lambda: Register(SkidBuffer(WIDTH, rigid=True)),
}
BUGS = {
    "full a row late": lambda: Fifo(mutated(
        RamFifo, "push & (stored == self.depth - 1)", "push & (stored == self.depth)")(WIDTH, 2)),
    "loads when empty": lambda: Fifo(mutated(
        RamFifo, "push | (stored != 1)", "push | not_empty")(WIDTH, 2)),
    "clear forgets the output": lambda: Fifo(mutated(
        RamFifo, "not_empty, full, self.o.valid)]", "not_empty, full)]")(WIDTH, 2)),
    "spare overwritten": lambda: Register(mutated(
        SkidBuffer, "with m.If(spare_empty):", "with m.If(self.i.valid):")(WIDTH)),
    "spare forgotten": lambda: Register(mutated(
        SkidBuffer, "self.o.valid.eq(~spare_empty | self.i.valid)",
        "self.o.valid.eq(self.i.valid)")(WIDTH)),
}


@pytest.mark.parametrize("queue", QUEUES)
def test_queue(queue, tmp_path):
    assert verify(QUEUES[queue](), tmp_path, depth=3) == "PASS"


@pytest.mark.parametrize("queue", ["fifo-2", "rigid"])
def test_queue_reaches(queue, tmp_path):
    assert verify(QUEUES[queue](), tmp_path, mode="cover", depth=12) == "PASS"


@pytest.mark.parametrize("bug", BUGS)
def test_queue_bug(bug, tmp_path):
    assert verify(BUGS[bug](), tmp_path, mode="bmc", depth=12) == "FAIL"
