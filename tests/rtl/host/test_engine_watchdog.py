"""The watchdog of the engines: still engines are reported, slow ones are not."""

from dataclasses import replace

import numpy as np
import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.host.engine_watchdog import EngineWatchdog

from tests.support.benches.stream_bench import StreamBench
from tests.support.simulation import built

CONFIG = replace(preset("tiny"), burst_beats=4)
QUIET_LOG2 = 6


def play(timeout, waiting, progress):
    """(cycle, stalled) of each pulse; the inputs of each cycle are bits of the queues."""
    dut = built(EngineWatchdog, CONFIG, queues=2)
    dut.quiet_log2 = QUIET_LOG2
    bench, pulses = StreamBench(dut), []

    async def drive(ctx):
        ctx.set(dut.timeout, timeout)
        for cycle, inputs in enumerate(zip(waiting, progress, strict=True)):
            for port, value in zip((dut.waiting, dut.progress), inputs, strict=True):
                ctx.set(port, int(value))
            _, _, stalled = await ctx.tick().sample(dut.stalled)
            if stalled:
                pulses.append((cycle, stalled))
    bench.process("drive", drive)
    bench.run(len(waiting) + 1)
    return pulses, max(1 << QUIET_LOG2, dut.slack * timeout) + 2


@pytest.mark.parametrize("timeout", [1, 3, 7, 20])
@pytest.mark.parametrize("last", [0, 37, 150])
@pytest.mark.parametrize("queue", [0, 1])
def test_a_still_engine_is_reported_within_two_periods(timeout, last, queue):
    """While the other queue moves."""
    cycles = np.arange(last + 5000)
    waiting = np.full_like(cycles, 0b11)
    progress = (cycles <= last) << queue | 1 << (1 - queue)
    pulses, period = play(timeout, waiting, progress)
    first, stalled = pulses[0]
    assert stalled == 1 << queue
    assert period <= first - last <= 2 * period + 1


@pytest.mark.parametrize("timeout, waiting, gap", [
    (0, 0b11, 5000),  # no limit
    (7, 0b00, 5000),  # no command
    (7, 0b11, 4 * 4 * 7),  # a handshake in every period
    (1, 0b11, 1 << QUIET_LOG2),  # an engine that computes
])
def test_no_report(timeout, waiting, gap):
    cycles = np.arange(5000)
    progress = np.where(cycles % gap == gap - 1, 0b11, 0)
    pulses, _ = play(timeout, np.full_like(cycles, waiting), progress)
    assert pulses == []
