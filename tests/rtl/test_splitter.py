import dataclasses

import numpy as np
import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.contract import NO_SLOT, BatchFlag, Status
from hotrow_rtl.splitter import Splitter
from hotrow_sim.cycles.splitter import split_cycles
from hotrow_sim.golden.counters import pack_key
from hotrow_sim.golden.lookups import Lookups, read_batch
from hotrow_sim.golden.splitter import split
from hotrow_sim.streambench import RAGGED, STEADY, StreamBench

TINY = dataclasses.replace(preset("tiny"), miss_entries=16, batch_samples=256)


@dataclasses.dataclass
class Case:
    """A batch with the directory's answers to it."""

    lookups: Lookups
    found: np.ndarray
    refused: np.ndarray  # a Status per lookup
    trailing: bool = False  # the end comes in an element of its own, without a lookup

    @property
    def split(self):
        return split(self.lookups, self.found, self.refused != 0, TINY.miss_entries)


def case(seed, samples=34, tables=3, rows=30, hit=0.5, refused=0.05, flags=0, bags=None, **other):
    """Random answers; a row is either resident or not. `bags`: lengths allowed (jagged)."""
    rng = np.random.default_rng(seed)
    lengths = None
    if bags is not None:
        flags |= BatchFlag.JAGGED
        lengths = rng.choice(bags, samples * tables).astype(np.uint16)
    count = samples * tables if lengths is None else int(lengths.sum())
    lookups = read_batch(rng.integers(0, rows, count).astype(np.uint32), samples, 0, tables,
                         flags, lengths)
    slot_of = rng.integers(0, TINY.slots, (tables, rows)).astype(np.uint32)
    slot_of[rng.random((tables, rows)) >= hit] = NO_SLOT
    why = rng.choice([Status.ROW_OUT_OF_RANGE, Status.SLVERR, Status.TIMEOUT], count)
    return Case(lookups, slot_of[lookups.table, lookups.row.astype(int)],
                np.where(rng.random(count) < refused, why, 0), **other)


def answers(case):
    """The directory's payloads."""
    lookups, count = case.lookups, len(case.found)
    for i in range(count):
        placed = not case.refused[i] and case.found[i] != NO_SLOT
        yield {
            "query": {
                "present": 1,
                "status": int(case.refused[i]),
                "key": {"row": int(lookups.row[i]), "table": int(lookups.table[i])},
                "sample": int(lookups.sample[i]),
                "last": int(i == count - 1 and not case.trailing),
            },
            "hit": int(placed),
            "placed": int(placed),
            "slot": int(case.found[i]) % TINY.slots,
        }
    if case.trailing:
        yield {"query": {"last": 1}}


def run(cases, gaps=STEADY, pauses=STEADY, deaf=None):
    """Split batch after batch; return the lists of all batches, the reports, and the cycles.

    The sink named `deaf` pauses far longer than the others.
    """
    dut = Splitter(TINY)
    bench = StreamBench(dut)
    bench.source(dut.command, [{"samples": case.lookups.samples} for case in cases])
    bench.source(dut.answers, [answer for case in cases for answer in answers(case)], gaps)
    taken = {name: [] for name in ("slots", "misses", "popular", "nonpopular")}

    def collect(name):
        """Elements of the stream, cut into one list per batch."""
        async def drain(ctx):
            port, lists, held, step = getattr(dut, name), [[]], None, 0
            patience = (12,) if name == deaf else pauses
            while len(lists) <= len(cases):
                for _ in range(patience[step % len(patience)]):
                    _, _, valid, payload = await ctx.tick().sample(port.valid, port.payload)
                    assert held is None or (valid and payload == held), f"{name} did not hold"
                    held = payload if valid else None
                step += 1
                ctx.set(port.ready, 1)
                _, _, valid, payload = await ctx.tick().sample(port.valid, port.payload)
                ctx.set(port.ready, 0)
                assert held is None or (valid and payload == held), f"{name} did not hold"
                held = None
                if valid and payload.present:
                    value = payload.value
                    lists[-1].append(value if isinstance(value, int) else (value.table, value.row))
                if valid and payload.last:
                    lists.append([])
            assert lists.pop() == []
            taken[name] = lists
        return drain
    for name in taken:
        bench.process(name, collect(name))
    reports = bench.sink(dut.outcome, len(cases))
    total = sum(len(case.found) + case.lookups.samples for case in cases)
    cycles = bench.run(200 * len(cases) + 15 * total)
    return taken, reports, cycles


