"""Watchdog: the cycles in which `stopped` is set."""

import pytest
from amaranth.sim import Simulator
from hotrow_rtl.memory.watchdog import Watchdog


def run(timeout, cycles, waiting=lambda cycle: True, progress=lambda cycle: False,
        restart=lambda cycle: False):
    """Return the cycles in which `stopped` is high."""
    watchdog, stopped = Watchdog(), []

    async def drive(ctx):
        ctx.set(watchdog.timeout, timeout)
        await ctx.tick()
        for cycle in range(cycles):
            for name, rule in (("waiting", waiting), ("progress", progress), ("restart", restart)):
                ctx.set(getattr(watchdog, name), rule(cycle))
            if ctx.get(watchdog.stopped):
                stopped.append(cycle)
            await ctx.tick()
    simulator = Simulator(watchdog)
    simulator.add_clock(1e-8)
    simulator.add_testbench(drive)
    simulator.run()
    return stopped


@pytest.mark.parametrize("timeout", [1, 2, 10])
def test_stops_after_timeout_cycles_without_progress(timeout):
    assert run(timeout, 20) == list(range(timeout, 20))


def test_zero_never_stops():
    assert run(0, 100) == []


def test_progress_and_idle_cycles_clear_the_count():
    assert run(5, 100, progress=lambda cycle: cycle % 5 == 0) == []
    assert run(5, 100, waiting=lambda cycle: cycle % 5 != 0) == []
    assert run(4, 30, progress=lambda cycle: cycle == 10)[0] == 4
    assert run(5, 30, progress=lambda cycle: cycle in (3, 8, 12))[0] == 18


def test_stays_stopped_until_restart():
    assert run(3, 12, progress=lambda cycle: cycle > 4, restart=lambda cycle: cycle == 8) == list(
        range(3, 9))
    assert run(3, 12, restart=lambda cycle: cycle == 5) == [3, 4, 5, 9, 10, 11]
