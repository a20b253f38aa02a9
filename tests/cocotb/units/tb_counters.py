"""Access counters beside the golden counters: batches, harvests and decays at random."""

import os

import cocotb
import numpy as np
from cocotb.triggers import ClockCycles, with_timeout
from cocotb.utils import get_sim_time
from hotrow_rtl.lookup.counters.bank import CounterBank
from hotrow_rtl.lookup.hashing.row_location import join_counter_key, join_key
from hotrow_rtl.units.counters import ScanOp
from hotrow_sim.bench.unit_bench import UnitBench
from hotrow_sim.golden.lookup.counters import Counters, unpack_key

SEED, ROUNDS = int(os.environ.get("SEED", 1)), int(os.environ.get("ROUNDS", 4))
MOST = (1 << 32) - 1
KINDS = ("uniform", "skewed", "single", "one-set")


class Bench:
    """The unit and its model, which take the same steps."""

    def __init__(self, units, seed):
        self.units, self.config = units, units.config
        self.golden, self.rng = Counters(units.config), np.random.default_rng(seed)

    @classmethod
    async def start(cls, dut, seed=SEED, **pace):
        return cls(await UnitBench.start(dut, seed=seed, **pace), seed)

    def rows(self, kind, count):
        """(table, row) of lookups."""
        c, rng = self.config, self.rng
        if kind == "uniform":
            row = rng.integers(0, 2 * c.counter_entries, count)
            return row % c.tables, row
        if kind == "skewed":
            rank = np.minimum(rng.zipf(1.2, count), 1 << 31)
            return rank % c.tables, rank * 2654435761 % (1 << 32)
        if kind == "single":
            return np.full(count, 3 % c.tables), np.full(count, MOST)
        return self.one_set(np.minimum(rng.geometric(1 / c.counter_ways, count),
                                       2 * c.counter_ways))

    def one_set(self, numbers):
        """(table, row) of rows that share a set, by number."""
        c, tags = self.config, np.uint64(977) * np.asarray(numbers, np.uint64)
        rest = join_counter_key(c, np.uint64(1), tags)
        return unpack_key(c, join_key(c, np.uint64(c.banks - 1), rest))

    def beats(self, table, row, density=1.0):
        """Beats with the lookups in random lanes, and the beat of each lookup."""
        at, beats, places = 0, [], []
        while at < len(row) or not beats:
            present = self.rng.random(self.config.lanes) < density
            lanes = []
            for lane in range(self.config.lanes):
                here = bool(present[lane]) and at < len(row)
                noise = self.rng.integers(0, 1 << 32)
                lanes.append({"row": int(row[at]) if here else int(noise),
                              "table": int(table[at]) if here else 0, "present": here})
                if here:
                    places.append(len(beats))
                    at += 1
            beats.append({"lanes": lanes, "last": at >= len(row)})
        return beats, np.array(places, np.int64)

    def put(self, table, row, density=1.0):
        """Send a batch; return its expected (lookups, hits)."""
        beats, places = self.beats(table, row, density)
        self.units.lookups.put(*beats)
        return len(row), self.golden.observe(table, row, places)

    async def check(self, *expected):
        """The next reports are the expected ones."""
        for each in expected:
            report = await with_timeout(self.units.reports.get(), 50, "us")
            assert (report.lookups, report.hits) == each, f"seed {SEED}"

    async def harvest(self, count=MOST, threshold=1):
        self.units.commands.put(
            {"op": ScanOp.HARVEST, "count": count, "threshold": threshold, "shift": 7})
        expected = [tuple(map(int, entry)) for entry in zip(
            *self.golden.harvest(max(count, 1), threshold), strict=True)]
        await self.harvested(expected)

    async def harvested(self, expected):
        """The entries that come are the expected ones, and then the command ends."""
        found, last = [], False
        while not last:
            entry = await with_timeout(self.units.harvested.get(), 50, "us")
            if entry.present:
                found.append((entry.table, entry.row, entry.count))
            last = entry.last
        assert found == expected, f"seed {SEED}"
        assert (await self.units.ended.get()).entries == len(expected)

    async def scan(self, op, shift=0):
        self.units.commands.put({"op": op, "count": 5, "threshold": 6, "shift": shift})
        self.golden.clear() if op is ScanOp.CLEAR else self.golden.decay(shift)
        assert (await with_timeout(self.units.ended.get(), 50, "us")).entries == 0


