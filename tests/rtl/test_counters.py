import dataclasses

import numpy as np
import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.contract import Opcode, Status
from hotrow_rtl.counters import AccessCounters
from hotrow_rtl.mixing import unmix
from hotrow_sim.golden.counters import Counters, unpack_key
from hotrow_sim.streambench import RAGGED, STEADY, StreamBench

TINY = preset("tiny")


def variant(**parameters):
    name = ",".join(f"{key.removeprefix('counter_')}={value}" for key, value in parameters.items())
    return dataclasses.replace(TINY, name=name or "tiny", **parameters)


# Few sets, so that lookups in flight share one; every depth of the tree of minima; small counts.
CONFIGS = [
    variant(),
    variant(counter_sets=2, counter_ways=2, counter_bits=4),
    variant(counter_sets=4, counter_ways=3, counter_bits=4),
    variant(counter_sets=2, counter_ways=4, counter_bits=5),
    variant(counter_sets=4, counter_ways=8, counter_bits=6),
    variant(counter_sets=2, counter_ways=16, counter_bits=4),
    variant(counter_sets=2, counter_ways=16, counter_bits=16),
    variant(counter_sets=4, counter_ways=23, counter_bits=32),
    variant(counter_sets=2, counter_ways=64, counter_bits=8),
]


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
        first = int(np.argmax(~served)) if not served.all() else 0
        return {"status": int(refusal[first]), "error_index": first, "lookups": int(served.sum()),
                "hits": hits, "misses": int(served.sum()) - hits}


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
    """The counters beside their golden model."""

    def __init__(self, config, steps, gaps=STEADY, pauses=STEADY):
        self.dut, self.counters = AccessCounters(config), Counters(config)
        self.bench = StreamBench(self.dut)
        outcomes = [{name: 0 for name in COUNTS} | step.expected(self.counters) for step in steps]
        lookups = [lookup for step in steps if isinstance(step, Observe)
                   for lookup in step.lookups()]
        self.entries = []
        for step in steps:
            if isinstance(step, Harvest):
                self.entries += [(*entry, 1) for entry in step.entries[:-1]]
                self.entries += [(*entry, 1, 1) for entry in step.entries[-1:]] or [(0, 1)]
        self.expected = outcomes
        bench, dut = self.bench, self.dut
        bench.source(dut.lookups, lookups, gaps)
        bench.source(dut.command, [step.command() for step in steps])
        self.outcomes = []
        self.ends = []

        def note(payload):
            self.ends.append(bench.cycles)
            return {name: payload[name] for name in COUNTS}
        self.outcomes = bench.sink(dut.outcome, len(steps), pauses, name="outcomes", read=note)

        def entry(payload):
            tail = (payload.present, 1) if payload.last else (payload.present,)
            value = payload.value
            return (value.table, value.row, value.count, *tail) if payload.present else tail
        self.harvested = bench.sink(dut.harvested, len(self.entries), pauses, name="entries",
                                    read=entry)

    def run(self, limit=100_000):
        self.bench.run(limit)
        assert self.harvested == self.entries
        assert self.outcomes == self.expected
        return self


def everything(config, kind, seed, count=300):
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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_counters_equal_golden(config, kind):
    Bench(config, everything(config, kind, seed=len(kind))).run()


@pytest.mark.parametrize("gaps, pauses", [(STEADY, RAGGED), (RAGGED, STEADY), (RAGGED, RAGGED)],
                         ids=["back-pressure", "gaps", "both"])
@pytest.mark.parametrize("kind", ["skewed", "churn"])
def test_counters_with_stalls(kind, gaps, pauses):
    config = variant(counter_sets=2, counter_ways=8)
    Bench(config, everything(config, kind, seed=7), gaps, pauses).run()
