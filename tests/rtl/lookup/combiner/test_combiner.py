"""Combiner against the golden model: owners, amounts, who joins whom; gaps between batches."""

import dataclasses
from itertools import product

import numpy as np
import pytest
from hotrow_rtl.config import EPOCH_WIDTH, preset
from hotrow_rtl.contract.encoding import Status
from hotrow_rtl.lookup.combiner.combiner import Combiner
from hotrow_rtl.lookup.combiner.pipeline_depth import latency
from hotrow_sim.golden.lookup.combiner import owners

from tests.support.benches.stream_bench import RAGGED, STEADY, StreamBench
from tests.support.simulation import built

TINY = preset("tiny")
WIDE = dataclasses.replace(TINY, name="bus-64", bus_bytes=64, counter_sets=256,
                           directory_sets=256, miss_entries=1024, window_beats=5)
REACHES = [dataclasses.replace(TINY, name=f"reach-{beats}", window_beats=beats)
           for beats in (1, 5, 15)]


def batch_of(config, beats, rows, seed, served=0.9, lanes=None, final=None):
    """One batch of `beats` beats on `rows` rows of two tables.

    `lanes` of a beat carry ids, `final` of the last one; a lookup is refused with probability
    1 - `served`, for its row or for a fault.
    """
    rng = np.random.default_rng(seed)
    counts, splits = (int(bit) for bit in rng.integers(2, size=2))
    epoch = int(rng.integers(1 << EPOCH_WIDTH))
    batch = []
    for number in range(beats):
        last = number == beats - 1
        there = final if last and final is not None else lanes or config.lanes
        refused = rng.random(config.lanes) >= served
        cause = rng.integers(1, 8, config.lanes) * refused
        batch.append({"counts": counts, "splits": splits, "epoch": epoch, "beat": {
            "last": int(last), "lanes": [{
                "present": int(lane < there),
                "key": {"row": int(rng.integers(rows)) * 0x04000081 % (1 << config.row_width),
                        "table": int(rng.integers(2))},
                "sample": int(rng.integers(1024)),
                "parts_log2": int(rng.integers(4)),
                "part": int(rng.integers(8)),
                "out_of_range": int(cause[lane]) & 1,
                "fault": int(cause[lane]) >> 1,
            } for lane in range(config.lanes)]}})
    return batch


def expected(config, batch):
    """What leaves for one batch, as `read` returns it."""
    at, keys = [], []
    for number, tagged in enumerate(batch):
        for lane, lookup in enumerate(tagged["beat"]["lanes"]):
            if lookup["present"] and not lookup["out_of_range"] and not lookup["fault"]:
                at.append((number, lane))
                keys.append(key_of(config, lookup))
    joined = owners(np.array(keys, np.uint64), np.array([beat for beat, _ in at], np.int64),
                    config.window_beats)
    amounts = np.bincount(joined, minlength=len(at)) if at else []
    verdict = {}
    for number, (beat, lane) in enumerate(at):
        owner_beat, owner_lane = at[joined[number]]
        owns = joined[number] == number
        verdict[beat, lane] = (1, int(amounts[number]), 0, 0, 0) if owns else (
            0, 0, 1, beat - owner_beat, owner_lane)
    for number, tagged in enumerate(batch):
        lanes = tagged["beat"]["lanes"]
        yield (tagged["counts"], tagged["splits"], tagged["epoch"], tagged["beat"]["last"],
               [verdict.get((number, lane), (0, 0, 0, 0, 0)) for lane in range(config.lanes)],
               [tuple(flat(config, lookup)) for lookup in lanes])


def key_of(config, lookup):
    return lookup["key"]["table"] << config.row_width | lookup["key"]["row"]


def flat(config, lookup):
    fault = lookup["fault"]
    yield from (lookup[name] for name in ("present", "sample", "parts_log2", "part"))
    yield (Status.SLVERR - 1 + fault if fault else
           Status.ROW_OUT_OF_RANGE if lookup["out_of_range"] else Status.OK)
    yield key_of(config, lookup)


def read(beat):
    return (beat.counts, beat.splits, beat.epoch, beat.last,
            [(lane.owner, lane.amount, lane.joins, lane.back, lane.lane) for lane in beat.lanes],
            [(lane.present, lane.sample, lane.parts_log2, lane.part, lane.status, lane.key)
             for lane in beat.lanes])


def run(config, batches, gaps=STEADY, pauses=STEADY):
    dut = built(Combiner, config)
    bench = StreamBench(dut)
    beats = [beat for batch in batches for beat in batch]
    bench.source(dut.beats, beats, gaps)
    taken = bench.sink(dut.combined, len(beats), pauses, read=read)
    cycles = bench.run(60 + 12 * len(beats))
    want = [beat for batch in batches for beat in expected(config, batch)]
    for number, (got, wanted) in enumerate(zip(taken, want, strict=True)):
        assert got == wanted, f"{number=}"
    return cycles


