"""MissTableBank with the golden table: batches by epoch, rows of one set at their distance."""

import dataclasses

import numpy as np
import pytest
from hotrow_rtl.config import EPOCH_WIDTH, MISS_WAYS, preset
from hotrow_rtl.lookup.hashing.row_location import join_key
from hotrow_rtl.lookup.splitter.miss_table import MissTableBank
from hotrow_sim.golden.lookup.miss_table import MissTable

from tests.support.benches.stream_bench import RAGGED, STEADY, StreamBench
from tests.support.simulation import built

TINY = preset("tiny")
TWO_SETS = dataclasses.replace(TINY, name="two-sets", miss_entries=32)
WIDE = dataclasses.replace(TINY, name="bus-64", bus_bytes=64, counter_sets=256, directory_sets=256,
                           miss_entries=1024)
CONFIGS = [TINY, TWO_SETS, WIDE]


def rows_of(config, rows, count, seed, sets=None):
    """`rest` of `count` lookups of `rows` rows in the first `sets` sets."""
    rng = np.random.default_rng(seed)
    tag = rng.integers(0, 1 << config.bank_key_width, rows, np.uint64)
    tag //= np.uint64(config.miss_sets)
    set_ = rng.integers(0, sets or config.miss_sets, rows).astype(np.uint64)
    pool = tag * np.uint64(config.miss_sets) + set_
    return pool[rng.integers(0, rows, count)].tolist()


def expected(config, rests):
    """(kept, repeated, place) of one batch; no place of a row that is not kept."""
    keys = join_key(config, np.uint64(1), np.array(rests, np.uint64))
    return [(int(kept), int(repeated), int(place) if kept else None)
            for kept, repeated, place in zip(*MissTable(config).find(keys), strict=True)]


class Driver:
    """Enters rows as early as the distance allows; `told` is what the bank answered to each."""

    def __init__(self, config):
        self.config, self.dut = config, built(MissTableBank, config)
        self.bench = StreamBench(self.dut)
        self.cycle, self.entered, self.told = 0, [], []
        self.rng = np.random.default_rng(0)

    async def tick(self, ctx, rest=None, epoch=1):
        """One cycle, in which a row enters or anything stands there that does not."""
        ctx.set(self.dut.valid, rest is not None)
        ctx.set(self.dut.bank_key, int(self.rng.integers(1 << self.config.bank_key_width))
                if rest is None else rest)
        ctx.set(self.dut.epoch, epoch)
        _, _, answer = await ctx.tick().sample(self.dut.answer)
        if rest is not None:
            self.entered.append((self.cycle, rest % self.config.miss_sets))
        if any(cycle == self.cycle - MissTableBank.latency for cycle, _ in self.entered[-8:]):
            self.told.append((answer.kept, answer.repeated, answer.place if answer.kept else None))
        self.cycle += 1

    async def enter(self, ctx, rests, epoch=1, gaps=STEADY):
        for number, rest in enumerate(rests):
            for _ in range(gaps[number % len(gaps)]):
                await self.tick(ctx, epoch=epoch)
            set_ = rest % self.config.miss_sets
            while any(cycle > self.cycle - MissTableBank.distance and at == set_
                      for cycle, at in self.entered[-8:]):
                await self.tick(ctx, epoch=epoch)
            await self.tick(ctx, rest, epoch)

    async def drain(self, ctx):
        for _ in range(MissTableBank.latency):
            await self.tick(ctx)

    async def pulse(self, ctx, signal):
        ctx.set(signal, 1)
        await self.tick(ctx)
        ctx.set(signal, 0)

    async def sweep(self, ctx):
        """Cycles until the table is ready."""
        start = self.cycle
        while not ctx.get(self.dut.ready):
            await self.tick(ctx)
        return self.cycle - start

    def run(self, drive, limit=20_000):
        self.bench.process("drive", drive)
        self.bench.run(limit)


