import dataclasses

import numpy as np
import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.serializer import LaneSerializer
from hotrow_sim.streambench import RAGGED, STEADY, StreamBench

TINY = preset("tiny")
CONFIGS = [dataclasses.replace(TINY, name=f"bus-{bus}", bus_bytes=bus, burst_beats=4)
           for bus in (16, 32, 64)]


def beats_of(config, batches, fill, seed):
    """Beats of several batches; each lane present with probability `fill`, the first ones empty."""
    rng = np.random.default_rng(seed)
    for batch in range(batches):
        size = int(rng.integers(1, 9))
        for number in range(size):
            present = rng.random(config.lanes) < (0 if batch == 0 else fill)
            yield {"last": int(number == size - 1), "lanes": [{
                "present": int(here),
                "key": {"row": int(rng.integers(1 << 32)), "table": int(rng.integers(32))},
                "sample": int(rng.integers(1024)),
                "parts_log2": int(rng.integers(4)),
                "part": int(rng.integers(8)),
                "out_of_range": int(rng.integers(2)),
                "fault": int(rng.integers(4)),
            } for here in present]}


def expected(beats):
    """(position, row, last, present) of every element that must leave."""
    position = 0
    for beat in beats:
        present = [lane for lane in beat["lanes"] if lane["present"]]
        for number, lane in enumerate(present):
            last = beat["last"] and number == len(present) - 1
            yield 1, int(last), position, lane
            position += 1
        if beat["last"]:
            if not present:
                yield 0, 1, position, None
            position = 0


def as_lane(lookup):
    return {**{name: getattr(lookup, name) for name in (
        "present", "sample", "parts_log2", "part", "out_of_range", "fault")},
        "key": {"row": lookup.key.row, "table": lookup.key.table}}


def run(config, beats, gaps, pauses):
    dut, want = LaneSerializer(config), list(expected(beats))
    bench = StreamBench(dut)
    bench.source(dut.beats, beats, gaps)
    got = bench.sink(dut.lookups, len(want), pauses, read=lambda p: (
        p.lookup.present, p.last, p.position, as_lane(p.lookup) if p.lookup.present else None))
    cycles = bench.run(limit=40 * len(beats) * config.lanes)
    assert got == want
    return len(want), cycles


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
@pytest.mark.parametrize("gaps", [STEADY, RAGGED], ids=["steady", "gaps"])
@pytest.mark.parametrize("pauses", [STEADY, RAGGED], ids=["ready", "back-pressure"])
def test_lanes_leave_in_order(config, gaps, pauses):
    count, _ = run(config, list(beats_of(config, 8, 0.5, seed=config.bus_bytes)), gaps, pauses)
    assert count > 8


@pytest.mark.parametrize("present", [1, 2, 4])
def test_no_cycle_is_lost(present):
    beats = [{"last": int(number == 49), "lanes": [
        {"present": int(lane < present)} for lane in range(TINY.lanes)]} for number in range(50)]
    dut = LaneSerializer(TINY)
    bench = StreamBench(dut)
    bench.source(dut.beats, beats)
    bench.sink(dut.lookups, 50 * present)
    assert bench.run(limit=1000) == 50 * present + LaneSerializer.latency


def test_restart_drops_the_batch():
    dut = LaneSerializer(TINY)
    bench = StreamBench(dut)
    full = {"last": 0, "lanes": [{"present": 1}] * TINY.lanes}
    end = {"last": 1, "lanes": [{"present": 1, "sample": 5}] + [{"present": 0}] * (TINY.lanes - 1)}

    async def restart_in_flight(ctx):
        ctx.set(dut.beats.p, full)
        ctx.set(dut.beats.valid, 1)
        await ctx.tick().repeat(4)
        ctx.set(dut.beats.valid, 0)
        ctx.set(dut.restart, 1)
        await ctx.tick()
        ctx.set(dut.restart, 0)
        assert not ctx.get(dut.lookups.valid), "a lookup survived the restart"
        ctx.set(dut.beats.p, end)
        ctx.set(dut.beats.valid, 1)
        await ctx.tick()
        ctx.set(dut.beats.valid, 0)
        ctx.set(dut.lookups.ready, 1)
        lookup, = await ctx.tick().sample(dut.lookups.p).until(dut.lookups.valid)
        assert (lookup.position, lookup.last, lookup.lookup.sample) == (0, 1, 5)
    bench.process("restart", restart_in_flight)
    bench.run(limit=100)
