"""Routers by address: one memory at a time owes answers, a burst goes to that of its address."""

import pytest
from amaranth import Cat, Elaboratable, Module, Signal
from amaranth.hdl import Assert, Assume, Cover
from hotrow_boards.dram.address_router import ReadRouter, WriteRouter
from hotrow_rtl.memory.axi import AXI4Read, AXI4Write

from tests.formal.axi_rules import holds
from tests.formal.prover import after_reset, free_inputs, mutated, verify

BUS = {"address_width": 6, "bus_bytes": 1, "id_width": 1}
KINDS = {"reads": (ReadRouter, AXI4Read), "writes": (WriteRouter, AXI4Write)}
DEPTH = 8


class Routed(Elaboratable):
    """Of a master that keeps its address until it is accepted, and memories that answer what they
    owe; data of a write may come at any time, and a burst of data end in any cycle."""

    def __init__(self, router):
        self.router = router

    def elaborate(self, platform):
        m = Module()
        m.submodules.router = router = self.router
        free_inputs(m, router)
        channel, answer = router.channel, "r" if router.channel == "ar" else "b"
        master, payload = router.master, [f"{channel}{name}" for name in ("addr", "len", "id")]

        def pair(bus, name):
            return getattr(bus, f"{name}valid"), getattr(bus, f"{name}ready")

        def fires(bus, name):
            valid, ready = pair(bus, name)
            return valid & ready & getattr(bus, f"{name}last", 1)

        waits, before = Signal(), Signal(sum(len(getattr(master, name)) for name in payload))
        given = Cat(getattr(master, name) for name in payload)
        m.d.sync += [waits.eq(pair(master, channel)[0] & ~pair(master, channel)[1]),
                     before.eq(given)]
        m.d.comb += [Assume(~waits | pair(master, channel)[0] & (given == before)),
                     Assume(~after_reset(m) | ~pair(master, channel)[0])]
        owed = []
        for bit, memory in enumerate((router.low, router.high)):
            accepted = fires(memory, channel)
            owes, sending = (Signal(range(DEPTH + 1), name=f"{name}_{bit}")
                             for name in ("owes", "sending"))
            m.d.sync += owes.eq(owes + accepted - fires(memory, answer))
            holds(m, *pair(memory, channel), [getattr(memory, name) for name in payload])
            at = getattr(master, f"{channel}addr")
            # A write is answered after its data.
            ready = owes if channel == "ar" else Signal(range(DEPTH + 1), name=f"ready_{bit}")
            m.d.comb += [
                Assume(~pair(memory, answer)[0] | (ready != 0)),
                Assert(~accepted | fires(master, channel) & (at[-1] == bit)
                       & (getattr(memory, f"{channel}addr") == at[:-1])),
                Assert(~fires(memory, answer) | fires(master, answer)),
                Cover(fires(memory, answer)),
            ]
            if channel == "aw":
                m.d.sync += [sending.eq(sending + accepted - fires(memory, "w")),
                             ready.eq(ready + fires(memory, "w") - fires(memory, answer))]
                m.d.comb += [
                    Assert(~memory.wvalid | (sending != 0)),
                    Assert(~(memory.wvalid & memory.wready) | master.wvalid & master.wready),
                    Cover(fires(memory, "w")),
                ]
            owed.append(owes)
        m.d.comb += [
            Assert((owed[0] == 0) | (owed[1] == 0)),
            Assert(~pair(master, answer)[0] | (owed[0] != 0) | (owed[1] != 0)),
        ]
        return m


@pytest.mark.parametrize("kind", KINDS)
def test_a_burst_goes_to_the_memory_of_its_address(kind, tmp_path):
    router, signature = KINDS[kind]
    assert verify(Routed(router(signature(**BUS))), tmp_path, mode="bmc", depth=DEPTH) == "PASS"


@pytest.mark.parametrize("kind, old, new", [
    ("reads", "(current == wanted) & (outstanding != MOST)", "1"),
    ("writes", "(current == wanted) & (outstanding != MOST)", "1"),
    ("writes", "master.wvalid & (sending != 0)", "master.wvalid"),
    ("reads", "getattr(master, address)[:-1]", "getattr(master, address)[1:]")])
def test_planted_faults_are_found(kind, old, new, tmp_path):
    router, signature = KINDS[kind]
    wrong = mutated(router, old, new)(signature(**BUS))
    assert verify(Routed(wrong), tmp_path, mode="bmc", depth=DEPTH) == "FAIL"
