"""Planner bank: counters, slots, miss table and stamps together, beside their golden models."""

from dataclasses import replace

import numpy as np
import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.interfaces.lookup_payloads import DirectoryOp
from hotrow_rtl.lookup.hashing.row_location import directory_hash, key_of, place
from hotrow_rtl.lookup.planner.bank import PlannerBank
from hotrow_rtl.lookup.planner.payloads import Policy
from hotrow_sim.cost.design_memory import memory_bits
from hotrow_sim.cost.lookup import counters_bits, miss_table_bits, slot_table_bits
from hotrow_sim.golden.lookup.counters import Counters, unpack_key
from hotrow_sim.golden.lookup.miss_table import MissTable
from hotrow_sim.golden.lookup.planner import NEVER, Planner
from hotrow_sim.testing.benches.stream_bench import StreamBench

TINY = replace(preset("tiny"), directory_sets=32, directory_partitions=2,
               stamp_bits=5)
CONFIGS = [TINY, replace(TINY, name="bus-64", bus_bytes=64, counter_sets=256, directory_choices=1,
                         directory_sets=64, directory_ways=4, miss_entries=1024)]
BANK = 5
MOST_WAIT = 24  # cycles: two requests behind others of their sets


class Golden:
    """One request after the other."""

    def __init__(self, config, policy, admission=False):
        self.config = config
        self.counters = Counters(config)
        self.planner = Planner(config, policy, admission)
        self.state = self.planner.state
        self.missed, self.bypassed_by = {}, {}

    def begin(self, batch, retired):
        self.state.retired = retired
        self.state.begin_batch(batch)
        self.newest = NEVER

    def answer(self, key, amount, ask, miss, epoch, edit, partition, batch):
        """(counted, (hit, slot or None), (first, evicted key or None), (kept, repeated, place));
        None: anything."""
        table, row = (int(part) for part in unpack_key(self.config, np.uint64(key)))
        (starts,) = self.planner.starts([table], [row], *([each] for each in partition))
        count = int(self.counters.counts_of([table], [row])[0])
        counted = found = more = missed = None
        if amount:
            counted = int(count > 0)
            self.counters.observe(*(np.full(amount, each) for each in (table, row, 0)))
        state, slot = self.state, None
        if edit == DirectoryOp.PLAN:
            plan = state.plan(key, starts, count)
            slot, found = plan.slot, (int(plan.hit), plan.slot)
            if slot is not None:
                more = int(plan.first), plan.victim if plan.dirty else None
        elif edit == DirectoryOp.INSTALL:
            install = state.install(key, starts, count)
            slot, found = install.slot, (int(install.hit), install.slot)
        elif edit == DirectoryOp.REMOVE or ask:
            slot = (state.remove(key) if edit == DirectoryOp.REMOVE else
                    state.mark(batch, key) if edit == DirectoryOp.MARK else state.find(key))
            found = int(slot is not None), slot
        repeated = False
        if miss and slot is None:
            keys = self.missed.setdefault(epoch, [])
            keys.append(key)
            kept, repeated, at = (int(each[-1]) for each in
                                  MissTable(self.config).find(np.array(keys, np.uint64)))
            missed = kept, repeated, at
        if edit == DirectoryOp.PLAN and not found[0] and not repeated:
            entry = int(place(self.config, np.uint64(key))[1]) % 512
            by = min(self.bypassed_by.get(entry, NEVER), state.planned - 1)
            if by > state.retired:
                self.newest = max(self.newest, by)
            if slot is None:
                self.bypassed_by[entry] = state.planned
        return counted, found, more, missed


def keys_of_bank(config, count, seed):
    """Different packed keys of one bank; many share their sets."""
    rng = np.random.default_rng(seed)
    rest = rng.choice(1 << config.bank_key_width - 8, count, replace=False).astype(np.uint64)
    return rng.permutation(key_of(config, np.uint64(BANK), rest)).tolist()


def slot_of(config, slot):
    set_ = slot["set"] * config.banks + BANK
    return (slot["choice"] * config.directory_sets + set_) * config.directory_ways + slot["way"]


