"""The slot table of one bank against the golden model of all banks."""

from collections import deque
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hotrow_rtl.config import log2, preset
from hotrow_rtl.contract.encoding import NO_SLOT
from hotrow_rtl.interfaces.lookup_payloads import DirectoryOp
from hotrow_rtl.lookup.directory.payloads import Policy
from hotrow_rtl.lookup.directory.slot_table import SlotTable
from hotrow_rtl.lookup.hashing.row_location import directory_hash, join_key
from hotrow_rtl.lookup.hashing.xorshift import unhash_key
from hotrow_sim.golden.lookup.counters import unpack_key
from hotrow_sim.golden.lookup.directory import Directory
from hotrow_sim.golden.lookup.slot_table import POLICIES, Slots

from tests.formal.prover import opened
from tests.support.benches.stream_bench import StreamBench
from tests.support.simulation import built

FIND, INSTALL, REMOVE, PLAN, MARK = DirectoryOp
TINY = replace(preset("tiny"), directory_sets=32, directory_partitions=2, stamp_bits=5)
PLANNERS = [
    TINY,
    replace(TINY, name="one-choice", directory_choices=1, directory_ways=4),
    replace(TINY, name="8-ways", directory_ways=8, directory_sets=16, stamp_bits=8),
    replace(TINY, name="one-way-each", directory_ways=2, directory_choices=1, stamp_bits=4),
]
PLAIN = replace(TINY, name="no-planner", planner=False)
NO_PLANNERS = [
    PLAIN,
    replace(PLAIN, name="no-planner-one-choice", directory_choices=1, directory_partitions=1),
    replace(PLAIN, name="no-planner-8-ways", directory_ways=8),
]
BANK = 5


