import dataclasses

import numpy as np
import pytest
from hotrow_rtl.config import Config, preset
from hotrow_rtl.contract import NO_SLOT, Status
from hotrow_rtl.directory import Directory, Edit, directory_query
from hotrow_rtl.mixing import mix
from hotrow_sim.golden import directory as golden
from hotrow_sim.streambench import RAGGED, STEADY, StreamBench

TINY = preset("tiny")
ONE_CHOICE = dataclasses.replace(TINY, name="one-choice", directory_choices=1, directory_sets=16,
                                 directory_ways=2, directory_partitions=1)
WIDE = Config(name="wide", bus_bytes=64, handles=8, tables=2, counter_sets=64, counter_ways=2,
              directory_sets=128, directory_ways=16, directory_partitions=64, batch_samples=64,
              miss_entries=16, burst_beats=2, outstanding=1, clock_mhz=1)
CONFIGS = [TINY, ONE_CHOICE, WIDE]


def partition(config, table):
    """A partition that differs from table to table and always exists."""
    parts_log2 = config.directory_partitions.bit_length() - 1
    parts_log2 -= table % (parts_log2 + 1)
    return parts_log2, table * 5 % (1 << parts_log2)


def traffic(config, count, seed, edits=True):
    """Queries that fill sets beyond their ways, find most rows again, and remove some."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 1 << 32, min(400, 3 * config.slots // 2), dtype=np.uint64)
    tables = rng.integers(0, config.tables, len(rows))
    kinds = [Edit.NONE, Edit.INSTALL, Edit.REMOVE] if edits else [Edit.NONE]
    for number in range(count):
        # Edits walk through all rows, so that the directory overflows; lookups go anywhere.
        kind = kinds[rng.choice(3, p=(0.35, 0.5, 0.15))] if edits else Edit.NONE
        at = number % len(rows) if kind == Edit.INSTALL else rng.integers(len(rows))
        refused = rng.random() < 0.05
        parts_log2, part = partition(config, int(tables[at]))
        yield {
            "present": int(rng.random() < 0.97),
            "status": int(Status.ROW_OUT_OF_RANGE) if refused else 0,
            "key": {"row": int(rows[at]), "table": int(tables[at])},
            "parts_log2": parts_log2,
            "part": part,
            "edit": Edit.NONE if refused else kind,
            "sample": int(rng.integers(config.batch_samples)),
            "last": int(number == count - 1),
        }


def expected(model, query):
    """The golden model's (hit, slot or NO_SLOT)."""
    if not query["present"] or query["status"]:
        return False, NO_SLOT
    row, table = query["key"]["row"], query["key"]["table"]
    where = query["parts_log2"], query["part"]
    present = model.lookup(*(np.array([v]) for v in (table, row, *where)))[0]
    if query["edit"] == Edit.INSTALL:
        slot, hit = model.install(table, row, where)
    elif query["edit"] == Edit.REMOVE:
        slot = model.remove(table, row, where)
        hit = slot != NO_SLOT
    else:
        slot, hit = present, present != NO_SLOT
    return hit, slot


def verdict(answer):
    return bool(answer.hit), answer.slot if answer.placed else NO_SLOT


def run(config, queries, gaps=STEADY, pauses=STEADY, limit=None):
    """Answers as (hit, slot, query's bits), and the cycles they took, the first sweep included."""
    dut = Directory(config)
    bench = StreamBench(dut)
    bench.source(dut.queries, queries, gaps)
    answers = bench.sink(dut.answers, len(queries), pauses,
                         read=lambda p: (*verdict(p), p.query.as_bits()))
    return answers, bench.run(limit or config.directory_sets + 40 * len(queries))


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
@pytest.mark.parametrize("gaps", [STEADY, RAGGED], ids=["steady", "gaps"])
@pytest.mark.parametrize("pauses", [STEADY, RAGGED], ids=["ready", "back-pressure"])
def test_answers_equal_golden(config, gaps, pauses):
    count = 300 if config.slots < 100 else 600
    queries = list(traffic(config, count, seed=1))
    model = golden.Directory(config)
    wanted = [expected(model, query) for query in queries]
    outcomes = {(query["edit"], *want[:1], want[1] == NO_SLOT)
                for query, want in zip(queries, wanted)}
    assert len(outcomes) == 7, f"the traffic must reach every outcome of every edit: {outcomes}"
    answers, _ = run(config, queries, gaps, pauses)
    layout = directory_query(config)
    for number, (query, want, (hit, slot, carried)) in enumerate(zip(queries, wanted, answers)):
        assert (hit, slot) == want, f"query {number} of seed 1: {query}"
        assert carried == layout.const(query).as_bits(), f"query {number} changed on its way"