class Player:
    """Batches of requests to one bank; each answer, and when it comes."""

    def __init__(self, config, policy="lru", admission=False, gaps=(0,)):
        self.config, self.policy, self.gaps = config, policy, gaps
        self.dut, self.golden = PlannerBank(config), Golden(config, policy, admission)
        self.admission = admission
        self.bench = StreamBench(self.dut)
        self.entered, self.wanted = [], []
        self.answered = 0
        self.seen = dict.fromkeys(("hit", "filled", "evicted", "bypassed", "repeated", "wait"), 0)

    async def setting(self, ctx, batch, retired):
        """Once nothing is inside."""
        while self.answered < len(self.entered):
            await ctx.tick()
        await ctx.tick().repeat(self.dut.latency)
        most = 1 << self.config.stamp_bits
        ctx.set(self.dut.batch, batch)
        ctx.set(self.dut.setting, {
            "batch": batch % most, "retired": retired % most, "admission": self.admission,
            "writes": 1, "policy": getattr(Policy, self.policy.upper())})

    async def begin(self, ctx, batch, retired):
        """A batch is planned from here on."""
        await self.setting(ctx, batch, retired)
        self.golden.begin(batch, retired)
        ctx.set(self.dut.begin, 1)
        ctx.set(self.dut.sweep, batch % self.config.sweep_batches == 0)
        await ctx.tick()
        ctx.set(self.dut.begin, 0)
        ctx.set(self.dut.sweep, 0)

    async def ask(self, ctx, key, edit, amount=0, miss=0, epoch=1, batch=0):
        config, dut = self.config, self.dut
        for _ in range(self.gaps[len(self.wanted) % len(self.gaps)]):
            await ctx.tick()
        parts = key % 2, key // 2 % (1 << key % 2)
        asks = int(edit is not None)
        self.wanted.append((key, amount, asks, miss, epoch, edit or DirectoryOp.FIND, parts, batch))
        ctx.set(dut.requests.p, {
            "bank_key": int(place(config, np.uint64(key))[1]), "amount": amount, "search": asks,
            "miss": miss, "epoch": epoch, "op": edit or DirectoryOp.FIND, "parts_log2": parts[0],
            "part": parts[1]})
        ctx.set(dut.requests.valid, 1)
        await ctx.tick().until(dut.requests.ready)
        ctx.set(dut.requests.valid, 0)
        self.entered.append(self.bench.cycles)

    async def check(self, ctx):
        while True:
            _, _, valid, answer = await ctx.tick().sample(
                self.dut.answers.valid, self.dut.answers.p)
            if not valid:
                continue
            number, request = self.answered, self.wanted[self.answered]
            where = f"request {number} {request}"
            waited = self.bench.cycles - self.entered[number] - self.dut.latency
            assert 0 <= waited <= MOST_WAIT, f"{where} waited {waited}"
            counted, found, more, missed = self.golden.answer(*request)
            assert counted is None or answer.counted == counted, where
            if found is not None:
                hit, slot = found
                got = answer.found
                assert (got.hit, got.placed) == (hit, int(slot is not None)), where
                assert slot is None or slot_of(self.config, got.slot) == slot, where
                self.seen["hit"] += hit
            if more is not None:
                first, victim = more
                assert (answer.first, answer.evicts) == (first, int(victim is not None)), where
                assert victim is None or answer.tag == self.tag(victim, answer.found.slot), where
                self.seen["filled"] += not found[0]
                self.seen["evicted"] += victim is not None
            if missed is not None:
                got = answer.missed
                assert (got.kept, got.repeated if got.kept else 0) == missed[:2], where
                assert not missed[0] or got.place == missed[2], where
                self.seen["bypassed"] += 1
                self.seen["repeated"] += missed[1]
            self.answered += 1

    def tag(self, key, slot):
        hashed = directory_hash(self.config, slot.choice, place(self.config, np.uint64(key))[1])
        return int(hashed) >> self.config.bank_key_width - self.config.directory_tag_width

    def run(self, drive, limit=60_000):
        async def played(ctx):
            await ctx.tick().until(self.dut.ready)
            await drive(ctx)
            await self.setting(ctx, 0, 0)
        self.bench.process("requests", played)
        self.bench.background(self.check)
        self.bench.run(limit)
        assert self.answered == len(self.wanted)