def check(cases, *how, **more):
    taken, reports, cycles = run(cases, *how, **more)
    for number, (case, report) in enumerate(zip(cases, reports)):
        want, served = case.split, case.refused == 0
        got = {name: lists[number] for name, lists in taken.items()}
        assert got["slots"] == want.slots.tolist(), f"batch {number}"
        assert got["misses"] == list(zip(want.miss_table.tolist(), want.miss_row.tolist()))
        assert got["popular"] == want.popular.tolist(), f"batch {number}"
        assert got["nonpopular"] == want.nonpopular.tolist(), f"batch {number}"
        hits = np.count_nonzero(served & (case.found != NO_SLOT))
        first = np.flatnonzero(~served)[:1].tolist()
        wanted = {
            "status": case.refused[first[0]] if first else 0,
            "error_index": first[0] if first else 0,
            "lookups": np.count_nonzero(served),
            "hits": hits,
            "misses": np.count_nonzero(served) - hits,
            "unique": len(want.miss_row),
            "popular": len(want.popular),
            "entries": 0, "refused": 0, "bytes": 0, "error_address": 0,
        }
        assert {name: getattr(report, name) for name in wanted} == wanted, f"batch {number}"
    return cycles


@pytest.mark.parametrize("gaps, pauses", [
    (STEADY, STEADY), (RAGGED, STEADY), (STEADY, RAGGED), (RAGGED, RAGGED)],
    ids=["steady", "gaps", "back-pressure", "both"])
def test_splits_equal_golden(gaps, pauses):
    check([
        case(seed=1),
        case(seed=2, flags=BatchFlag.FEATURE_MAJOR, refused=0),
        case(seed=3, bags=[0, 1, 1, 2, 5], trailing=True),
        case(seed=4, samples=65, flags=BatchFlag.FEATURE_MAJOR, bags=[0, 1, 3], hit=0.9),
    ], gaps, pauses)


@pytest.mark.parametrize("name", ["slots", "misses", "popular", "nonpopular"])
def test_a_deaf_list_holds_up_the_others(name):
    check([case(seed=11, hit=0.6, samples=33), case(seed=12, hit=0, samples=9)], deaf=name)


@pytest.mark.parametrize("name, edges", {
    "one lookup that hits": dict(samples=1, tables=1, rows=1, hit=1, refused=0),
    "one lookup that misses": dict(samples=1, tables=1, rows=1, hit=0, refused=0),
    "one lookup refused": dict(samples=1, tables=1, refused=1),
    "all hit": dict(hit=1, refused=0, samples=64),
    "all miss, beyond the entries": dict(hit=0, refused=0, samples=33),
    "one row misses for ever": dict(hit=0, refused=0, rows=1, tables=1, samples=100),
    "all refused": dict(refused=1),
    "mostly empty bags": dict(bags=[0, 0, 0, 0, 1], samples=96, hit=0.2, trailing=True),
    "full word of samples": dict(samples=32),
}.items(), ids=lambda value: value if isinstance(value, str) else "")
def test_edges(name, edges):
    check([case(seed=5, **edges), case(seed=6, **edges)])


def test_largest_batch():
    lone = case(seed=6, samples=TINY.batch_samples, tables=1, hit=0.7)
    check([lone, case(seed=7, samples=3)])


def test_a_late_miss_turns_its_sample_cold():
    batch = case(seed=8, samples=50, tables=2, hit=1, refused=0, flags=BatchFlag.FEATURE_MAJOR)
    batch.found[50 + 17] = NO_SLOT
    assert batch.split.nonpopular.tolist() == [17]
    check([batch])


CLEARED = 2 * TINY.miss_entries + 1  # cycles until the table of misses is clear after reset


@pytest.mark.parametrize("hit", [1, 0.95, 0.9])
def test_one_lookup_a_cycle(hit):
    batch = case(seed=9, samples=60, tables=8, rows=8, hit=hit, refused=0)
    assert (batch.split.miss_row.size > 0) == (hit < 1)
    assert check([batch]) <= CLEARED + 8 * 60 * 1.05 + 60 + 10


@pytest.mark.slow
@pytest.mark.parametrize("hit, options", [
    (0.85, {}), (0.6, {}), (0, {"samples": 60}), (0.8, {"flags": BatchFlag.FEATURE_MAJOR}),
    (0.7, {"bags": [0, 1, 2]})], ids=str)
def test_cycles_agree_with_the_model(hit, options):
    batch = case(**{"seed": 10, "samples": 70, "tables": 4, "rows": 9, "hit": hit, "refused": 0,
                    **options})
    keys = pack_key(batch.lookups.table, batch.lookups.row)
    model = split_cycles(keys, batch.found == NO_SLOT, batch.lookups.samples, TINY)
    assert check([batch]) - CLEARED == pytest.approx(model, rel=0.05)