def batches_of_every_kind(config, seed):
    """Batches of every kind, the shortest first."""
    sizes = [1, 1, 2, 1, 5, 6, 3, 1, 12, 7, 2, 30]
    for number, (beats, rows) in enumerate(
            zip(sizes, [1, 3, 1, 2, 1, 3, 9, 3, 30, 2, 1, 60], strict=True)):
        yield batch_of(config, beats, rows, 100 * seed + number, served=(1, 0.8, 0.3)[number % 3],
                       lanes=max(1, config.lanes // (1 + number % 2)),
                       final=number % max(1, config.lanes // 2))


STALLS = {"steady": (STEADY, STEADY), "gaps": (RAGGED, STEADY),
          "pauses": ((0, 0, 0, 0, 11), STEADY), "back-pressure": (STEADY, RAGGED),
          "both": ((0, 2, 0, 9, 0, 0), (0, 0, 7, 0, 1))}


@pytest.mark.parametrize("config, stalls", [
    *((TINY, stalls) for stalls in STALLS), (preset("ecp5"), "both"),
    (REACHES[0], "both"), (REACHES[2], "pauses"),
    *(pytest.param(config, stalls, marks=pytest.mark.long) for config, stalls in (
        (REACHES[1], "both"), (REACHES[2], "both"), (WIDE, "pauses"),
        *product((*REACHES, WIDE), ("steady", "gaps", "back-pressure"))))],
    ids=lambda value: getattr(value, "name", value))
def test_against_the_golden_model(config, stalls):
    run(config, list(batches_of_every_kind(config, seed=1)), *STALLS[stalls])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 6))
def test_long_batches(seed):
    gaps = np.random.default_rng(seed).choice([0, 0, 0, 1, 8], 97)
    pauses = np.random.default_rng(seed + 50).choice([0, 0, 0, 1, 8], 89)
    batches = [batch for more in range(4)
               for batch in batches_of_every_kind(TINY, 10 * seed + more)]
    run(TINY, batches, [int(gap) for gap in gaps], [int(pause) for pause in pauses])


@pytest.mark.parametrize("rows", [1, 40])
def test_rate_and_latency(rows):
    """Batches back to back: a beat every cycle; the last beat follows `latency` behind."""
    batches = [batch_of(TINY, beats, rows, seed=beats) for beats in (40, 1, 1, 3, 55)]
    assert run(TINY, batches) == 100 + latency(TINY)


def test_hot_row_has_one_owner_in_its_window():
    dut = built(Combiner, TINY)
    bench = StreamBench(dut)
    lookup = {"present": 1, "key": {"row": 77, "table": 3}}
    reach = TINY.window_beats + 1
    beats = 4 * reach
    bench.source(dut.beats, [{"beat": {"last": int(number == beats - 1),
                                       "lanes": [lookup] * TINY.lanes}}
                             for number in range(beats)])
    taken = bench.sink(dut.combined, beats)
    bench.run(100)
    owning = {(number, lane): beat.lanes[lane].amount for number, beat in enumerate(taken)
              for lane in range(TINY.lanes) if beat.lanes[lane].owner}
    assert owning == {(number, 0): reach * TINY.lanes for number in range(0, beats, reach)}


class Player:
    """Beats to a combiner whose output is taken at once, with restarts in between."""

    def __init__(self):
        self.dut, self.taken = built(Combiner, TINY), []
        self.bench = StreamBench(self.dut)
        self.bench.background(self.take)

    async def take(self, ctx):
        ctx.set(self.dut.combined.ready, 1)
        while True:
            _, _, valid, beat = await ctx.tick().sample(
                self.dut.combined.valid, self.dut.combined.p)
            if valid:
                self.taken.append(read(beat))

    async def give(self, ctx, beats):
        for beat in beats:
            ctx.set(self.dut.beats.p, beat)
            ctx.set(self.dut.beats.valid, 1)
            await ctx.tick().until(self.dut.beats.ready)
        ctx.set(self.dut.beats.valid, 0)

    async def restart(self, ctx):
        ctx.set(self.dut.restart, 1)
        await ctx.tick()
        ctx.set(self.dut.restart, 0)
        assert not ctx.get(self.dut.combined.valid)
        self.taken.clear()


@pytest.mark.slow
def test_batch_leaves_though_the_next_one_stalls():
    player, following = Player(), [batch_of(TINY, 20, 2, seed=begun) for begun in range(9)]

    async def drive(ctx):
        for first in (1, 2, 5, 9):
            batch = batch_of(TINY, first, 2, seed=first)
            for begun in range(1, 9):
                await player.give(ctx, batch + following[begun][:begun])
                await ctx.tick().repeat(30)
                assert player.taken[:first] == list(expected(TINY, batch)), (first, begun)
                await player.restart(ctx)
    player.bench.process("drive", drive)
    player.bench.run(4000)
