"""Count banks with the scans over them, beside the golden counters."""

import dataclasses

import numpy as np
import pytest
from amaranth import Cat, Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from hotrow_rtl.config import preset
from hotrow_rtl.contract.encoding import Opcode
from hotrow_rtl.interfaces.lookup_payloads import count_answer, count_request
from hotrow_rtl.interfaces.records import command, harvest_entry, outcome, result
from hotrow_rtl.lookup.counters.bank import CounterBank
from hotrow_rtl.lookup.counters.scan_engine import ScanEngine
from hotrow_rtl.lookup.hashing.row_location import join_counter_key, join_key, split_key
from hotrow_sim.cycles.counters import bank_cycles, clear_cycles, decay_cycles, harvest_cycles
from hotrow_sim.golden.lookup.combiner import owners
from hotrow_sim.golden.lookup.counters import Counters, pack_key, unpack_key

from tests.support.benches.stream_bench import StreamBench
from tests.support.simulation import built

TINY = preset("tiny")


def variant(**parameters):
    name = ",".join(f"{key.removeprefix('counter_')}={value}" for key, value in parameters.items())
    return dataclasses.replace(TINY, name=name or "tiny", **parameters)


SMALL = [
    variant(lane_banks=1, counter_sets=32),
    variant(lane_banks=1, counter_sets=16, counter_ways=2, counter_bits=4),
    variant(lane_banks=1, counter_sets=16, counter_ways=3, counter_bits=5),
    variant(lane_banks=1, counter_sets=16, counter_ways=8, counter_bits=6),
]
# Two sets a bank, so that requests in flight share one; ways of every kind; small counts.
CONFIGS = [
    variant(),
    variant(counter_sets=16, counter_ways=2, counter_bits=4),
    variant(counter_sets=16, counter_ways=3, counter_bits=5),
    variant(counter_sets=16, counter_ways=8, counter_bits=6),
    variant(counter_sets=32, counter_ways=16, counter_bits=32),
]


