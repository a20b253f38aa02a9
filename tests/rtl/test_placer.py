"""Placer: each owner's request and its bank, as `placement` has them for integers."""

import dataclasses

import numpy as np
import pytest
from hotrow_rtl.bank_layouts import STATUS_WIDTH, amount_width
from hotrow_rtl.config import preset
from hotrow_rtl.placement import place
from hotrow_rtl.placer import Placer
from hotrow_sim.streambench import RAGGED, STEADY, StreamBench

TINY = preset("tiny")
CONFIGS = [TINY, dataclasses.replace(TINY, name="bus-64", bus_bytes=64, counter_sets=256)]


def beats_of(config, count, seed):
    rng = np.random.default_rng(seed)
    return [{"position": number, "last": number & 1, "lanes": [{
        "present": int(rng.integers(2)),
        "status": int(rng.integers(1 << STATUS_WIDTH)),
        "key": int(rng.integers(1 << config.key_width)),
        "owner": int(rng.integers(2)),
        "amount": int(rng.integers(1 << amount_width(config))),
    } for _ in range(config.lanes)]} for number in range(count)]


def check(config, beat, out):
    carried = out.carried
    assert (carried.position, carried.last) == (beat["position"], beat["last"])
    for number, (lane, got) in enumerate(zip(beat["lanes"], out.lanes)):
        where = f"beat {beat['position']}, lane {number}"
        bank, rest = place(config, lane["key"])
        assert (got.valid, got.bank) == (lane["owner"], bank), where
        assert (got.request.rest, got.request.amount) == (rest, lane["amount"]), where
        for name in ("present", "status", "owner", "amount"):
            assert carried.lanes[number][name] == lane[name], where


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
@pytest.mark.parametrize("gaps, pauses", [(STEADY, STEADY), (RAGGED, STEADY), (STEADY, RAGGED)],
                         ids=["steady", "gaps", "back-pressure"])
def test_requests_of_owners(config, gaps, pauses):
    dut, beats = Placer(config), beats_of(config, 60, seed=9)
    bench = StreamBench(dut)
    bench.source(dut.combined, beats, gaps)
    taken = bench.sink(dut.beats, len(beats), pauses)
    cycles = bench.run(1000)
    for beat, out in zip(beats, taken, strict=True):
        check(config, beat, out)
    if gaps is STEADY and pauses is STEADY:
        assert cycles == len(beats) + Placer.latency


def test_restart_drops_the_beat():
    dut = Placer(TINY)
    bench = StreamBench(dut)

    async def drive(ctx):
        ctx.set(dut.combined.valid, 1)
        await ctx.tick().repeat(2)
        ctx.set(dut.restart, 1)
        await ctx.tick()
        ctx.set(dut.combined.valid, 0)
        assert not ctx.get(dut.beats.valid)
    bench.process("drive", drive)
    bench.run(10)
