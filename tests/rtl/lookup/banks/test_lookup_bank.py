"""Lookup bank: counters, slot table, miss table and bypass table against their golden models."""

from dataclasses import replace

import numpy as np
import pytest
from hotrow_rtl.config import EPOCH_WIDTH, preset
from hotrow_rtl.contract.encoding import NO_SLOT
from hotrow_rtl.interfaces.lookup_payloads import DirectoryOp
from hotrow_rtl.lookup.banks.lookup_bank import LookupBank
from hotrow_rtl.lookup.directory.payloads import Policy
from hotrow_rtl.lookup.directory.slot_table import distance
from hotrow_rtl.lookup.hashing.row_location import directory_hash, join_key, split_key
from hotrow_sim.golden.lookup.counters import Counters, unpack_key
from hotrow_sim.golden.lookup.directory import Directory
from hotrow_sim.golden.lookup.miss_table import MissTable
from hotrow_sim.golden.lookup.planner import NEVER, Planner

from tests.support.benches.stream_bench import STEADY, StreamBench
from tests.support.simulation import built

FIND, INSTALL, REMOVE, PLAN, MARK = DirectoryOp
TINY = replace(preset("tiny"), directory_sets=32, directory_partitions=2, stamp_bits=5)
PLANNERS = [TINY, replace(TINY, name="bus-64", bus_bytes=64, counter_sets=256, directory_choices=1,
                          directory_sets=64, directory_ways=4, miss_entries=1024)]
PLAIN = replace(preset("tiny"), name="no-planner", planner=False)
NO_PLANNERS = [PLAIN, replace(
    PLAIN, name="no-planner-bus-64", bus_bytes=64, counter_sets=256, directory_choices=1,
    directory_sets=256, miss_entries=1024)]
BANK = 5
GAPS = (0, 0, 3, 1, 9)
MOST_HELD = 24  # cycles: a request is held for two others of its sets


class Golden:
    """One request after the other."""

    def __init__(self, config, policy, admission=False):
        self.config = config
        self.counters, self.missed, self.bypassed_by = Counters(config), {}, {}
        if config.planner:
            self.planner = Planner(config, policy, admission)
            self.state = self.planner.state
        else:
            self.directory = Directory(config)

    def begin(self, batch, retired):
        self.state.retired = retired
        self.state.begin_batch(batch)
        self.newest = NEVER

    def respond(self, key, amount, miss, epoch, op, partition, batch):
        """(counted, (hit, slot or None), (first, evicted key or None), (kept, repeated, index));
        None: undefined."""
        row = tuple(int(part) for part in unpack_key(self.config, np.uint64(key)))
        count = int(self.counters.counts_of([row[0]], [row[1]])[0])
        counted = None
        if amount:
            counted = int(count > 0)
            self.counters.observe(*(np.full(amount, each) for each in (*row, 0)))
        hit, slot, more = (self._plan if self.config.planner else self._find)(
            key, row, op, partition, count, batch)
        missed = None
        if miss and slot is None:
            keys = self.missed.setdefault(epoch, [])
            keys.append(key)
            missed = tuple(int(each[-1]) for each in
                           MissTable(self.config).find(np.array(keys, np.uint64)))
        if op == PLAN and not hit and not (missed and missed[1]):
            entry = int(split_key(self.config, np.uint64(key))[1]) % 512
            by = min(self.bypassed_by.get(entry, NEVER), self.state.planned - 1)
            if by > self.state.retired:
                self.newest = max(self.newest, by)
            if slot is None:
                self.bypassed_by[entry] = self.state.planned
        return counted, (hit, slot), more, missed

    def _find(self, key, row, op, partition, count, batch):
        if op == INSTALL:
            slot, hit = self.directory.install(*row, partition)
        else:
            slot = int(self.directory.remove(*row, partition) if op == REMOVE else
                       self.directory.lookup(*([each] for each in (*row, *partition)))[0])
            hit = slot != NO_SLOT
        return int(hit), None if slot == NO_SLOT else slot, None

    def _plan(self, key, row, op, partition, count, batch):
        (starts,) = self.planner.starts(*([each] for each in (*row, *partition)))
        state = self.state
        if op == PLAN:
            plan = state.plan(key, starts, count)
            return int(plan.hit), plan.slot, None if plan.slot is None else (
                int(plan.first), plan.victim if plan.dirty else None)
        if op == INSTALL:
            install = state.install(key, starts, count)
            return int(install.hit), install.slot, None
        slot = (state.remove(key) if op == REMOVE else
                state.mark(batch, key) if op == MARK else state.find(key))
        return int(slot is not None), slot, None


