"""One bank of the planner's slots beside the golden model of all of them."""

from collections import deque
from dataclasses import replace

import numpy as np
import pytest
from hotrow_rtl.config import log2, preset
from hotrow_rtl.interfaces.lookup_payloads import DirectoryOp
from hotrow_rtl.lookup.hashing.row_location import directory_hash, key_of
from hotrow_rtl.lookup.hashing.xorshift import unhash_key
from hotrow_rtl.lookup.planner.payloads import Policy as Choice
from hotrow_rtl.lookup.planner.slot_table import SlotTable
from hotrow_sim.cost.design_memory import memory_bits
from hotrow_sim.cost.lookup import slot_table_bits
from hotrow_sim.golden.lookup.counters import unpack_key
from hotrow_sim.golden.lookup.directory import Directory
from hotrow_sim.golden.lookup.replacement_policy import POLICIES
from hotrow_sim.golden.lookup.slot_table import Slots
from hotrow_sim.testing.benches.stream_bench import StreamBench

TINY = replace(preset("tiny"), directory_sets=32, directory_partitions=2, stamp_bits=5)
CONFIGS = [
    TINY,
    replace(TINY, name="one-choice", directory_choices=1, directory_ways=4),
    replace(TINY, name="8-ways", directory_ways=8, directory_sets=16, stamp_bits=8),
    replace(TINY, name="one-way-each", directory_ways=2, directory_choices=1, stamp_bits=4),
]
BANK = 5


