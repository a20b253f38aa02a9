import dataclasses

import numpy as np
import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.contract import Opcode, Status
from hotrow_rtl.count_pipeline import lag_of
from hotrow_rtl.counters import AccessCounters
from hotrow_rtl.mixing import unmix
from hotrow_sim.cycles.counters import (
    clear_cycles,
    decay_cycles,
    harvest_cycles,
    observe_cycles,
)
from hotrow_sim.golden.counters import Counters, unpack_key
from hotrow_sim.streambench import RAGGED, STEADY, StreamBench

TINY = preset("tiny")


def variant(**parameters):
    name = ",".join(f"{key.removeprefix('counter_')}={value}" for key, value in parameters.items())
    return dataclasses.replace(TINY, name=name or "tiny", **parameters)


# Few sets, so that lookups in flight share one; every depth of the tree of minima; small counts.
CONFIGS = [
    variant(counter_sets=8, counter_ways=4),
    variant(counter_sets=4, counter_ways=2, counter_bits=4),
    variant(counter_sets=4, counter_ways=3, counter_bits=5),
    variant(counter_sets=2, counter_ways=8, counter_bits=6),
    variant(counter_sets=2, counter_ways=16, counter_bits=4),
    variant(counter_sets=4, counter_ways=16, counter_bits=32),
]
MANY_WAYS = variant(counter_sets=2, counter_ways=37, counter_bits=8)


def rows_of_one_set(config, count, at=0):
    """Keys that all fall into set `at`: (table, row)."""
    tag = np.arange(count, dtype=np.uint64) * np.uint64(977) + np.uint64(5)
    mixed = tag << np.uint64(config.counter_sets.bit_length() - 1) | np.uint64(at)
    return unpack_key(unmix(mixed, 0, config.key_width))


def trace(config, kind, count, seed):
    """(table, row) of `count` lookups."""
    rng = np.random.default_rng(seed)
    entries = config.counter_entries
    if kind == "uniform":
        row = rng.integers(0, 2 * entries, count)
        return row % config.tables, row
    if kind == "skewed":
        rank = np.minimum(rng.zipf(1.2, count), 1 << 31)
        return rank % config.tables, rank * 2654435761 % (1 << 32)
    if kind == "single":
        return np.full(count, 3), np.full(count, 12345)
    if kind == "one-set":
        tables, rows = rows_of_one_set(config, 2 * config.counter_ways)
        pick = np.minimum(rng.geometric(1 / config.counter_ways, count), len(rows)) - 1
        return tables[pick], rows[pick]
    if kind == "runs":  # each row several times in a row, so that no count of the set stays low
        tables, rows = rows_of_one_set(config, config.counter_ways + 3)
        pick = np.repeat(rng.integers(0, len(rows), count), rng.integers(1, 7, count))[:count]
        return tables[pick], rows[pick]
    assert kind == "churn"  # counts near the tree's lag, hits right before misses
    tables, rows = rows_of_one_set(config, config.counter_ways + 2)
    pick = []
    while len(pick) < count:
        few = rng.integers(0, len(rows), 3)
        pick += list(few[rng.integers(0, 3, rng.integers(2, 12))])
    return tables[pick[:count]], rows[pick[:count]]


KINDS = ("uniform", "skewed", "single", "one-set", "runs", "churn")


@dataclasses.dataclass
class Observe:
    table: np.ndarray
    row: np.ndarray
    refusal: np.ndarray = None  # Status per lookup
    trailing: bool = False  # `last` comes without a lookup

    def command(self):
        return {"opcode": Opcode.OBSERVE, "count": len(self.row)}

    def lookups(self):
        count = len(self.row)
        refusal = np.zeros(count, int) if self.refusal is None else self.refusal
        for at, (table, row, why) in enumerate(zip(self.table, self.row, refusal)):
            yield {"position": at, "last": int(at == count - 1 and not self.trailing), "lookup": {
                "present": 1, "key": {"row": int(row), "table": int(table)},
                "out_of_range": int(why == Status.ROW_OUT_OF_RANGE),
                "fault": int(max(0, why - Status.SLVERR + 1))}}
        if self.trailing:
            yield {"position": count, "last": 1, "lookup": {"present": 0}}

    def expected(self, counters):
        refusal = np.zeros(len(self.row), int) if self.refusal is None else self.refusal
        served = refusal == 0
        hits = counters.observe(self.table[served], self.row[served])
        counts = {"lookups": int(served.sum()), "hits": hits, "misses": int(served.sum()) - hits}
        if served.all():
            return counts
        first = int(np.argmax(~served))
        return counts | {"status": int(refusal[first]), "error_index": first}