def keys_of_bank(config, count, seed):
    """Different packed keys of one bank; many share their sets."""
    rng = np.random.default_rng(seed)
    keys = rng.choice(1 << config.bank_key_width - 8, count, replace=False).astype(np.uint64)
    if not config.planner:  # fewer sets
        keys = np.unique(keys & ~np.uint64(0x18) | keys % np.uint64(3) << np.uint64(3))
    return rng.permutation(join_key(config, np.uint64(BANK), keys)).tolist()


def slot_of(config, slot):
    set_ = slot["set"] * config.banks + BANK
    return (slot["choice"] * config.directory_sets + set_) * config.directory_ways + slot["way"]


class Player:
    """Requests to one bank; each answer, and when it comes."""

    def __init__(self, config, policy="lru", admission=False, gaps=STEADY):
        self.config, self.policy, self.gaps = config, policy, gaps
        self.dut, self.golden = built(LookupBank, config), Golden(config, policy, admission)
        self.admission = admission
        self.bench = StreamBench(self.dut)
        self.fired, self.wanted = [], []
        self.answered = 0
        self.seen = dict.fromkeys(("hit", "filled", "evicted", "bypassed", "repeated", "wait"), 0)

    async def drain(self, ctx):
        while self.answered < len(self.fired):
            await ctx.tick()
        await ctx.tick().repeat(self.dut.latency)

    async def setting(self, ctx, batch, retired):
        """Once no request is in the bank."""
        await self.drain(ctx)
        most = 1 << self.config.stamp_bits
        ctx.set(self.dut.batch, batch)
        ctx.set(self.dut.setting, {
            "batch": batch % most, "retired": retired % most, "admission": self.admission,
            "writes": 1, "policy": Policy[self.policy.upper()]})

    async def begin(self, ctx, batch, retired):
        """A batch is planned from here on."""
        await self.setting(ctx, batch, retired)
        self.golden.begin(batch, retired)
        ctx.set(self.dut.begin, 1)
        ctx.set(self.dut.sweep, batch % self.config.sweep_batches == 0)
        await ctx.tick()
        ctx.set(self.dut.begin, 0)
        ctx.set(self.dut.sweep, 0)

    async def ask(self, ctx, key, op=FIND, amount=0, miss=0, epoch=1, batch=0):
        config, dut = self.config, self.dut
        for _ in range(self.gaps[len(self.wanted) % len(self.gaps)]):
            await ctx.tick()
        parts = key % 2, key // 2 % (1 << key % 2)
        self.wanted.append((key, amount, miss, epoch, op, parts, batch))
        ctx.set(dut.requests.p, {
            "bank_key": int(split_key(config, np.uint64(key))[1]), "amount": amount, "miss": miss,
            "epoch": epoch, "op": op, "parts_log2": parts[0], "part": parts[1]})
        ctx.set(dut.requests.valid, 1)
        await ctx.tick().until(dut.requests.ready)
        ctx.set(dut.requests.valid, 0)
        self.fired.append(self.bench.cycles)

    async def check(self, ctx):
        while True:
            _, _, valid, answer = await ctx.tick().sample(
                self.dut.answers.valid, self.dut.answers.p)
            if not valid:
                continue
            number, request = self.answered, self.wanted[self.answered]
            where = f"request {number} {request}"
            held = self.bench.cycles - self.fired[number] - self.dut.latency
            assert 0 <= held <= MOST_HELD, f"{where} was held for {held} cycles"
            counted, (hit, slot), more, missed = self.golden.respond(*request)
            assert counted is None or answer.counted == counted, where
            got = answer.found
            assert (got.hit, got.placed) == (hit, int(slot is not None)), where
            assert slot is None or slot_of(self.config, got.slot) == slot, where
            self.seen["hit"] += hit
            if more is not None:
                first, victim = more
                assert (answer.first, answer.evicts) == (first, int(victim is not None)), where
                assert victim is None or answer.tag == self.tag(victim, got.slot), where
                self.seen["filled"] += not hit
                self.seen["evicted"] += victim is not None
            if missed is not None:
                got = answer.missed
                assert (got.kept, got.repeated if got.kept else 0) == missed[:2], where
                assert not missed[0] or got.place == missed[2], where
                self.seen["bypassed"] += 1
                self.seen["repeated"] += missed[1]
            self.answered += 1

    def tag(self, key, slot):
        hashed = directory_hash(self.config, slot.choice, split_key(self.config, np.uint64(key))[1])
        return int(hashed) >> self.config.bank_key_width - self.config.directory_tag_width

    def run(self, drive, limit=60_000):
        async def played(ctx):
            await ctx.tick().until(self.dut.ready)
            await drive(ctx)
            await self.drain(ctx)
        self.bench.process("requests", played)
        self.bench.background(self.check)
        self.bench.run(limit)
        assert self.answered == len(self.wanted)
        return self.seen