@cocotb.test(timeout_time=1, timeout_unit="ms")
@cocotb.parametrize(pace=[(0.0, 0.0), (0.4, 0.0), (0.0, 0.6), (0.3, 0.4)])
async def batches_and_commands_equal_the_model(dut, pace):
    bench = await Bench.start(dut, idle=pace[0], stall=pace[1])
    for turn in range(ROUNDS):
        kind = KINDS[turn % len(KINDS)]
        counts = bench.rng.integers(0, 120, 3)
        expected = [bench.put(*bench.rows(kind, count), density)
                    for count, density in zip(counts, (1.0, 0.5, 0.9), strict=True)]
        await bench.check(*expected)
        await bench.harvest()
        await bench.harvest(int(bench.rng.integers(0, 30)), int(bench.rng.integers(0, 4)))
        await bench.scan(ScanOp.DECAY, turn % 3)
        await bench.check(bench.put(*bench.rows(kind, 60)))
        await bench.harvest(20)
    bench.units.finish()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def counts_saturate_and_decay_by_every_shift(dut):
    bench = await Bench.start(dut)
    bits = bench.config.counter_bits
    for shift in (0, 1, bits - 1, bits, 63):
        for _ in range(3 if bits < 8 else 1):
            await bench.check(bench.put(*bench.rows("single", 40)),
                              bench.put(*bench.rows("one-set", 30)))
        await bench.scan(ScanOp.DECAY, min(shift, 63))
        await bench.harvest()
    await bench.scan(ScanOp.CLEAR)
    await bench.harvest()  # of no entries: one absent element
    await bench.harvest(0, 0)
    await bench.check(bench.put(*bench.rows("skewed", 50)))
    await bench.harvest(0, 0)
    await bench.harvest(MOST, 1 << 31)
    await bench.harvest(MOST, 0)
    bench.units.finish()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def a_row_enters_when_the_credit_of_another_is_used_up(dut):
    """Competing lookups, one or several a request, take the credit that hits gave."""
    bench = await Bench.start(dut)
    ways = bench.config.counter_ways
    for hits in (1, 2, 5):
        await bench.scan(ScanOp.CLEAR)
        await bench.check(bench.put(*bench.one_set([0])))  # its tag is that of an empty way
        for _ in range(hits + 1):
            await bench.check(bench.put(*bench.one_set(range(1, ways + 1))))
        most = bench.config.lanes * (bench.config.window_beats + 1)
        for _ in range(64):
            numbers = [ways + 1] * int(bench.rng.integers(1, most + 1))
            await bench.check(bench.put(*bench.one_set(numbers)))
            if bench.golden.counts_of(*bench.one_set([ways + 1]))[0]:
                break
        else:
            raise AssertionError("the row did not enter")
        await bench.harvest()
    bench.units.finish()


@cocotb.test(timeout_time=200, timeout_unit="us")
async def batches_and_commands_do_not_overlap(dut):
    """A command in a batch waits for its end, and goes before the next batch."""
    bench = await Bench.start(dut, stall=0.2)
    (table, row), later = bench.rows("skewed", 40), bench.rows("skewed", 40)
    beats, places = bench.beats(table, row)
    first = (len(row), bench.golden.observe(table, row, places))
    bench.units.lookups.put(*beats[:3])
    await bench.units.lookups.drained()
    bench.units.commands.put({"op": ScanOp.HARVEST, "count": MOST, "threshold": 0, "shift": 0})
    bench.units.commands.put({"op": ScanOp.CLEAR, "count": 0, "threshold": 0, "shift": 0})
    expected = [tuple(map(int, entry)) for entry in zip(*bench.golden.harvest(MOST, 0),
                                                        strict=True)]
    await ClockCycles(dut.clk, 60)
    assert bench.units.commands.transfers == 0 and not bench.units.harvested.received
    bench.units.lookups.put(*beats[3:])
    bench.golden.clear()
    following = bench.put(*later)
    await bench.check(first)
    await bench.harvested(expected)
    assert (await bench.units.ended.get()).entries == 0
    await bench.check(following)

    entries = [tuple(map(int, entry)) for entry in zip(*bench.golden.harvest(MOST, 0),
                                                       strict=True)]
    bench.units.harvested.paused = True
    bench.units.commands.put({"op": ScanOp.HARVEST, "count": MOST, "threshold": 0, "shift": 0})
    while bench.units.commands.transfers < 3:
        await ClockCycles(dut.clk, 1)
    before, following = bench.units.lookups.transfers, bench.put(*bench.rows("skewed", 30))
    await ClockCycles(dut.clk, 60)
    assert bench.units.lookups.transfers == before, "a batch entered during a command"
    bench.units.harvested.paused = False
    await bench.harvested(entries)
    await bench.check(following)
    await bench.harvest()
    bench.units.finish()


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def a_restart_drops_what_is_inside(dut):
    """After it and a CLEAR the unit is as new; counts written before it stay."""
    bench = await Bench.start(dut, idle=0.1, stall=0.3)
    for cycles in (0, 1, 7, 20, 45, 70, 95):
        kept = bench.put(*bench.rows("uniform", 30))
        await bench.check(kept)
        if cycles % 2:  # within a scan that changes nothing
            bench.units.commands.put(
                {"op": ScanOp.HARVEST, "count": 3, "threshold": 0, "shift": 0})
            await ClockCycles(dut.clk, cycles)
            await bench.units.restart()
            await bench.harvest()
        bench.put(*bench.rows("skewed", 60))
        bench.put(*bench.rows("uniform", 60))
        await ClockCycles(dut.clk, cycles)
        await bench.units.restart()
        await bench.scan(ScanOp.CLEAR)
        await bench.check(bench.put(*bench.rows("uniform", 40)))
        await bench.harvest()
    bench.units.finish()


@cocotb.test(timeout_time=200, timeout_unit="us")
async def one_beat_a_cycle(dut):
    """While the lanes use different banks, and no set recurs within the distance of a bank."""
    bench = await Bench.start(dut)
    c, beats = bench.config, 200
    sets = c.counter_sets // c.banks
    assert sets >= CounterBank.distance, f"{sets} sets a bank are too few for this test"
    at, lane = np.divmod(np.arange(beats * c.lanes, dtype=np.uint64), np.uint64(c.lanes))
    tag = at // np.uint64(sets) + np.uint64(1)
    table, row = unpack_key(c, join_key(c, lane, join_counter_key(c, at % np.uint64(sets), tag)))
    table %= c.tables
    expected = bench.put(table, row)
    start = get_sim_time("ns")
    await bench.units.lookups.drained()
    taken = (get_sim_time("ns") - start) / 10
    dut._log.info(f"cycles: {taken:.0f} for {beats} beats of {c.lanes} lookups")
    assert taken <= beats + 2, f"{taken} cycles for {beats} beats"
    await bench.check(expected)