def run(config, batches, gaps=STEADY):
    """Batches (rests) with epochs 1, 2, ...; the cycles from the first row to the last."""
    driver = Driver(config)

    async def drive(ctx):
        await driver.sweep(ctx)
        for number, rests in enumerate(batches):
            await driver.enter(ctx, rests, number + 1, gaps)
        await driver.drain(ctx)
    driver.run(drive)
    want = [(number, answer) for number, rests in enumerate(batches)
            for answer in expected(config, rests)]
    for turn, (told, (number, wanted)) in enumerate(zip(driver.told, want, strict=True)):
        assert told == wanted, f"batch {number}, lookup {turn} of all"
    return driver.entered[-1][0] - driver.entered[0][0] + 1


@pytest.mark.parametrize("gaps", [STEADY, RAGGED], ids=["steady", "gaps"])
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_batches_back_to_back(config, gaps):
    """Few rows and many, in every set and in one; each batch finds what the others left."""
    run(config, [rows_of(config, rows, count, seed=rows + count, sets=sets)
                 for rows, count, sets in ((1, 5, None), (30, 200, None), (4, 40, 1),
                                           (200, 300, None), (3, 20, 2), (30, 100, None))], gaps)


def test_same_rows_in_another_batch_are_missed_anew():
    rests = rows_of(TWO_SETS, 12, 60, seed=3)
    run(TWO_SETS, [rests, rests, rests[::-1]])


@pytest.mark.parametrize("ways", range(1, MISS_WAYS + 2))
def test_rows_of_one_set_at_the_distance(ways):
    """Each row comes back as early as its set may be asked again."""
    rests = [3 + TINY.miss_sets * (977 * number + 5) for number in range(ways)]
    count = 40
    cycles = run(TINY, [[rests[number % ways] for number in range(count)]])
    assert cycles == (count - 1) * MissTableBank.distance + 1


def test_one_row_a_cycle():
    assert run(TINY, [list(range(TINY.miss_sets)) * 10]) == 10 * TINY.miss_sets


@pytest.mark.slow
def test_every_epoch_then_a_sweep():
    """The table is cleared when the epochs start over: nothing of the first round shows."""
    driver, batches = Driver(TWO_SETS), []

    async def drive(ctx):
        assert await driver.sweep(ctx) == TWO_SETS.miss_sets
        for _ in range(2):
            for epoch in range(1, 1 << EPOCH_WIDTH):
                batches.append(rows_of(TWO_SETS, 4, 5, seed=epoch))
                await driver.enter(ctx, batches[-1], epoch)
            await driver.drain(ctx)
            await driver.pulse(ctx, driver.dut.clear)
            assert await driver.sweep(ctx) == TWO_SETS.miss_sets
    driver.run(drive)
    assert driver.told == [answer for rests in batches for answer in expected(TWO_SETS, rests)]


@pytest.mark.parametrize("after", range(MissTableBank.latency + 3))
@pytest.mark.parametrize("name", ["restart", "clear"])
def test_restart_and_clear_in_flight(name, after):
    """A row enters, then the pulse comes `after` cycles later, in the same cycle at the least."""
    driver = Driver(TWO_SETS)
    rests, other = [0, 1], rows_of(TWO_SETS, 9, 60, seed=after)

    async def drive(ctx):
        await driver.sweep(ctx)
        pulse = getattr(driver.dut, name)
        for cycle in range(after + 1):
            ctx.set(pulse, cycle == after)
            await driver.tick(ctx, rests[cycle] if cycle < 2 else None)
        ctx.set(pulse, 0)
        await driver.sweep(ctx)
        for _ in range(2 * MissTableBank.distance):
            await driver.tick(ctx)
        driver.told.clear()
        await driver.enter(ctx, rests)
        await driver.enter(ctx, other, epoch=2)
        await driver.drain(ctx)
    driver.run(drive)
    # A row is written `latency` cycles after it came; a restart leaves it then, a sweep never.
    there = [int(name == "restart" and after - cycle >= MissTableBank.latency)
             for cycle in range(2)]
    assert driver.told == [(1, repeated, MISS_WAYS * rest)
                           for rest, repeated in zip(rests, there, strict=True)] + expected(
        TWO_SETS, other)
