"""Plan lists: every beat of a planned batch to its three lists and to the counts."""

import numpy as np
import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.contract.encoding import NO_BATCH
from hotrow_rtl.lookup.hashing.row_location import directory_hash, split_key
from hotrow_rtl.lookup.planner.plan_lists import PlanLists, Victims
from hotrow_sim.golden.lookup.counters import pack_key
from hotrow_sim.golden.lookup.directory import Directory

from tests.support.benches.stream_bench import RAGGED, STEADY, StreamBench
from tests.support.simulation import built

TINY = preset("tiny")
LANES = range(TINY.lanes)


def drawn(rng, count):
    """(table, row, slot, tag) of rows in the directory."""
    table = rng.integers(0, TINY.tables, count)
    row = rng.integers(0, 1 << TINY.row_width, count)
    zeros, choice = np.zeros(count, int), rng.integers(0, 2, count)
    starts = np.array(Directory(TINY).set_starts(table, row, zeros, zeros))[choice, range(count)]
    rest = split_key(TINY, pack_key(TINY, table, row))[1]
    hashed = [int(directory_hash(TINY, each, one))
              for each, one in zip(choice.tolist(), rest, strict=True)]
    slots = starts + rng.integers(0, TINY.directory_ways, count)
    tags = [each >> TINY.bank_key_width - TINY.directory_tag_width for each in hashed]
    return list(zip(table.tolist(), row.tolist(), slots.tolist(), tags, strict=True))


def beats(rng, count):
    """Beats, and the elements of each of its lists: (fill_slots, victim_slots, victims)."""
    given, lists = [], []
    for number in range(count):
        rows = drawn(rng, TINY.lanes)
        fetched, bypassed, evicts, first = rng.random((4, TINY.lanes)) < 0.5
        bypassed &= fetched
        evicts &= fetched & ~bypassed
        first &= ~bypassed

        def bits(flags):
            return sum(1 << lane for lane in LANES if flags[lane])
        given.append({
            "numbers": [slot for _, _, slot, _ in rows], "tags": [tag for *_, tag in rows],
            "fetched": bits(fetched), "bypassed": bits(bypassed), "evicts": bits(evicts),
            "first": bits(first), "last": number == count - 1})
        lists.append(([rows[lane][2] for lane in LANES if fetched[lane]],
                      [rows[lane][2] for lane in LANES if evicts[lane]],
                      [rows[lane][:2] for lane in LANES if evicts[lane]]))
    return given, lists


def present(p, read=lambda value: value):
    return [read(value) for lane, value in enumerate(p.values) if p.present >> lane & 1], p.last


@pytest.mark.slow
@pytest.mark.parametrize("gaps, pauses", [
    pytest.param(STEADY, STEADY, id="steady"),
    pytest.param(RAGGED, RAGGED, id="both"),
    pytest.param(RAGGED, STEADY, id="gaps", marks=pytest.mark.slow),
    pytest.param(STEADY, RAGGED, id="back-pressure", marks=pytest.mark.slow)])
def test_lists_and_counts(gaps, pauses):
    rng, dut = np.random.default_rng(7), built(PlanLists, TINY)
    bench, batches = StreamBench(dut), [beats(rng, count) for count in (1, 30, 2, 17)]
    counted, lists = [], {"fill_slots": [], "victim_slots": [], "victims": []}

    async def feed(ctx):
        for number, (given, _) in enumerate(batches):
            ctx.set(dut.batch, 50 + number)
            ctx.set(dut.newest[number], {"age": 3 + number, "valid": number != 2})
            for beat, gap in zip(given, gaps * len(given), strict=False):
                for _ in range(gap):
                    await ctx.tick()
                ctx.set(dut.beats.p, beat)
                ctx.set(dut.beats.valid, 1)
                await ctx.tick().until(dut.beats.ready)
                ctx.set(dut.beats.valid, 0)
            ctx.set(dut.counted.ready, 1)
            (counts,) = await ctx.tick().sample(dut.counted.p).until(dut.counted.valid)
            ctx.set(dut.counted.ready, 0)
            ctx.set(dut.newest[number], {})
            counted.append({name: getattr(counts, name) for name, _ in counts.shape()})
    bench.process("beats", feed)
    total = sum(len(given) for given, _ in batches)
    for place_, (name, taken) in enumerate(lists.items()):
        read = (lambda value: (value.table, value.row)) if name == "victims" else int
        taken += [bench.sink(getattr(dut, name), total, pauses * (place_ + 1), name,
                             read=lambda p, read=read: present(p, read))]
    cycles = bench.run(3000)
    if gaps is pauses is STEADY:
        assert cycles <= total + len(batches) * (TINY.banks + 8) + Victims.latency
    wanted = [each for _, lists in batches for each in lists]
    lasts = [beat["last"] for given, _ in batches for beat in given]
    for place_, (name, (taken,)) in enumerate(lists.items()):
        assert taken == [
            (each[place_], last) for each, last in zip(wanted, lasts, strict=True)], name
    for number, ((given, _), counts) in enumerate(zip(batches, counted, strict=True)):
        def ones(*names):
            return sum((sum(beat[name] for name in names)).bit_count() for beat in given)
        assert counts == {
            "unique": ones("first", "bypassed"), "entries": ones("fetched"),
            "evictions": ones("evicts"), "bypasses": ones("bypassed"),
            "wait_for": NO_BATCH if number == 2 else 47}
