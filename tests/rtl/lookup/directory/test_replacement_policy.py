"""Priorities of every policy are those of the golden model."""

import pytest
from amaranth import Module, Signal
from amaranth.sim import Simulator
from hotrow_rtl.lookup.directory.payloads import Policy
from hotrow_rtl.lookup.directory.replacement_policy import filled, swept, used
from hotrow_sim.golden.lookup.slot_table import POLICIES

WIDTH = 4
RULES = {"filled": lambda policy, priority, count: filled(policy, count),
         "used": used, "swept": lambda policy, priority, count: swept(policy, priority)}


@pytest.mark.parametrize("policy", list(Policy), ids=lambda policy: policy.name.lower())
def test_priorities(policy):
    m, golden = Module(), POLICIES[policy.name.lower()]
    chosen, priority, count = Signal(Policy), Signal(WIDTH), Signal(WIDTH)
    found = {name: Signal(WIDTH, name=name) for name in RULES}
    m.d.comb += [found[name].eq(rule(chosen, priority, count)) for name, rule in RULES.items()]

    async def run(ctx):
        ctx.set(chosen, policy)
        for number in range(1 << WIDTH):
            for counted in range(1 << WIDTH):
                ctx.set(priority, number)
                ctx.set(count, counted)
                await ctx.delay(1e-9)
                expected = {"filled": golden.filled(counted), "used": golden.used(number, counted),
                            "swept": golden.swept(number)}
                assert {name: ctx.get(each) for name, each in found.items()} == expected, (
                    number, counted)
    simulator = Simulator(m)
    simulator.add_testbench(run)
    simulator.run()