class Player:
    """Requests to one bank, each as early as it is allowed; checks each answer."""

    def __init__(self, config, policy="lru", admission=False, writes=True, seed=0):
        self.config, self.seed = config, seed
        self.directory = Directory(config)
        self.model = Slots(config, policy, admission, writes)
        self.dut = built(SlotTable, config)
        self.bench = StreamBench(self.dut)
        self.setting = {"policy": Policy[policy.upper()], "admission": admission, "writes": writes}
        self.restart()
        self.seen = dict.fromkeys(("hit", "placed", "evicts", "clean", "bypassed", "again"), 0)
        self.row = cache(self.row)

    def restart(self):
        """Forget the requests in the pipeline."""
        self.pipeline = deque([None] * (self.dut.latency - 1))
        self.counts = deque([0] * (self.dut.latency - 1))
        self.recent = deque([set()] * (self.dut.distance - 1), self.dut.distance - 1)

    def row(self, bank_key):
        """(key, partition, first slot of the set in each choice) of a row."""
        key = int(join_key(self.config, BANK, bank_key))
        table, row = unpack_key(self.config, np.uint64(key))
        parts_log2 = int(table) % (log2(self.config.directory_partitions) + 1)
        partition = parts_log2, int(table) % (1 << parts_log2)
        starts = self.directory.set_starts(*([int(each)] for each in (table, row, *partition)))
        return key, partition, [start for (start,) in starts]

    def request(self, op, bank_key):
        config, (_, _, starts) = self.config, self.row(bank_key)
        tag_offset = config.bank_key_width - config.directory_tag_width
        sets = [start // config.directory_ways % config.directory_sets // config.banks
                for start in starts]
        return {"op": op, "choices": [
            {"set": set_, "tag": directory_hash(config, choice, bank_key) >> tag_offset}
            for choice, set_ in enumerate(sets)]}

    def expected(self, op, bank_key, count, batch):
        """(hit, slot or None, first, victim or None, dirty) by the golden model."""
        key, partition, starts = self.row(bank_key)
        if not self.config.planner:
            return self.expected_without_planner(op, key, partition)
        if op == PLAN:
            found = self.model.plan(key, starts, count)
            return found.hit, found.slot, found.first, found.victim, found.dirty
        if op == INSTALL:
            found = self.model.install(key, starts, count)
            return found.hit, found.slot, None, None, None
        slot = (self.model.find(key) if op == FIND else
                self.model.remove(key) if op == REMOVE else self.model.mark(batch, key))
        return slot is not None, slot, None, None, None

    def expected_without_planner(self, op, key, partition):
        table, row = (int(each) for each in unpack_key(self.config, np.uint64(key)))
        if op == INSTALL:
            slot, hit = self.directory.install(table, row, partition)
        else:
            slot = int(self.directory.remove(table, row, partition) if op == REMOVE else
                       self.directory.lookup(*([each] for each in (table, row, *partition)))[0])
            hit = slot != NO_SLOT
        return hit, None if slot == NO_SLOT else slot, None, None, None

    async def step(self, ctx, op=None, bank_key=0, count=0, batch=0):
        """A cycle with a request or without one; check the answer that is due."""
        dut = self.dut
        ctx.set(dut.valid, op is not None)
        wanted = None
        if op is not None:
            ctx.set(dut.request, self.request(op, bank_key))
            wanted = self.expected(op, bank_key, count, batch)
        self.recent.append(set(self.row(bank_key)[-1]) if op is not None else set())
        self.pipeline.append(wanted)
        if self.config.planner:
            self.counts.append(count)
            ctx.set(dut.count, self.counts.popleft())
        due = self.pipeline.popleft()
        await ctx.tick()
        assert not ctx.get(dut.corrupt), self.seed
        if due is not None:
            self.check(ctx.get(dut.answer), *due)

    def check(self, answer, hit, slot, first, victim, dirty):
        config = self.config
        assert (bool(answer.hit), bool(answer.placed)) == (hit, slot is not None), self.seed
        if slot is not None:
            place = answer.slot
            set_ = place.choice * config.directory_sets + place.set * config.banks + BANK
            assert set_ * config.directory_ways + place.way == slot, self.seed
        if first is not None:
            assert slot is None or answer.first == first, self.seed
            assert answer.evicts == (victim is not None), self.seed
            self.seen["again"] += slot is not None and not first
            self.seen["bypassed"] += slot is None
        if victim is not None:
            low = config.bank_key_width - config.directory_tag_width
            hashed = int(answer.tag) << low | int(place.set) & (1 << low) - 1
            evicted = unhash_key(hashed, 1, config.bank_key_width) if place.choice else hashed
            assert directory_hash(config, int(place.choice), evicted) == hashed
            assert (int(join_key(config, BANK, evicted)), bool(answer.dirty)) == (victim, dirty)
        self.seen["hit"] += hit
        self.seen["placed"] += slot is not None and not hit
        self.seen["evicts"] += victim is not None
        self.seen["clean"] += victim is not None and not dirty

    async def ask(self, ctx, op, bank_key, count=0, batch=0):
        """A request, once no other one of its sets is in the pipeline; return the cycles waited."""
        waited, starts = 0, set(self.row(bank_key)[-1])
        while any(starts & each for each in self.recent):
            await self.step(ctx)
            waited += 1
        await self.step(ctx, op, bank_key, count, batch)
        return waited

    async def drain(self, ctx):
        for _ in range(self.dut.latency):
            await self.step(ctx)

    async def pulse(self, ctx, signal):
        ctx.set(signal, 1)
        await self.step(ctx)
        ctx.set(signal, 0)

    async def begin(self, ctx, batch, retired, plans=True):
        """Set the parameters of the next requests, and sweep when it is due."""
        await self.drain(ctx)
        most = 1 << self.config.stamp_bits
        self.model.retired = retired
        ctx.set(self.dut.setting, {**self.setting, "batch": batch % most,
                                   "retired": retired % most})
        if not plans:
            return
        self.model.begin_batch(batch)
        if batch % self.config.sweep_batches == 0:
            await self.pulse(ctx, self.dut.sweep)
            await self.busy(ctx, 2)

    async def busy(self, ctx, more=0):
        """Not ready for a cycle per set and some more."""
        for _ in range(self.config.directory_sets // self.config.banks + more):
            assert not ctx.get(self.dut.ready)
            await self.step(ctx)
        assert ctx.get(self.dut.ready)

    def run(self, drive, limit=100_000):
        async def driven(ctx):
            await ctx.tick().until(self.dut.ready)
            await drive(ctx)
            await self.drain(ctx)
        self.bench.process("requests", driven)
        self.bench.run(limit)
        return self.seen


def bank_keys(config, count, seed):
    rng = np.random.default_rng(seed)
    return [int(each) for each in rng.integers(0, 1 << config.bank_key_width, count)]


def play(config, policy, batches=30, **options):
    """Random batches: mark, plan, find, install, remove; some rows come far more often."""
    player, seed = Player(config, policy, **options), options.get("seed", 0)
    rng = np.random.default_rng(seed)
    slots = config.slots // config.banks
    keys = bank_keys(config, 3 * slots, seed)
    window = min(4, config.sweep_batches - 2)

    def some(count):
        return [keys[int(len(keys) * each ** 2)] for each in rng.random(count)]

    async def drive(ctx):
        coming = deque(some(slots // 2) for _ in range(2))
        for batch in range(batches):
            retired = max(-1, batch - 1 - int(rng.integers(window)), player.model.retired)
            coming.append(some(int(rng.integers(1, slots // 2 + 1))))
            await player.begin(ctx, batch + 2, retired, plans=False)
            for key in coming[-1]:
                await player.ask(ctx, MARK, key, 0, batch + 2)
            await player.begin(ctx, batch, retired)
            for key in coming.popleft():
                await player.ask(ctx, PLAN, key, int(rng.integers(256)), batch)
                if rng.random() < 0.1:
                    other = rng.choice([FIND, INSTALL, REMOVE], p=(0.6, 0.2, 0.2))
                    await player.ask(ctx, other, some(1)[0], 7, batch)
    return player.run(drive)


@pytest.mark.parametrize("config, policy", [
    pytest.param(config, policy, id=f"{config.name}-{policy}",
                 marks=[pytest.mark.long] * (PLANNERS.index(config) != number))
    for config in PLANNERS for number, policy in enumerate(POLICIES)])
def test_planned_rows(config, policy):
    batches = 22 if config.directory_ways == 8 else 30
    seen = play(config, policy, batches, seed=len(config.name))
    assert min(seen[name] for name in ("hit", "placed", "evicts", "bypassed", "again")) > 5, seen


@pytest.mark.slow
def test_admission():
    seen = play(TINY, "freq", admission=True, seed=3)
    assert seen["bypassed"] > 20, seen


@pytest.mark.slow
def test_batches_that_do_not_train_leave_rows_clean():
    seen = play(TINY, "lru", writes=False, seed=4)
    assert seen["clean"] == seen["evicts"] > 20, seen


@pytest.mark.slow
@pytest.mark.parametrize("marks", [(5, 3), (3, 5)], ids=["out of order", "in order"])
def test_a_slot_is_held_for_the_last_batch_that_is_marked(marks):
    """Whatever the order of the marks: the row that was used first would be the victim."""
    player = Player(TINY)
    same = [key for key in bank_keys(TINY, 4000, 1)
            if player.row(key)[-1] == player.row(bank_keys(TINY, 1, 1)[0])[-1]]
    keys = same[:TINY.directory_choices * TINY.directory_ways + 2]

    async def drive(ctx):
        await player.begin(ctx, 0, -1)
        for key in keys[:-2]:  # both sets are full
            await player.ask(ctx, PLAN, key)
        for batch in marks:
            await player.begin(ctx, batch, -1, plans=False)
            await player.ask(ctx, MARK, keys[0], 0, batch)
        for batch, key in ((4, keys[-2]), (6, keys[-1])):
            await player.begin(ctx, batch, batch - 1)
            await player.ask(ctx, PLAN, key)
        assert player.model.find(player.row(keys[0])[0]) is None, "held no longer"
    assert player.run(drive)["evicts"] == 2


@pytest.mark.parametrize("config", NO_PLANNERS, ids=lambda config: config.name)
def test_rows_without_a_planner(config):
    """Sets fill beyond their ways; most rows are found again, often just after a write."""
    player, outcomes = Player(config), set()
    rng, keys = np.random.default_rng(1), bank_keys(config, 2 * config.slots // config.banks, 1)
    recent = deque(keys[:1], maxlen=3)

    async def drive(ctx):
        for number in range(200 + 4 * config.slots // config.banks):
            op = rng.choice([FIND, INSTALL, REMOVE], p=(0.6, 0.25, 0.15))
            at = number % len(keys) if op == INSTALL else rng.integers(len(keys))
            key = recent[rng.integers(len(recent))] if rng.random() < 0.3 else keys[at]
            if op != FIND:
                recent.append(key)
            await player.ask(ctx, op, key)
            hit, slot, *_ = player.pipeline[-1]
            outcomes.add((op, hit, slot is not None))
    player.run(drive)
    assert len(outcomes) == 7, f"the traffic must reach every outcome of every op: {outcomes}"


@pytest.mark.slow
def test_rows_of_long_ago_are_told_apart_as_far_as_sweeps_do():
    """Rows used 1 to 40 batches before the last, more than stamps tell apart; then all leave."""
    config = replace(TINY, name="set", directory_choices=1, directory_ways=8, stamp_bits=4)
    player = Player(config, "lru")
    starts = player.row(0)[-1]
    same_set = [key for key in range(2000) if player.row(key)[-1] == starts][:16]

    async def drive(ctx):
        for batch in range(48):
            await player.begin(ctx, batch, batch - 1)
            if batch % 5 == 0 and batch < 40:
                await player.ask(ctx, PLAN, same_set[(3 * batch // 5) % 8], 0, batch)
            elif batch >= 40:
                await player.ask(ctx, PLAN, same_set[batch - 32], 0, batch)
    assert player.run(drive)["evicts"] == 8


@pytest.mark.slow
@pytest.mark.parametrize("config", [
    pytest.param(config, marks=() if config in (PLANNERS[-1], PLAIN) else pytest.mark.long)
    for config in (*PLANNERS, *NO_PLANNERS)], ids=lambda config: config.name)
def test_a_flip_of_any_bit_is_seen_by_the_request_or_sweep_that_reads_it(config):
    """In each way of the set of a row, free or not; requests of other sets do not see it."""
    config = replace(config, name=f"{config.name}-flips")
    dut = built(SlotTable, config)
    rams = opened(dut).rams  # before its simulator is made
    memories = [opened(opened(ram).ram).rows.data for ram in rams]
    player = Player(config)
    keys = bank_keys(config, 40, 2)
    request = player.request(FIND, keys[0])
    other = next(each for each in (player.request(FIND, key) for key in range(1000)) if all(
        one["set"] != two["set"] for one, two in zip(each["choices"], request["choices"],
                                                     strict=True)))

    async def seen(ctx, signal):
        """Whether `corrupt` rises; with a request, in the fourth cycle. A clear resets it."""
        ctx.set(signal, 1)
        await ctx.tick()
        ctx.set(signal, 0)
        levels = []
        for _ in range(dut.latency if signal is dut.valid
                       else config.directory_sets // config.banks + 5):
            await ctx.tick()
            levels.append(ctx.get(dut.corrupt))
        assert levels == sorted(levels)
        assert signal is not dut.valid or not any(levels) or levels.index(1) == 2
        kept = [ctx.get(row) for memory in memories for row in memory]
        ctx.set(dut.clear, 1)
        await ctx.tick()
        ctx.set(dut.clear, 0)
        await ctx.tick().until(dut.ready)
        assert not ctx.get(dut.corrupt)
        for row, value in zip((row for memory in memories for row in memory), kept, strict=True):
            ctx.set(row, value)
        return any(levels)

    async def drive(ctx):
        if config.planner:
            await player.begin(ctx, 1, -1)
        for key in keys:
            await player.ask(ctx, PLAN if config.planner else INSTALL, key, 0, 1)
        await player.drain(ctx)
        for memory, place in zip(memories, request["choices"], strict=True):
            row = memory[place["set"]]
            for bit in range(memory.shape):
                right = ctx.get(row)
                ctx.set(row, right ^ 1 << bit)
                ctx.set(dut.request, other)
                assert not await seen(ctx, dut.valid), bit
                ctx.set(dut.request, {**request, "op": [FIND, REMOVE][bit % 2]})
                assert await seen(ctx, dut.valid), bit
                if config.planner:
                    ctx.set(row, right ^ 1 << bit)
                    assert await seen(ctx, dut.sweep), bit
                    assert not await seen(ctx, dut.sweep), "written again"
                ctx.set(row, right)
                assert not await seen(ctx, dut.valid), bit
    player.run(drive)


@pytest.mark.parametrize("config", [*PLANNERS, *NO_PLANNERS], ids=lambda config: config.name)
def test_one_request_a_cycle_while_sets_differ(config):
    """No cycle is lost except for sets that follow one another too closely."""
    player, op = Player(config), PLAN if config.planner else INSTALL
    chosen, used = [], set()
    for key in range(500):
        starts = set(player.row(key)[-1])
        if not used & starts:
            chosen.append(key)
            used |= starts

    async def drive(ctx):
        if config.planner:
            await player.begin(ctx, 1, -1)
        for key in chosen:
            assert await player.ask(ctx, op, key, 0, 1) == 0
        for key in chosen[:2]:
            await player.drain(ctx)
            await player.ask(ctx, op, key, 0, 1)
            assert await player.ask(ctx, op, key, 0, 1) == player.dut.distance - 1
    assert player.run(drive)["placed"] == len(chosen)


@pytest.mark.parametrize("op", [INSTALL, REMOVE, PLAN, MARK])
@pytest.mark.parametrize("config", [TINY, PLAIN], ids=lambda config: config.name)
def test_restart_drops_requests_without_a_response(config, op):
    """At every age of a request; later requests see what earlier ones wrote, and nothing else."""
    if op in (PLAN, MARK) and not config.planner:
        pytest.skip("needs a planner")
    player = Player(config)
    installed, free, *others = bank_keys(config, 6, seed=5)

    async def drive(ctx):
        if config.planner:
            await player.begin(ctx, 1, -1)
        await player.ask(ctx, INSTALL, installed)
        await player.drain(ctx)
        key = installed if op in (REMOVE, MARK) else free
        for age in range(player.dut.latency):
            ctx.set(player.dut.request, player.request(op, key))
            await player.pulse(ctx, player.dut.valid)
            for _ in range(age):
                await player.step(ctx)
            player.restart()
            await player.pulse(ctx, player.dut.restart)
            for each in (installed, free):
                await player.ask(ctx, FIND, each)
            await player.drain(ctx)
        # A answer was given: the operation is done.
        await player.ask(ctx, op, key, 0, 1)
        await player.drain(ctx)
        await player.pulse(ctx, player.dut.restart)
        for each in (installed, free, *others):
            await player.ask(ctx, FIND, each)
    player.run(drive)


@pytest.mark.parametrize("config", [TINY, *NO_PLANNERS], ids=lambda config: config.name)
def test_clear_frees_every_slot(config):
    player = Player(config)
    keys = bank_keys(config, 2 * config.slots // config.banks, seed=7)

    async def drive(ctx):
        if config.planner:
            await player.begin(ctx, 1, -1)
        for _ in range(2):
            for key in keys:
                await player.ask(ctx, INSTALL, key)
            await player.drain(ctx)
            player.directory.clear()
            retired = player.model.retired
            player.model.clear()
            player.model.retired, player.model.planned = retired, 1
            await player.pulse(ctx, player.dut.clear)
            await player.busy(ctx)
            hits = player.seen["hit"]
            for key in keys:
                await player.ask(ctx, FIND, key)
            await player.drain(ctx)
            assert player.seen["hit"] == hits
    player.run(drive)
