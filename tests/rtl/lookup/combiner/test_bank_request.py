"""BankRequestStage: each owner's request and its bank, as `placement` has them for integers."""

import dataclasses

import numpy as np
import pytest
from amaranth.hdl import Shape
from amaranth.lib import data
from hotrow_rtl.config import preset
from hotrow_rtl.interfaces.lookup_payloads import (
    DirectoryOp,
    combined_beat,
    row_request,
    waiting_beat,
)
from hotrow_rtl.lookup.combiner.bank_request import BankRequestStage
from hotrow_rtl.lookup.hashing.row_location import split_key

from tests.support.benches.stream_bench import RAGGED, STEADY, StreamBench
from tests.support.simulation import built

TINY = dataclasses.replace(preset("tiny"), planner=False)
CONFIGS = [TINY, dataclasses.replace(TINY, name="bus-64", bus_bytes=64, counter_sets=256,
                                     directory_sets=256, miss_entries=1024)]


def beats_of(config, count, seed):
    rng = np.random.default_rng(seed)

    def any_of(layout):
        if isinstance(layout, data.ArrayLayout):
            return [any_of(layout.elem_shape) for _ in range(layout.length)]
        if isinstance(layout, data.StructLayout):
            return {name: any_of(field.shape) for name, field in layout}
        return int(rng.integers(1 << Shape.cast(layout).width))

    return [any_of(combined_beat(config)) for _ in range(count)]


def check(config, at, beat, out):
    carried = out.carried
    for name, _ in waiting_beat(config):
        assert name == "lanes" or carried[name] == beat[name]
    for number, (lane, got) in enumerate(zip(beat["lanes"], out.lanes, strict=True)):
        where = f"beat {at}, lane {number}"
        bank, bank_key = split_key(config, lane["key"])
        assert (got.valid, got.bank) == (lane["owner"], bank), where
        request, counts, splits = got.request, beat["counts"], beat["splits"]
        assert (request.bank_key, request.amount) == (bank_key, lane["amount"] * counts), where
        shared = out.shared
        assert (shared.miss, shared.op) == (splits, DirectoryOp.FIND), where
        assert shared.epoch == beat["epoch"], where
        for name in ("parts_log2", "part"):  # as many bits of them as there are partitions for
            assert request[name] == lane[name] % (1 << row_request(config)[name].width), where
        for name, _ in waiting_beat(config)["lanes"].shape.elem_shape:
            assert carried.lanes[number][name] == lane[name], where


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
@pytest.mark.parametrize("gaps, pauses", [(STEADY, STEADY), (RAGGED, STEADY), (STEADY, RAGGED)],
                         ids=["steady", "gaps", "back-pressure"])
def test_requests_of_owners(config, gaps, pauses):
    dut, beats = built(BankRequestStage, config), beats_of(config, 60, seed=9)
    bench = StreamBench(dut)
    bench.source(dut.combined, beats, gaps)
    taken = bench.sink(dut.beats, len(beats), pauses)
    cycles = bench.run(1000)
    for at, (beat, out) in enumerate(zip(beats, taken, strict=True)):
        check(config, at, beat, out)
    if gaps is STEADY and pauses is STEADY:
        assert cycles == len(beats) + BankRequestStage.latency