def rows_of_one_set(config, seed):
    """Rows of table 0 whose first hash choice is one and the same set."""
    rows = np.random.default_rng(seed).integers(0, 1 << 32, 4000, dtype=np.uint64)
    sets = mix(rows, 0, config.key_width) % np.uint64(config.directory_sets)
    return [int(row) for row in rows[sets == sets[0]]]


def query(row, edit=Edit.NONE, table=0, **fields):
    return {"present": 1, "key": {"row": row, "table": table}, "edit": edit, **fields}


@pytest.mark.parametrize("config", [TINY, ONE_CHOICE], ids=lambda c: c.name)
def test_same_set_fills_frees_and_fills_again(config):
    rows = rows_of_one_set(config, seed=2)[:6 * config.directory_ways]
    queries = [query(row, Edit.INSTALL) for row in [*rows, *rows[:3]]]
    queries += [query(row, Edit.REMOVE) for row in [*rows[1::2], rows[1]]]
    queries += [query(row) for row in rows]
    queries += [query(row, Edit.INSTALL) for row in reversed(rows)]
    model = golden.Directory(config)
    wanted = [expected(model, {"parts_log2": 0, "part": 0, "status": 0, **q}) for q in queries]
    answers, _ = run(config, queries)
    assert [answer[:2] for answer in answers] == wanted, "seed 2"
    full = (False, NO_SLOT) in wanted[:len(rows)]
    assert full == (config.directory_choices == 1), "the second choice takes what the first cannot"


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
def test_one_lookup_a_cycle(config):
    queries = list(traffic(config, 300, seed=3, edits=False))
    _, cycles = run(config, queries)
    assert cycles <= config.directory_sets + len(queries) + Directory.latency + 3


def test_edits_follow_at_their_stated_distance():
    queries = [query(row, Edit.INSTALL) for row in range(100)]
    _, cycles = run(TINY, queries)
    assert cycles <= TINY.directory_sets + 100 * Directory.edit_cycles + 5


def test_clear_frees_every_slot_and_restart_none():
    dut = Directory(TINY)
    rows = list(range(20))
    bench = StreamBench(dut)
    before = [query(row, Edit.INSTALL) for row in rows] + [query(row) for row in rows]
    answers = []

    async def drive(ctx):
        async def ask(queries):
            for one in queries:
                ctx.set(dut.queries.p, one)
                ctx.set(dut.queries.valid, 1)
                await ctx.tick().until(dut.queries.ready)
                ctx.set(dut.queries.valid, 0)
                answer, = await ctx.tick().sample(dut.answers.p).until(dut.answers.valid)
                answers.append(verdict(answer))
        ctx.set(dut.answers.ready, 1)
        await ask(before)
        # A restart while a lookup is in flight: it is forgotten, nothing answers.
        ctx.set(dut.queries.valid, 1)
        await ctx.tick()
        ctx.set(dut.queries.valid, 0)
        ctx.set(dut.restart, 1)
        await ctx.tick()
        ctx.set(dut.restart, 0)
        for _ in range(2 * Directory.latency):
            _, _, valid = await ctx.tick().sample(dut.answers.valid)
            assert not valid, "a query of before the restart answered after it"
        await ask(query(row) for row in rows)
        ctx.set(dut.clear, 1)
        await ctx.tick()
        ctx.set(dut.clear, 0)
        assert not ctx.get(dut.ready)
        await ask(query(row) for row in rows)
    bench.process("driver", drive)
    bench.run(2000)
    installed = [slot for _, slot in answers[:20]]
    assert NO_SLOT not in installed and len(set(installed)) == 20
    for again in (answers[20:40], answers[40:60]):
        assert again == [(True, slot) for slot in installed]
    assert answers[60:] == [(False, NO_SLOT)] * 20