class Player:
    """Batches of requests to a bank, each as early as it may come, each answer checked."""

    def __init__(self, config, policy, admission=False, writes=True, seed=0):
        self.config, self.seed = config, seed
        self.model = Slots(config, policy, admission, writes)
        self.directory = Directory(config)
        self.dut = SlotTable(config)
        self.bench = StreamBench(self.dut)
        self.setting = {"policy": getattr(Choice, policy.upper()), "admission": admission,
                        "writes": writes}
        self.flying = deque([None] * (self.dut.latency - 1))
        self.counts = deque([0] * (self.dut.latency - 1))
        self.recent = deque([set()] * (self.dut.distance - 1), self.dut.distance - 1)
        self.seen = {name: 0 for name in ("hit", "placed", "evicts", "clean", "bypassed", "again")}

    def row(self, rest):
        """Key and first slots of the sets of the row of that `rest`."""
        key = int(key_of(self.config, BANK, rest))
        table, row = unpack_key(self.config, np.uint64(key))
        parts_log2 = int(table) % (log2(self.config.directory_partitions) + 1)
        part = int(table) % (1 << parts_log2)
        starts = self.directory.set_starts(*([int(each)] for each in (
            table, row, parts_log2, part)))
        return key, [start for (start,) in starts]

    def places(self, rest):
        """Set and tag of the row for each choice."""
        config, (_, starts) = self.config, self.row(rest)
        tag_at = config.bank_key_width - config.directory_tag_width
        sets = [start // config.directory_ways % config.directory_sets // config.banks
                for start in starts]
        return [{"set": set_, "tag": directory_hash(config, choice, rest) >> tag_at}
                for choice, set_ in enumerate(sets)]

    def expected(self, ask, key, starts, count, batch):
        """(hit, slot or None, first, victim or None, dirty) by the model."""
        if ask == DirectoryOp.PLAN:
            found = self.model.plan(key, starts, count)
            return found.hit, found.slot, found.first, found.victim, found.dirty
        if ask == DirectoryOp.INSTALL:
            found = self.model.install(key, starts, count)
            return found.hit, found.slot, None, None, None
        slot = (self.model.find(key) if ask == DirectoryOp.FIND else
                self.model.remove(key) if ask == DirectoryOp.REMOVE else self.model.mark(batch, key))
        return slot is not None, slot, None, None, None

    async def step(self, ctx, ask=None, rest=0, count=0, batch=0):
        """A cycle with a request or without one; check the answer that is due."""
        dut, config = self.dut, self.config
        ctx.set(dut.enter, ask is not None)
        wanted = None
        if ask is not None:
            key, starts = self.row(rest)
            ctx.set(dut.request, {"places": self.places(rest), "op": ask})
            wanted = self.expected(ask, key, starts, count, batch)
            self.recent.append(set(starts))
        else:
            self.recent.append(set())
        self.flying.append(wanted)
        self.counts.append(count)
        ctx.set(dut.count, self.counts.popleft())
        due = self.flying.popleft()
        await ctx.tick()
        if due is None:
            return
        hit, slot, first, victim, dirty = due
        answer = ctx.get(dut.answer)
        assert (bool(answer.hit), bool(answer.placed)) == (hit, slot is not None), self.seed
        if slot is not None:
            place = answer.slot
            set_ = place.choice * config.directory_sets + place.set * config.banks + BANK
            assert set_ * config.directory_ways + place.way == slot, self.seed
        if first is not None and (hit or slot is not None):
            assert answer.first == first, self.seed
            self.seen["again"] += not first
        if first is not None:
            assert answer.evicts == (victim is not None), self.seed
            self.seen["bypassed"] += slot is None
        if victim is not None:
            low = config.bank_key_width - config.directory_tag_width
            hashed = int(answer.tag) << low | int(place.set) & (1 << low) - 1
            left = unhash_key(hashed, 1, config.bank_key_width) if place.choice else hashed
            assert directory_hash(config, int(place.choice), left) == hashed
            assert (int(key_of(config, BANK, left)), bool(answer.dirty)) == (victim, dirty)
        self.seen["hit"] += hit
        self.seen["placed"] += slot is not None and not hit
        self.seen["evicts"] += victim is not None
        self.seen["clean"] += victim is not None and not dirty

    async def ask(self, ctx, ask, rest, count, batch):
        """A request, once no other one of its sets is inside; return the cycles that it waited."""
        waited, starts = 0, set(self.row(rest)[1])
        while any(starts & each for each in self.recent):
            await self.step(ctx)
            waited += 1
        await self.step(ctx, ask, rest, count, batch)
        return waited

    async def drain(self, ctx):
        for _ in range(self.dut.latency):
            await self.step(ctx)

    async def begin(self, ctx, batch, retired, plans=True):
        """Settings of the next requests, and the sweep when it is due."""
        await self.drain(ctx)
        most = 1 << self.config.stamp_bits
        self.model.retired = retired
        ctx.set(self.dut.setting, {**self.setting, "batch": batch % most,
                                   "retired": retired % most})
        if not plans:
            return
        self.model.begin_batch(batch)
        if batch % self.config.sweep_batches == 0:
            ctx.set(self.dut.sweep, 1)
            await self.step(ctx)
            ctx.set(self.dut.sweep, 0)
            sets = self.config.directory_sets // self.config.banks
            for _ in range(sets + 2):
                assert not ctx.get(self.dut.ready)
                await self.step(ctx)
            assert ctx.get(self.dut.ready)