class CountedBanks(wiring.Component):
    """All count banks, and the scans over them."""

    def __init__(self, config):
        self.config = config
        super().__init__({
            "requests": In(stream.Signature(count_request(config))).array(config.banks),
            "answers": Out(stream.Signature(count_answer(config), always_ready=True)).array(
                config.banks),
            "command": In(stream.Signature(command)),
            "harvested": Out(stream.Signature(result(harvest_entry))),
            "outcome": Out(stream.Signature(outcome)),
            "restart": In(1),
            "ready": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.scans = scans = ScanEngine(self.config)
        banks = [CounterBank(self.config) for _ in self.requests]
        for name in ("command", "harvested", "outcome"):
            connect(m, outer=flipped(getattr(self, name)), scans=getattr(scans, name))
        m.d.comb += [
            self.ready.eq(Cat(bank.ready for bank in banks).all()),
            scans.cleared.eq(self.ready),
            scans.restart.eq(self.restart),
        ]
        for number, bank in enumerate(banks):
            m.submodules[f"bank{number}"] = bank
            connect(m, scans=scans.banks[number], bank=bank.scan)
            connect(m, outer=flipped(self.requests[number]), bank=bank.requests)
            connect(m, bank=bank.answers, outer=flipped(self.answers[number]))
            m.d.comb += [bank.clear.eq(scans.clear), bank.restart.eq(self.restart)]
        return m


def trace(config, kind, count, seed):
    """(table, row, beat) of `count` lookups."""
    rng = np.random.default_rng(seed)
    beat = np.arange(count) // config.lanes
    if kind == "uniform":
        row = rng.integers(0, 2 * config.counter_entries, count)
        return row % config.tables, row, beat
    if kind == "skewed":
        rank = np.minimum(rng.zipf(1.2, count), 1 << 31)
        return rank % config.tables, rank * 2654435761 % (1 << 32), beat
    if kind == "single":
        return np.full(count, 3), np.full(count, 12345), beat
    assert kind == "one-set"
    tables, rows = rows_of_one_set(config, 2 * config.counter_ways)
    pick = np.minimum(rng.geometric(1 / config.counter_ways, count), len(rows)) - 1
    return tables[pick], rows[pick], beat


def rows_of_one_set(config, count, bank=1, at=0):
    """(table, row) that all fall into set `at` of a bank."""
    tag = np.arange(count, dtype=np.uint64) * np.uint64(977) + np.uint64(5)
    rest = join_counter_key(config, np.uint64(at), tag)
    return unpack_key(config, join_key(config, np.uint64(bank), rest))


KINDS = ("uniform", "skewed", "single", "one-set")


class Bench:
    """Steps in order: ("observe", lookups), ("harvest", wanted, threshold), ("decay", shift) or
    ("clear",); each beside the golden model.

    Attributes
    ----------
    cycles : list of int
        Of each step, from its first request or its command to its last answer or outcome.
    models : list of int
    """

    def __init__(self, config, steps):
        self.config, self.steps = config, steps
        self.dut, self.golden = built(CountedBanks, config), Counters(config)
        self.cycles, self.models = [], []

    def run(self, limit=60000):
        self.bench = StreamBench(self.dut)

        async def drive(ctx):
            await ctx.tick().until(self.dut.ready)
            for number, (kind, *arguments) in enumerate(self.steps):
                self.step = f"step {number}, {kind}"
                await getattr(self, f"_{kind}")(ctx, *arguments)
        self.bench.process("steps", drive)
        self.bench.run(limit)
        return self

    async def _observe(self, ctx, table, row, beat):
        key = pack_key(self.config, table, row)
        owner, amount = np.unique(owners(key, beat, self.config.window_beats), return_counts=True)
        bank, rest = split_key(self.config, key[owner])
        hits = self.golden.observe(table, row, beat)
        queues = [[(int(r), int(a))
                   for r, a in zip(rest[bank == b], amount[bank == b], strict=True)]
                  for b in range(self.config.banks)]
        longest = max(bank_cycles(self.config, [rest for rest, _ in queue]) for queue in queues)
        dut, found, waiting, start = self.dut, [], [list(queue) for queue in queues], None
        answered = [0] * len(queues)
        start = self.bench.cycles
        watched = [signal for port, answer in zip(dut.requests, dut.answers, strict=True)
                   for signal in (port.ready, answer.valid, answer.p.counted)]
        while any(answered[b] < len(queue) for b, queue in enumerate(queues)):
            offers = []
            for b, port in enumerate(dut.requests):
                offers.append(bool(waiting[b]))
                ctx.set(port.valid, offers[b])
                if offers[b]:
                    ctx.set(port.p, dict(zip(("bank_key", "amount"), waiting[b][0], strict=True)))
            _, _, *seen = await ctx.tick().sample(*watched)
            for b in range(len(queues)):
                if offers[b] and seen[3 * b]:
                    waiting[b].pop(0)
                if seen[3 * b + 1]:
                    amount = queues[b][answered[b]][1]
                    found.append(amount if seen[3 * b + 2] else amount - 1)
                    answered[b] += 1
        for port in dut.requests:
            ctx.set(port.valid, 0)
        assert sum(found) == hits, self.step
        self.cycles.append(self.bench.cycles - start)
        self.models.append(longest)

    async def _command(self, ctx, **operands):
        """The outcome of a command, the entries that it gave and its cycles."""
        dut, entries = self.dut, []
        ctx.set(dut.command.p, operands)
        ctx.set(dut.command.valid, 1)
        await ctx.tick().until(dut.command.ready)
        ctx.set(dut.command.valid, 0)
        start = self.bench.cycles - 1
        ctx.set(dut.harvested.ready, 1)
        while True:
            _, _, valid, entry, ended, report = await ctx.tick().sample(
                dut.harvested.valid, dut.harvested.p, dut.outcome.valid, dut.outcome.p)
            if valid and entry.present:
                entries.append((entry.value.table, entry.value.row, entry.value.count))
            if ended:
                self.cycles.append(self.bench.cycles - start)
                ctx.set(dut.outcome.ready, 1)
                await ctx.tick()
                ctx.set(dut.outcome.ready, 0)
                return report, entries

    async def _harvest(self, ctx, wanted, threshold=0):
        table, row, count = self.golden.harvest(wanted, threshold)
        self.models.append(harvest_cycles(self.config, self.golden.count, wanted, threshold))
        report, entries = await self._command(
            ctx, opcode=Opcode.HARVEST, count=wanted, threshold=threshold)
        assert entries == list(zip(
            table.tolist(), row.tolist(), count.tolist(), strict=True)), self.step
        assert report.entries == len(entries)

    async def _decay(self, ctx, shift):
        self.golden.decay(shift)
        self.models.append(decay_cycles(self.config, shift))
        await self._command(ctx, opcode=Opcode.DECAY, shift=shift)

    async def _clear(self, ctx):
        self.golden.clear()
        self.models.append(clear_cycles(self.config))
        await self._command(ctx, opcode=Opcode.DECAY, flags=1)


def everything(config, kind, seed, count):
    """Observe, harvest all and part, decay, and observe again on what is left."""
    everyone = config.counter_entries
    return [
        ("observe", *trace(config, kind, count, seed)),
        ("harvest", everyone),
        ("harvest", max(1, everyone // 3)),
        ("decay", 1),
        ("observe", *trace(config, kind, count // 2, seed + 1)),
        ("harvest", everyone, 2),
        ("clear",),
        ("harvest", 5),
        ("observe", *trace(config, kind, count // 2, seed + 2)),
        ("harvest", everyone),
    ]


def check_cycles(bench):
    for (step, *_), cycles, model in zip(bench.steps, bench.cycles, bench.models, strict=True):
        assert abs(cycles - model) <= 1, f"{step}: {cycles}, model {model}"


@pytest.mark.slow
@pytest.mark.parametrize("config, kind", [
    (SMALL[0], "skewed"), (SMALL[1], "uniform"), (SMALL[2], "single"), (SMALL[3], "one-set"),
    *(pytest.param(*case, marks=pytest.mark.long)
      for case in ((SMALL[2], "one-set"), (SMALL[3], "skewed")))],
    ids=lambda value: getattr(value, "name", value))
def test_equals_golden_and_the_models(config, kind):
    check_cycles(Bench(config, everything(config, kind, 3, count=200)).run())


@pytest.mark.long
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_equals_golden_and_the_models_at_length(config):
    steps = [step for seed, kind in enumerate(KINDS)
             for step in everything(config, kind, 100 + seed, count=400)]
    check_cycles(Bench(config, steps).run(limit=400_000))


@pytest.mark.slow
def test_decay_where_no_set_waits():
    """With sets enough for a bank's pipeline each pass halves every entry once."""
    config = variant(lane_banks=1, counter_sets=64, counter_ways=4, counter_bits=8)
    row = np.repeat(np.arange(config.counter_entries), 16)
    lookups = np.zeros_like(row), row, np.arange(len(row)) // config.lanes
    check_cycles(Bench(config, [step for shift in (2, 3) for step in (
        ("observe", *lookups), ("decay", shift), ("harvest", config.counter_entries))]).run())


@pytest.mark.slow
def test_one_request_a_cycle():
    """On distinct sets without a gap; on one set every `distance` cycles."""
    config = variant(lane_banks=1, counter_sets=128)
    apart = [rows_of_one_set(config, 1, bank=2, at=at % 32) for at in range(200)]
    table, row = (np.concatenate(part) for part in zip(*apart, strict=True))
    beat = np.arange(200) * 5  # no window holds two of a row
    bench = Bench(config, [("observe", table, row, beat)]).run()
    assert bench.cycles[0] <= 200 + CounterBank.latency + 2
    together = rows_of_one_set(config, 100, bank=2)
    bench = Bench(config, [("observe", *together, np.arange(100) * 5)]).run()
    assert abs(bench.cycles[0] - 100 * CounterBank.distance) <= CounterBank.distance
