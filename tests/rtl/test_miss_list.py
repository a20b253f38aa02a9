import dataclasses

import numpy as np
import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.miss_list import STAMP_WIDTH, MissList
from hotrow_rtl.mixing import unmix
from hotrow_sim.streambench import RAGGED, STEADY, StreamBench

TINY = dataclasses.replace(preset("tiny"), miss_entries=16)


def number(keys, entries):
    """(index, listed) of each key, by the definition."""
    known, numbers, count = {}, [], 0
    for key in keys:
        if key in known:
            numbers.append((known[key], 0))
            continue
        numbers.append((count, 1))
        if count < entries:
            known[key] = count
        count += 1
    return numbers


def run(batches, gaps=STEADY, pauses=STEADY):
    """Number each batch; return (index, listed, key) of all misses and the cycles of each batch."""
    dut = MissList(TINY)
    bench = StreamBench(dut)
    total = sum(map(len, batches))
    numbered = bench.sink(dut.numbered, total, pauses, read=lambda p: (
        p.index, p.listed, (p.key.table, p.key.row)))
    cycles = []

    async def drive(ctx):
        gap = 0
        for batch in batches:
            await ctx.tick().until(dut.ready)
            ctx.set(dut.begin, 1)
            await ctx.tick()
            ctx.set(dut.begin, 0)
            if not ctx.get(dut.ready):
                await ctx.tick().until(dut.ready)
            start = bench.cycles
            for table, row in batch:
                for _ in range(gaps[gap % len(gaps)]):
                    await ctx.tick()
                gap += 1
                ctx.set(dut.rows.p, {"table": table, "row": row})
                ctx.set(dut.rows.valid, 1)
                await ctx.tick().until(dut.rows.ready)
                ctx.set(dut.rows.valid, 0)
            while not ctx.get(dut.rows.ready):
                await ctx.tick()
            cycles.append(bench.cycles - start)
            assert ctx.get(dut.count) == sum(listed for _, listed in number(batch, 16))
    bench.process("driver", drive)
    bench.run(200 + 100 * len(batches) + 30 * total)
    return numbered, cycles


def batches_of(seed, count=5, misses=60, rows=24):
    """Batches over few rows, so that they repeat and still exceed the entries."""
    rng = np.random.default_rng(seed)
    pool = list(zip(rng.integers(0, TINY.tables, rows).tolist(),
                    rng.integers(0, 1 << 32, rows, dtype=np.uint64).tolist()))
    return [[pool[at] for at in rng.integers(0, rows, misses)] for _ in range(count)]


def wanted(batches):
    return [(*one, key) for batch in batches for one, key in zip(number(batch, 16), batch)]


@pytest.mark.parametrize("gaps", [STEADY, RAGGED], ids=["steady", "gaps"])
@pytest.mark.parametrize("pauses", [STEADY, RAGGED, (0, 9)], ids=["ready", "ragged", "deaf"])
def test_numbers_by_first_appearance(gaps, pauses):
    batches = batches_of(seed=1)
    numbered, _ = run(batches, gaps, pauses)
    assert numbered == wanted(batches), "seed 1"
    assert max(index for index, *_ in numbered) >= 16, "the batches must exceed the entries"


def colliding(count):
    """Rows that all start at the last place of the table, so that probing wraps around."""
    width = TINY.key_width
    keys = (unmix(high << 5 | 31, 0, width) for high in range(1, count + 1))
    return [(key >> 32, key & 0xFFFF_FFFF) for key in keys]


def test_rows_of_one_place_probe_on_and_wrap():
    batch = colliding(20)
    batch += batch[::-1]
    numbered, _ = run([batch])
    assert numbered == wanted([batch])


def test_stale_entries_never_answer():
    # As many batches as there are stamps, then the first ones again, whose entries nobody has
    # overwritten: only the sweep tells them from those of the batch in progress.
    first = [[(3, row), (3, 9), (3, row)] for row in range(8)]
    batches = [*first, *[[(3, 9)]] * ((1 << STAMP_WIDTH) - 1 - len(first)), *first, *first]
    numbered, _ = run(batches)
    assert numbered == wanted(batches)


def test_stated_cycles():
    rows = [(0, row) for row in range(8)]  # the mixer gives consecutive rows places of their own
    _, (first, again) = run([rows, rows * 4])
    assert first == 8 * MissList.cycles_per_miss
    assert again == 32 * MissList.cycles_per_miss
    _, (probing,) = run([colliding(9)])
    assert probing == 9 * MissList.cycles_per_miss + sum(range(9))


def test_restart_forgets_the_miss_in_flight():
    dut = MissList(TINY)
    bench = StreamBench(dut)

    async def drive(ctx):
        await ctx.tick().until(dut.ready)
        for key, when in (((1, 1), 2), ((1, 1), 6)):
            ctx.set(dut.rows.p, {"table": key[0], "row": key[1]})
            ctx.set(dut.rows.valid, 1)
            await ctx.tick().until(dut.rows.ready)
            ctx.set(dut.rows.valid, 0)
            for _ in range(when):
                await ctx.tick()
            ctx.set(dut.restart, 1)
            await ctx.tick()
            ctx.set(dut.restart, 0)
            ctx.set(dut.begin, 1)
            await ctx.tick()
            ctx.set(dut.begin, 0)
            for _ in range(6):
                assert not ctx.get(dut.numbered.valid)
                await ctx.tick()
        ctx.set(dut.rows.valid, 1)
        ctx.set(dut.numbered.ready, 1)
        await ctx.tick().until(dut.rows.ready)
        ctx.set(dut.rows.valid, 0)
        numbered, = await ctx.tick().sample(dut.numbered.p).until(dut.numbered.valid)
        assert (numbered.index, numbered.listed) == (0, 1)
    bench.process("driver", drive)
    bench.run(200)