def play(config, policy, batches=60, **options):
    """Random batches: mark, plan, find, install, remove; rows come again, some far more often."""
    player, seed = Player(config, policy, **options), options.get("seed", 0)
    rng = np.random.default_rng(seed)
    slots = config.slots // config.banks
    rests = [int(rest) for rest in rng.integers(0, 1 << config.bank_key_width, 3 * slots)]
    window = min(4, config.sweep_batches - 2)

    def some(count):
        return [rests[int(len(rests) * each ** 2)] for each in rng.random(count)]

    async def drive(ctx):
        await ctx.tick().until(player.dut.ready)
        coming = deque(some(slots // 2) for _ in range(2))
        for batch in range(batches):
            retired = max(-1, batch - 1 - int(rng.integers(window)), player.model.retired)
            coming.append(some(int(rng.integers(1, slots // 2 + 1))))
            await player.begin(ctx, batch + 2, retired, plans=False)
            for rest in coming[-1]:
                await player.ask(ctx, DirectoryOp.MARK, rest, 0, batch + 2)
            await player.begin(ctx, batch, retired)
            for rest in coming.popleft():
                await player.ask(ctx, DirectoryOp.PLAN, rest, int(rng.integers(256)), batch)
                if rng.random() < 0.1:
                    other = rng.choice([DirectoryOp.FIND, DirectoryOp.INSTALL, DirectoryOp.REMOVE], p=(0.6, 0.2, 0.2))
                    await player.ask(ctx, other, some(1)[0], 7, batch)
        await player.drain(ctx)
    player.bench.process("play", drive)
    player.bench.run(200_000)
    return player.seen


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_answers_are_those_of_the_model(config, policy):
    seen = play(config, policy, seed=len(config.name))
    assert min(seen[name] for name in ("hit", "placed", "evicts", "bypassed", "again")) > 5, seen


def test_admission():
    seen = play(TINY, "freq", admission=True, seed=3)
    assert seen["bypassed"] > 20, seen


def test_batches_that_do_not_train_leave_rows_clean():
    seen = play(TINY, "lru", writes=False, seed=4)
    assert seen["clean"] == seen["evicts"] > 20, seen


def test_rows_of_long_ago_are_told_apart_as_far_as_sweeps_do():
    """Rows used 1 to 40 batches before the last, more than stamps tell apart; then all leave."""
    config = replace(TINY, name="set", directory_choices=1, directory_ways=8, stamp_bits=4)
    player = Player(config, "lru")
    same_set = [rest for rest in range(100_000) if player.row(rest)[1] == player.row(0)[1]][:16]

    async def drive(ctx):
        await ctx.tick().until(player.dut.ready)
        for batch in range(48):
            await player.begin(ctx, batch, batch - 1)
            if batch % 5 == 0 and batch < 40:
                await player.ask(ctx, DirectoryOp.PLAN, same_set[(3 * batch // 5) % 8], 0, batch)
            elif batch >= 40:
                await player.ask(ctx, DirectoryOp.PLAN, same_set[batch - 32], 0, batch)
        await player.drain(ctx)
    player.bench.process("play", drive)
    player.bench.run(10_000)
    assert player.seen["evicts"] == 8


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_one_a_cycle_while_sets_differ(config):
    """No cycle is lost but for sets that follow one another too closely."""
    player = Player(config, "lru")
    by_set = {}
    for rest in range(4000):
        by_set.setdefault(tuple(player.row(rest)[1]), rest)
    chosen, used = [], set()
    for starts, rest in by_set.items():
        if not used & set(starts):
            chosen.append(rest)
            used |= set(starts)

    async def drive(ctx):
        await ctx.tick().until(player.dut.ready)
        await player.begin(ctx, 1, -1)
        for rest in chosen:
            assert await player.ask(ctx, DirectoryOp.PLAN, rest, 0, 1) == 0
        for rest in chosen[:2]:
            await player.drain(ctx)
            await player.ask(ctx, DirectoryOp.PLAN, rest, 0, 1)
            assert await player.ask(ctx, DirectoryOp.PLAN, rest, 0, 1) == player.dut.distance - 1
        await player.drain(ctx)
    player.bench.process("play", drive)
    player.bench.run(5000)
    assert player.seen["placed"] == len(chosen)


def test_restart_drops_what_is_inside():
    player = Player(TINY, "lru")
    rest = 12345

    async def drive(ctx):
        dut = player.dut
        await ctx.tick().until(dut.ready)
        for age in range(dut.latency):
            ctx.set(dut.request, {"places": player.places(rest), "op": DirectoryOp.PLAN})
            ctx.set(dut.enter, 1)
            await ctx.tick()
            ctx.set(dut.enter, 0)
            for _ in range(age):
                await ctx.tick()
            ctx.set(dut.restart, 1)
            await ctx.tick()
            ctx.set(dut.restart, 0)
            for _ in range(dut.latency):
                await ctx.tick()
            ctx.set(dut.request.op, DirectoryOp.FIND)
            ctx.set(dut.enter, 1)
            await ctx.tick()
            ctx.set(dut.enter, 0)
            for _ in range(dut.latency - 1):
                await ctx.tick()
            assert not ctx.get(dut.answer.hit), age
    player.bench.process("play", drive)
    player.bench.run(5000)


@pytest.mark.parametrize("config", [*CONFIGS, preset("ecp5-85f")], ids=lambda config: config.name)
def test_memory(config):
    assert memory_bits(SlotTable(config)) == slot_table_bits(config)