def play(config, policy, gaps=STEADY, admission=False, batches=12, counts=True, seed=1):
    """Batches are counted, installed, marked and planned, with rows that come again and again."""
    player = Player(config, policy, admission, gaps)
    rng = np.random.default_rng(seed)
    keys = keys_of_bank(config, 4 * config.slots // config.banks, seed)

    def some(count):
        return [keys[int(len(keys) * each ** 3)] for each in rng.random(count)]

    async def drive(ctx):
        retired = NEVER
        for key in some(6):
            await player.ask(ctx, key, amount=int(rng.integers(1, 4)))
        for batch in range(batches):
            await player.setting(ctx, batch - 1, retired)
            for key in some(3):
                await player.ask(ctx, key, rng.choice([INSTALL, REMOVE], p=[0.7, 0.3]))
            await player.setting(ctx, batch + 1, retired)
            for key in some(4):
                await player.ask(ctx, key, MARK, batch=batch + 1)
            await player.begin(ctx, batch, retired)
            for key in some(30):
                await player.ask(ctx, key, PLAN, miss=1, epoch=batch + 1,
                                 amount=int(rng.integers(1, 4)) * counts)
            await player.setting(ctx, batch, retired)
            newest = ctx.get(player.dut.newest)
            wanted = player.golden.newest
            assert (batch - newest.age if newest.valid else NEVER) == wanted, batch
            player.seen["wait"] += wanted != NEVER
            for key in some(5):
                await player.ask(ctx, key, miss=1, epoch=batch + 30)
            retired = max(retired, batch - int(rng.integers(1, 4)))
    return player.run(drive)


@pytest.mark.slow
@pytest.mark.parametrize("config, policy, gaps", [
    pytest.param(config, policy, gaps, marks=marks,
                 id=f"{config.name}-{policy}-{'gaps' if gaps is GAPS else 'steady'}")
    for config, policy, gaps, marks in (
        (TINY, "lfu", GAPS, ()), (PLANNERS[1], "lru", STEADY, ()),
        (TINY, "lru", STEADY, pytest.mark.long), (TINY, "rrip", STEADY, pytest.mark.slow),
        (TINY, "freq", STEADY, pytest.mark.slow), (PLANNERS[1], "lfu", GAPS, pytest.mark.long))])
def test_planned_batches(config, policy, gaps):
    seen = play(config, policy, gaps)
    assert min(seen.values()) > 3, seen


@pytest.mark.slow
def test_admission_by_what_the_counters_hold():
    """Without counting in the same pass a row that was refused stays so for its batch."""
    seen = play(TINY, "freq", admission=True, counts=False, batches=8)
    assert seen["bypassed"] > 20, seen


@pytest.mark.slow
@pytest.mark.parametrize("config", NO_PLANNERS, ids=lambda config: config.name)
@pytest.mark.parametrize("gaps", [STEADY, GAPS], ids=["steady", "gaps"])
def test_split_and_counted_batches(config, gaps):
    """Without a planner: lookups that count, split or both, with some edits between them."""
    player = Player(config, gaps=gaps)
    rng, keys = np.random.default_rng(1), keys_of_bank(config, 40, 1)

    async def drive(ctx):
        epoch = 1
        for _ in range(300):
            kind = rng.choice(["count", "split", "both", "edit"], p=[0.2, 0.35, 0.35, 0.1])
            if rng.random() < 0.03:
                epoch = min(epoch + 1, (1 << EPOCH_WIDTH) - 1)
            key = int(rng.choice(keys[:6] if rng.random() < 0.4 else keys))
            if kind == "edit":
                await player.ask(ctx, key, INSTALL if rng.random() < 0.7 else REMOVE)
            else:
                await player.ask(ctx, key, miss=int(kind != "count"), epoch=epoch,
                                 amount=int(rng.integers(1, 5)) * (kind != "split"))
    seen = player.run(drive)
    assert min(seen[name] for name in ("hit", "bypassed", "repeated")) > 20, seen


def test_a_request_a_cycle_unless_sets_meet():
    """Rows in different sets are not held; a row of the same set is, for the one before."""
    player = Player(TINY)
    used, apart = set(), []
    for key in keys_of_bank(TINY, 200, 3):
        table, row = unpack_key(TINY, np.uint64(key))
        (starts,) = player.golden.planner.starts([table], [row], [key % 2],
                                                 [key // 2 % (1 << key % 2)])
        if not used & set(starts):
            apart.append(key)
            used |= set(starts)

    async def drive(ctx):
        await player.begin(ctx, 1, NEVER)
        begun = player.bench.cycles
        for key in apart:
            await player.ask(ctx, key, PLAN)
        assert player.bench.cycles - begun == len(apart)
        await player.begin(ctx, 2, NEVER)
        for _ in range(6):
            await player.ask(ctx, apart[0], PLAN)
        assert player.fired[-1] - player.fired[-2] == player.dut.distance
    player.run(drive)
    assert len(apart) > 3


def test_without_a_planner_only_edits_and_equal_sets_are_waited_for():
    player, keys = Player(PLAIN), [
        int(join_key(PLAIN, np.uint64(BANK), np.uint64(7 * number % 8 << 4 | 7 * number % 8)))
        for number in range(64)]

    async def drive(ctx):
        begun = player.bench.cycles
        for key in keys:
            await player.ask(ctx, key, amount=1, miss=1)
        assert player.bench.cycles - begun == len(keys)
        await player.drain(ctx)
        begun = player.bench.cycles
        for key in keys_of_bank(PLAIN, 12, 3):
            await player.ask(ctx, key, INSTALL)
        # The first two requests and the last two wait in the bank.
        assert player.bench.cycles - begun == distance(PLAIN) * (12 - 3) + 3
    player.run(drive)


@pytest.mark.parametrize("config", [TINY, PLAIN], ids=lambda config: config.name)
def test_restart_drops_the_requests_in_flight(config):
    """At every age; nothing of them is found afterwards."""
    dut = built(LookupBank, config)
    bench = StreamBench(dut)
    row = {"bank_key": 77, "miss": 1, "epoch": 1}

    async def drive(ctx):
        await ctx.tick().until(dut.ready)
        for age in range(dut.latency):
            ctx.set(dut.requests.p, {
                **row, "amount": 1, "op": PLAN if config.planner else INSTALL})
            for pulse, wait in ((dut.requests.valid, age), (dut.restart, dut.latency + 2)):
                ctx.set(pulse, 1)
                await ctx.tick()
                ctx.set(pulse, 0)
                for _ in range(wait):
                    _, _, valid = await ctx.tick().sample(dut.answers.valid)
                    assert not valid, age
        ctx.set(dut.requests.p, {**row, "amount": 1})
        ctx.set(dut.requests.valid, 1)
        await ctx.tick()
        ctx.set(dut.requests.valid, 0)
        (answer,) = await ctx.tick().sample(dut.answers.p).until(dut.answers.valid)
        assert not answer.found.hit
        assert answer.missed.kept and not answer.missed.repeated
    bench.process("drive", drive)
    bench.run(1000)
