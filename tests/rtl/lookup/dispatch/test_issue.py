"""LookupIssue: what a command waits for before any unit gets it."""

from dataclasses import replace

import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.contract.encoding import Opcode, Status
from hotrow_rtl.lookup.dispatch.issue import LookupIssue

from tests.support.benches.stream_bench import StreamBench
from tests.support.simulation import built

CONFIG = replace(preset("tiny"), planner=False)
UNITS = "reader", "scan", "row_list", "kinds", "sizes"


def started(opcode, idle=1, cleared=1, released=None):
    """Cycles, of 40, in which a unit is offered the command; all take it at once.

    `idle` and `cleared` are high from the cycle `released` on.
    """
    dut = built(LookupIssue, CONFIG)
    bench, seen = StreamBench(dut), []

    async def drive(ctx):
        for port in (*(getattr(dut, name) for name in UNITS), dut.lists, dut.jobs):
            ctx.set(port.ready, 1)
        ctx.set(dut.verdict.p.status, Status.OK)
        ctx.set(dut.verdict.valid, 1)
        ctx.set(dut.command.p.opcode, opcode)
        waits = True
        for cycle in range(40):
            open_ = released is not None and cycle >= released
            ctx.set(dut.idle, idle or open_)
            ctx.set(dut.cleared, cleared or open_)
            ctx.set(dut.command.valid, waits)
            if any(ctx.get(getattr(dut, name).valid) for name in UNITS):
                seen.append(cycle)
            waits &= not ctx.get(dut.command.ready)
            await ctx.tick()
    bench.process("drive", drive)
    bench.run(100)
    return seen


@pytest.mark.parametrize("opcode", [Opcode.OBSERVE, Opcode.SPLIT, Opcode.HARVEST, Opcode.INSTALL])
@pytest.mark.parametrize("low", ["cleared", "idle"])
def test_what_the_first_command_waits_for(opcode, low):
    """The card is cleared after a reset, and nothing runs while the miss table is cleared."""
    assert started(opcode)
    assert not started(opcode, **{low: 0})
    assert min(started(opcode, **{low: 0}, released=20)) > 20