@dataclasses.dataclass
class Decay:
    shift: int = 0
    all: bool = False

    def command(self):
        return {"opcode": Opcode.DECAY, "shift": self.shift, "flags": int(self.all)}

    def expected(self, counters):
        counters.clear() if self.all else counters.decay(self.shift)
        return {}


@dataclasses.dataclass
class Harvest:
    wanted: int
    threshold: int = 0

    def command(self):
        return {"opcode": Opcode.HARVEST, "count": self.wanted, "threshold": self.threshold}

    def expected(self, counters):
        table, row, count = counters.harvest(self.wanted, self.threshold)
        self.entries = list(zip(*map(np.ndarray.tolist, (table, row, count))))
        return {"entries": len(self.entries)}


COUNTS = ("status", "error_index", "lookups", "hits", "misses", "entries")


class Bench:
    """The counters beside their golden model.

    Members
    -------
    cycles : list of int
        From one outcome to the next, of all commands but the first.
    models : list of int
        The same by the models of `cycles.counters`.
    """

    def __init__(self, config, steps, gaps=STEADY, pauses=STEADY):
        self.dut, counters = AccessCounters(config), Counters(config)
        self.bench = StreamBench(self.dut)
        self.expected, self.entries, self.models = [], [], []
        for step in steps:
            self.models.append(self._model(config, step, counters))
            self.expected.append({name: 0 for name in COUNTS} | step.expected(counters))
            if isinstance(step, Harvest):
                self.entries += [(*entry, 1, 0) for entry in step.entries[:-1]]
                self.entries += [(*entry, 1, 1) for entry in step.entries[-1:]] or [(0, 1)]
        lookups = [lookup for step in steps if isinstance(step, Observe)
                   for lookup in step.lookups()]
        ends = []

        def outcome(payload):
            ends.append(self.bench.cycles)
            return {name: payload[name] for name in COUNTS}

        def entry(payload):
            flags = payload.present, payload.last
            value = payload.value
            return (value.table, value.row, value.count, *flags) if payload.present else flags
        self.bench.source(self.dut.lookups, lookups, gaps)
        self.bench.source(self.dut.command, [step.command() for step in steps])
        self.outcomes = self.bench.sink(self.dut.outcome, len(steps), pauses, name="outcomes",
                                        read=outcome)
        self.harvested = self.bench.sink(self.dut.harvested, len(self.entries), pauses,
                                         name="entries", read=entry)
        self.ends = ends

    @staticmethod
    def _model(config, step, counters):
        if isinstance(step, Observe):
            return observe_cycles(config, len(step.row) + step.trailing)
        if isinstance(step, Harvest):
            return harvest_cycles(config, counters.count, step.wanted, step.threshold)
        return clear_cycles(config) if step.all else decay_cycles(config)

    def run(self):
        self.bench.run(limit=4 * sum(self.models) + 200)
        assert self.harvested == self.entries
        assert self.outcomes == self.expected
        self.cycles = np.diff(self.ends).tolist()
        return self