def play(config, policy, gaps=(0,), admission=False, batches=24, counts=True, seed=1):
    """Batches are counted, installed, marked and planned, with rows that come again and again."""
    player = Player(config, policy, admission, gaps)
    rng = np.random.default_rng(seed)
    keys = keys_of_bank(config, 4 * config.slots // config.banks, seed)

    def some(count):
        return [keys[int(len(keys) * each ** 3)] for each in rng.random(count)]

    async def drive(ctx):
        retired = NEVER
        for key in some(6):
            await player.ask(ctx, key, None, amount=int(rng.integers(1, 4)))
        for batch in range(batches):
            await player.setting(ctx, batch - 1, retired)
            for key in some(3):
                await player.ask(ctx, key, rng.choice([DirectoryOp.INSTALL, DirectoryOp.REMOVE], p=[0.7, 0.3]))
            await player.setting(ctx, batch + 1, retired)
            for key in some(4):
                await player.ask(ctx, key, DirectoryOp.MARK, batch=batch + 1)
            await player.begin(ctx, batch, retired)
            for key in some(30):
                await player.ask(ctx, key, DirectoryOp.PLAN, miss=1, epoch=batch + 1,
                                 amount=int(rng.integers(1, 4)) * counts)
            await player.setting(ctx, batch, retired)
            newest = ctx.get(player.dut.newest)
            wanted = player.golden.newest
            assert (batch - newest.age if newest.valid else NEVER) == wanted, batch
            player.seen["wait"] += wanted != NEVER
            for key in some(5):
                await player.ask(ctx, key, DirectoryOp.FIND, miss=1, epoch=batch + 30)
            retired = max(retired, batch - int(rng.integers(1, 4)))
    player.run(drive)
    return player.seen


@pytest.mark.parametrize("gaps", [(0,), (0, 0, 3, 1, 9)], ids=["steady", "gaps"])
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_equals_the_golden_models(config, gaps):
    seen = play(config, "lfu", gaps)
    assert min(seen.values()) > 3, seen


@pytest.mark.parametrize("policy", ["lru", "rrip", "freq"])
def test_policies(policy):
    seen = play(TINY, policy)
    assert min(seen.values()) > 3, seen


def test_admission_by_what_the_counters_hold():
    """Without counting in the same pass a row that was refused stays so for its batch."""
    seen = play(TINY, "freq", admission=True, counts=False)
    assert seen["bypassed"] > 50, seen


def test_a_request_a_cycle_unless_sets_meet():
    """Rows in different sets wait for nothing; those of one set, for the row before."""
    player = Player(TINY)
    keys, used, apart = keys_of_bank(TINY, 200, 3), set(), []
    for key in keys:
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
            await player.ask(ctx, key, DirectoryOp.PLAN)
        assert player.bench.cycles - begun == len(apart)
        await player.begin(ctx, 2, NEVER)
        for _ in range(6):
            await player.ask(ctx, apart[0], DirectoryOp.PLAN)
        assert player.entered[-1] - player.entered[-2] == player.dut.distance
    player.run(drive)
    assert len(apart) > 3


@pytest.mark.parametrize("after", range(0, 16, 3))
def test_restart_drops_the_requests_in_flight(after):
    dut = PlannerBank(TINY)
    bench = StreamBench(dut)

    async def drive(ctx):
        await ctx.tick().until(dut.ready)
        ctx.set(dut.requests.p, {"bank_key": 77, "amount": 1, "search": 1, "miss": 1, "epoch": 1,
                                 "op": DirectoryOp.PLAN})
        for pulse, behind in ((dut.requests.valid, after), (dut.restart, 0)):
            ctx.set(pulse, 1)
            await ctx.tick()
            ctx.set(pulse, 0)
            for _ in range(behind):
                await ctx.tick()
        for _ in range(dut.latency + 2):
            _, _, valid = await ctx.tick().sample(dut.answers.valid)
            assert not valid
    bench.process("drive", drive)
    bench.run(1000)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_memory(config):
    bits = counters_bits(config) // config.banks + miss_table_bits(config) // config.banks
    bits += slot_table_bits(config) + 33 * config.bypass_stamps // config.banks
    assert memory_bits(PlannerBank(config)) == bits