def everything(config, kind, seed, count):
    """Observe, harvest all and part, decay, and observe again on what is left."""
    everyone = config.counter_entries
    return [
        Observe(*trace(config, kind, count, seed)),
        Harvest(everyone),
        Harvest(max(1, everyone // 3)),
        Decay(1),
        Observe(*trace(config, kind, count // 2, seed + 1)),
        Harvest(everyone, threshold=2),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_equals_golden_at_one_lookup_a_cycle(config):
    """No trace costs a cycle more: the cycles are those of the model, which knows no trace."""
    steps = [step for kind in KINDS for step in everything(config, kind, len(kind), count=100)]
    bench = Bench(config, steps).run()
    for step, cycles, model in zip(steps[1:], bench.cycles, bench.models[1:]):
        assert abs(cycles - model) <= 0.05 * model
        if isinstance(step, Observe):
            assert cycles == model == len(step.row) + lag_of(config) + 6


@pytest.mark.slow
@pytest.mark.parametrize("config", [*CONFIGS, TINY, MANY_WAYS], ids=lambda config: config.name)
def test_equals_golden_at_length(config):
    steps = [step for seed, kind in enumerate(KINDS)
             for step in everything(config, kind, 100 + seed, count=600)]
    Bench(config, steps).run()


@pytest.mark.parametrize("gaps, pauses", [(STEADY, RAGGED), (RAGGED, STEADY), (RAGGED, RAGGED)],
                         ids=["back-pressure", "gaps", "both"])
def test_equals_golden_with_stalls(gaps, pauses):
    config = variant(counter_sets=2, counter_ways=8)
    steps = [step for kind in ("skewed", "churn") for step in everything(config, kind, 7, 120)]
    Bench(config, steps, gaps, pauses).run()


def test_lookups_at_every_distance():
    """Two rows of one set, a third one in between again and again, at all distances in flight."""
    config = variant(counter_sets=8, counter_ways=16)
    crowded, elsewhere = rows_of_one_set(config, 40), rows_of_one_set(config, 40, at=3)
    rng = np.random.default_rng(5)
    steps = []
    for distance in range(1, 11):
        picks = [int(rng.integers(0, 20)) for _ in range(30)]
        order = [pair for pick in picks for pair in [
            (crowded, pick), *[(elsewhere, int(rng.integers(0, 20)))] * (distance - 1)]]
        steps.append(Observe(np.array([rows[0][at] for rows, at in order]),
                             np.array([rows[1][at] for rows, at in order])))
    Bench(config, [*steps, Harvest(config.counter_entries)]).run()


def test_the_least_counted_of_high_counts():
    """All rows of a set counted often; then hits on the next victim right before a miss."""
    config = variant(counter_sets=2, counter_ways=16, counter_bits=5)
    tables, rows = rows_of_one_set(config, 24)
    steps = []
    for seed, nudges in enumerate([0, 1, 2, 3, 4, 5]):
        rng = np.random.default_rng(seed)
        order = list(rng.permutation(np.repeat(np.arange(16), rng.integers(6, 8, 16))))
        for newcomer in range(16, 24):
            order += [newcomer] * 7  # as high as the others, from the lowest on
            order += [int(rng.integers(0, 24)) for _ in range(nudges)]
        steps += [Observe(tables[order], rows[order]), Harvest(32), Decay(all=True)]
    Bench(config, steps).run()


@pytest.mark.parametrize("trailing", [False, True], ids=["last-lookup", "absent-last"])
@pytest.mark.parametrize("refused", ["none", "some", "all", "first", "final"])
def test_refused_lookups_are_skipped_and_the_first_is_reported(refused, trailing):
    rng = np.random.default_rng(len(refused))
    refusal = np.zeros(60, int)
    reasons = [Status.ROW_OUT_OF_RANGE, Status.SLVERR, Status.DECERR, Status.TIMEOUT]
    where = {"none": [], "some": rng.choice(60, 20, replace=False), "all": range(60),
             "first": [0], "final": [59]}[refused]
    for at in where:
        refusal[at] = reasons[int(rng.integers(4))]
    table, row = trace(TINY, "skewed", 60, seed=3)
    Bench(TINY, [Observe(table, row, refusal, trailing), Observe(table, row),
                 Harvest(500)]).run()


def test_a_batch_without_lookups():
    Bench(TINY, [Observe(np.zeros(0, int), np.zeros(0, int), None, True), Harvest(9)]).run()


@pytest.mark.parametrize("shift", [0, 1, 3, 4, 5, 31, 32, 1 << 31])
def test_decay(shift):
    config = variant(counter_sets=4, counter_ways=4, counter_bits=4)
    table, row = trace(config, "skewed", 150, seed=2)
    Bench(config, [Observe(table, row), Decay(shift), Harvest(16), Observe(table, row),
                   Harvest(16)]).run()


def test_decay_of_all_frees_every_entry():
    table, row = trace(TINY, "skewed", 150, seed=2)
    bench = Bench(TINY, [Observe(table, row), Decay(all=True), Harvest(300), Observe(table, row),
                         Harvest(300)]).run()
    assert bench.outcomes[2]["entries"] == 0
    assert bench.outcomes[0]["misses"] == bench.outcomes[3]["misses"] > 0


@pytest.mark.parametrize("threshold", [0, 1, 2, 7, 15, 16, 17, (1 << 32) - 1])
def test_harvest_of_every_size(threshold):
    """Each number of entries, ties cut or not, for thresholds below and above every count."""
    config = variant(counter_sets=4, counter_ways=4, counter_bits=4)
    sizes = [*range(1, 18, 2), 14, 16, (1 << 32) - 1]
    Bench(config, [Harvest(3, threshold), Observe(*trace(config, "skewed", 120, seed=4)),
                   *[Harvest(size, threshold) for size in sizes]]).run()


@pytest.mark.slow
@pytest.mark.parametrize("step", [Observe(*trace(TINY, "skewed", 120, 1)), Decay(1),
                                  Decay(all=True), Harvest(200), Harvest(3)],
                         ids=["observe", "decay", "clear", "harvest-all", "harvest-top"])
@pytest.mark.parametrize("after", [0, 3, 12, 29])
def test_restart_forgets_the_command(step, after):
    """Idle at once, and the next commands are answered as golden does from what is counted."""
    config = variant(counter_sets=16)
    dut, counters = AccessCounters(config), Counters(config)
    bench = StreamBench(dut)
    first, final = Observe(*trace(TINY, "skewed", 60, 2)), Observe(*trace(TINY, "uniform", 50, 3))
    steps = [Decay(all=True), first, final, Harvest(7)]
    expected = [{name: 0 for name in COUNTS} | step.expected(counters) for step in steps]
    found, entries = [], []

    async def drive(ctx):
        async def command(step, cycles=2000):
            """Up to the outcome, or as many cycles."""
            lookups = list(step.lookups()) if isinstance(step, Observe) else []
            ctx.set(dut.command.p, step.command())
            ctx.set(dut.command.valid, 1)
            await ctx.tick().until(dut.command.ready)
            ctx.set(dut.command.valid, 0)
            for _ in range(cycles):
                ctx.set(dut.lookups.valid, bool(lookups))
                if lookups:
                    ctx.set(dut.lookups.p, lookups[0])
                _, _, taken, entry, value, ended, outcome = await ctx.tick().sample(
                    dut.lookups.ready, dut.harvested.valid, dut.harvested.p,
                    dut.outcome.valid, dut.outcome.p)
                if lookups and taken:
                    lookups.pop(0)
                if entry:
                    entries.append((value.value.table, value.value.row, value.value.count))
                if ended:
                    return {name: outcome[name] for name in COUNTS}
            ctx.set(dut.lookups.valid, 0)
            return None

        ctx.set(dut.harvested.ready, 1)
        ctx.set(dut.outcome.ready, 1)
        await ctx.tick().until(dut.ready)
        await command(first)
        if await command(step, after):
            await ctx.tick()
        ctx.set(dut.restart, 1)
        await ctx.tick()
        ctx.set(dut.restart, 0)
        assert ctx.get(dut.ready), "the memory was cleared"
        for stream in (dut.outcome, dut.harvested):
            assert not ctx.get(stream.valid), "something survived the restart"
        assert not ctx.get(dut.lookups.ready)
        entries.clear()
        found.extend([await command(step) for step in steps])
    bench.process("restart", drive)
    bench.run(limit=5000)
    assert found == expected
    assert entries == steps[-1].entries


def test_restart_keeps_the_counts():
    dut, counters = AccessCounters(TINY), Counters(TINY)
    bench = StreamBench(dut)
    counted, asked = Observe(*trace(TINY, "skewed", 100, 2)), Harvest(400)
    for step in (counted, asked):
        step.expected(counters)

    async def restart(ctx):
        await ctx.tick().until(dut.outcome.valid & dut.outcome.ready)
        ctx.set(dut.restart, 1)
        await ctx.tick()
        ctx.set(dut.restart, 0)
    bench.process("restart", restart)
    bench.source(dut.lookups, list(counted.lookups()))
    bench.source(dut.command, [counted.command(), asked.command()], gaps=(0, 300))
    bench.sink(dut.outcome, 2)
    entries = bench.sink(dut.harvested, len(asked.entries), read=lambda p: (
        p.value.table, p.value.row, p.value.count))
    bench.run(limit=3000)
    assert entries == asked.entries
