"""One bank of the directory beside the golden model of all of them."""

import dataclasses
from collections import deque
from itertools import cycle

import numpy as np
import pytest
from hotrow_rtl.config import ROW_NUMBER_WIDTH, log2, preset
from hotrow_rtl.contract.encoding import NO_SLOT
from hotrow_rtl.interfaces.lookup_payloads import DirectoryOp
from hotrow_rtl.lookup.directory.bank import DirectoryBank
from hotrow_rtl.lookup.hashing.row_location import directory_hash, key_of
from hotrow_sim.cost.design_memory import memory_bits
from hotrow_sim.cost.lookup import directory_bits
from hotrow_sim.golden.lookup.directory import Directory
from hotrow_sim.testing.benches.stream_bench import RAGGED, STEADY, StreamBench

TINY = dataclasses.replace(preset("tiny"), planner=False)
WIDE = dataclasses.replace(TINY, name="bus-64", bus_bytes=64, counter_sets=256,
                           directory_sets=256, miss_entries=1024)
ONE_CHOICE = dataclasses.replace(TINY, name="one-choice", directory_choices=1, directory_sets=16,
                                 directory_partitions=1)
CONFIGS = [
    TINY, WIDE, ONE_CHOICE,
    dataclasses.replace(TINY, name="8-ways", directory_ways=8, directory_sets=32,
                        directory_partitions=2),
    dataclasses.replace(TINY, name="64-partitions", directory_ways=2, directory_sets=512,
                        directory_partitions=64, tables=2),
    dataclasses.replace(TINY, name="one-choice-parts", directory_choices=1, directory_ways=4,
                        directory_partitions=4),
]
BANK = 5
GAPS = (0, 0, 0, 1, 0, 2, 7, 0, 0, 0, 0, 5)


def partition(config, table):
    """A partition that differs from table to table and always exists."""
    parts_log2 = log2(config.directory_partitions)
    parts_log2 -= table % (parts_log2 + 1)
    return parts_log2, table * 5 % (1 << parts_log2)


def request(config, rest, edit=DirectoryOp.FIND, ask=1, **fields):
    table = key_of(config, BANK, rest) >> ROW_NUMBER_WIDTH
    parts_log2, part = partition(config, table)
    return {"bank_key": rest, "search": ask, "op": edit, "parts_log2": parts_log2, "part": part,
            **fields}


def rests_of(config, count, seed):
    rng = np.random.default_rng(seed)
    return [int(rest) for rest in rng.integers(0, 1 << config.bank_key_width, count)]


def traffic(config, count, seed, edits=True):
    """Requests that fill sets beyond their ways, find most rows again, often a row just edited."""
    rng = np.random.default_rng(seed)
    rests = rests_of(config, 2 * config.slots // config.banks, seed)
    recent = deque(rests[:1], maxlen=3)
    for number in range(count):
        kind = rng.choice([DirectoryOp.FIND, DirectoryOp.INSTALL, DirectoryOp.REMOVE], p=(0.6, 0.25, 0.15))
        kind = kind if edits else DirectoryOp.FIND
        at = number % len(rests) if kind == DirectoryOp.INSTALL else rng.integers(len(rests))
        rest = recent[rng.integers(len(recent))] if rng.random() < 0.3 else rests[at]
        if kind != DirectoryOp.FIND:
            recent.append(rest)
        yield request(config, rest, kind, ask=int(rng.random() < 0.9), miss=int(rng.integers(2)),
                      amount=int(rng.integers(4)), epoch=int(rng.integers(64)))


def expected(config, model, one):
    """(hit, slot or NO_SLOT) as the golden model has it; None if nothing is asked."""
    key = key_of(config, BANK, one["bank_key"])
    table, row = key >> ROW_NUMBER_WIDTH, key & 0xFFFFFFFF
    where = one["parts_log2"], one["part"]
    if one["op"] == DirectoryOp.INSTALL:
        slot, hit = model.install(table, row, where)
        return hit, slot
    if one["op"] == DirectoryOp.REMOVE:
        slot = model.remove(table, row, where)
    elif one["search"]:
        slot = int(model.lookup(*(np.array([value]) for value in (table, row, *where)))[0])
    else:
        return None
    return slot != NO_SLOT, slot


def verdict(config, answer):
    place = answer.slot
    assert not place.choice or config.directory_choices == 2
    set_ = place.choice * config.directory_sets + place.set * config.banks + BANK
    slot = set_ * config.directory_ways + place.way
    return bool(answer.hit), slot if answer.placed else NO_SLOT


class Player:
    """Requests to a bank, cycle by cycle, each answer checked in the cycle that it must come in."""

    def __init__(self, config):
        self.config, self.model = config, Directory(config)
        self.dut = DirectoryBank(config)
        self.bench = StreamBench(self.dut)
        self.flying = deque([None] * DirectoryBank.latency)  # by age, the oldest first
        self.seen = []  # (what it did, hit, whether it has a slot)
        self.noise = cycle(list(traffic(config, 50, seed=99)))  # shown to the bank, never entered

    async def step(self, ctx, one=None, dropped=False):
        """A cycle in which `one` enters; nothing of it will happen if `dropped`."""
        dut = self.dut
        ctx.set(dut.enter, one is not None)
        ctx.set(dut.request, one if one is not None else next(self.noise))
        if one is not None:
            assert ctx.get(dut.ready) and not ctx.get(dut.busy)
        self.flying.append(
            None if one is None or dropped else expected(self.config, self.model, one))
        due = self.flying.popleft()
        _, _, answer = await ctx.tick().sample(dut.answer)
        ctx.set(dut.enter, 0)
        if self.flying[-1] is not None:
            hit, slot = self.flying[-1]
            self.seen.append((one["op"], hit, slot != NO_SLOT))
        if due is not None:
            got = verdict(self.config, answer)
            assert got == due, f"request of cycle {self.bench.cycles - DirectoryBank.latency}"

    async def play(self, ctx, requests, gaps=STEADY):
        """All of them, each as soon as the bank lets it in; then wait for the last answer."""
        requests = list(requests)
        for number, one in enumerate(requests):
            for _ in range(gaps[number % len(gaps)]):
                await self.step(ctx)
            while ctx.get(self.dut.busy):
                await self.step(ctx)
            await self.step(ctx, one)
        for _ in range(DirectoryBank.latency):
            await self.step(ctx)

    def run(self, steps, limit=20000):
        async def drive(ctx):
            await self.swept(ctx)
            await steps(ctx)
        self.bench.process("steps", drive)
        self.bench.run(limit)

    async def swept(self, ctx):
        """The sweep takes a cycle per set of the bank."""
        for _ in range(self.config.directory_sets // self.config.banks):
            assert not ctx.get(self.dut.ready)
            await self.step(ctx)
        assert ctx.get(self.dut.ready)

    async def pulse(self, ctx, signal):
        ctx.set(signal, 1)
        await self.step(ctx)
        ctx.set(signal, 0)


def play(config, requests, gaps=STEADY):
    """The player afterwards, and the cycles besides the first sweep."""
    player, begun = Player(config), config.directory_sets // config.banks

    async def steps(ctx):
        await player.play(ctx, requests, gaps)
    player.run(steps)
    return player, player.bench.cycles - begun


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
@pytest.mark.parametrize("gaps", [STEADY, RAGGED, GAPS], ids=["steady", "ragged", "bursts"])
def test_answers_equal_golden(config, gaps):
    count = 300 + 4 * config.slots // config.banks
    player, _ = play(config, traffic(config, count, seed=len(gaps)), gaps)
    reached = set(player.seen)
    assert len(reached) == 7, f"the traffic must reach every outcome of every edit: {reached}"


@pytest.mark.slow
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
@pytest.mark.parametrize("seed", range(10, 14))
def test_answers_equal_golden_at_length(config, seed):
    gaps = np.random.default_rng(seed).choice([0, 0, 0, 0, 1, 5], 97).tolist()
    play(config, traffic(config, 4000, seed), gaps)


def rests_of_one_set(config, count):
    """Rows of one set of the first hash choice, whatever their partition."""
    sets = config.directory_sets // config.banks
    return [number * 977 * sets + sets - 1 for number in range(1, count + 1)]


@pytest.mark.parametrize("config", [TINY, ONE_CHOICE], ids=lambda config: config.name)
def test_same_set_fills_frees_and_fills_again(config):
    rests = rests_of_one_set(config, 6 * config.directory_ways)
    whole = {"parts_log2": 0, "part": 0}
    edits = [(rest, DirectoryOp.INSTALL) for rest in [*rests, *rests[:3]]]
    edits += [(rest, DirectoryOp.REMOVE) for rest in [*rests[1::2], rests[1]]]
    edits += [(rest, DirectoryOp.FIND) for rest in rests]
    edits += [(rest, DirectoryOp.INSTALL) for rest in reversed(rests)]
    player, _ = play(config, [request(config, *edit) | whole for edit in edits])
    refused = (DirectoryOp.INSTALL, False, False) in player.seen[:len(rests)]
    assert refused == (config.directory_choices == 1), "the second choice takes the first's excess"


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_rows_that_differ_in_one_bit_are_told_apart(config):
    """Every bit of a row is in its bank, its set or its tag, whatever the partition."""
    base = rests_of(config, 1, seed=3)[0]
    rests = [base, *(base ^ 1 << bit for bit in range(config.bank_key_width))]
    ways = {"parts_log2": log2(config.directory_partitions), "part": 0}
    requests = [request(config, base, DirectoryOp.INSTALL) | ways]
    requests += [request(config, rest) | ways for rest in rests]
    player, _ = play(config, requests)
    assert player.seen[1:] == [(DirectoryOp.FIND, number == 0, number == 0)
                               for number in range(len(rests))]


def test_partition_and_hash_make_the_set():
    """Straight from the definition: the part above, the hash below."""
    config = TINY
    dut = DirectoryBank(config)
    bench = StreamBench(dut)
    width = log2(config.directory_sets // config.banks)

    async def drive(ctx):
        await ctx.tick().until(dut.ready)
        for number, rest in enumerate(rests_of(config, 60, seed=6)):
            parts_log2 = number % (log2(config.directory_partitions) + 1)
            part = number * 3 % (1 << parts_log2)
            ctx.set(dut.request, {"bank_key": rest, "op": DirectoryOp.INSTALL, "parts_log2": parts_log2,
                                  "part": part | 0x3F << parts_log2 & 0x3F})
            ctx.set(dut.enter, 1)
            await ctx.tick()
            ctx.set(dut.enter, 0)
            for _ in range(DirectoryBank.latency - 1):
                await ctx.tick()
            answer = ctx.get(dut.answer)
            if answer.placed:
                low = width - parts_log2
                hashed = directory_hash(config, answer.slot.choice, rest)
                assert answer.slot.set == part << low | hashed & ((1 << low) - 1)
    bench.process("drive", drive)
    bench.run(1000)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_one_ask_a_cycle(config):
    _, cycles = play(config, traffic(config, 200, seed=3, edits=False))
    assert cycles == 200 + DirectoryBank.latency


def test_edits_follow_at_their_stated_distance():
    edits = [request(TINY, rest, DirectoryOp.INSTALL) for rest in rests_of(TINY, 40, seed=4)]
    _, cycles = play(TINY, edits)
    assert cycles == 39 * DirectoryBank.edit_cycles + 1 + DirectoryBank.latency


@pytest.mark.parametrize("edit", [DirectoryOp.INSTALL, DirectoryOp.REMOVE])
@pytest.mark.parametrize("after", range(DirectoryBank.latency + 3))
def test_restart_drops_what_is_not_answered(edit, after):
    """The edit enters `after` cycles before the restart, two asks right before it."""
    config, player = TINY, Player(TINY)
    rests = rests_of(config, 8, seed=5)
    dut, done = player.dut, after >= DirectoryBank.latency

    async def steps(ctx):
        await player.play(ctx, [request(config, rest, DirectoryOp.INSTALL) for rest in rests[:4]])
        victim = rests[1] if edit == DirectoryOp.REMOVE else rests[6]
        for rest in rests[2:4]:
            await player.step(ctx, request(config, rest))
        edits = request(config, victim, edit)
        if after:
            await player.step(ctx, edits, dropped=not done)
            for _ in range(after - 1):
                await player.step(ctx)
            await player.pulse(ctx, dut.restart)
        else:
            ctx.set(dut.restart, 1)
            await player.step(ctx, edits, dropped=True)
            ctx.set(dut.restart, 0)
        player.flying = deque([None] * DirectoryBank.latency)
        assert not ctx.get(dut.busy) and ctx.get(dut.ready)
        assert player.model.valid.sum() == 4 + (done and (1 if edit == DirectoryOp.INSTALL else -1))
        again = [request(config, rest) for rest in (victim, *rests)]
        await player.play(ctx, [*again, request(config, rests[7], DirectoryOp.INSTALL), *again])
    player.run(steps)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_clear_frees_every_slot(config):
    player = Player(config)

    async def steps(ctx):
        await player.play(ctx, traffic(config, 100, seed=7))
        assert player.model.valid.any()
        player.model.clear()
        await player.pulse(ctx, player.dut.clear)
        await player.swept(ctx)
        rests = rests_of(config, 2 * config.slots // config.banks, seed=7)
        begun = len(player.seen)
        await player.play(ctx, [request(config, rest) for rest in rests])
        assert set(player.seen[begun:]) == {(DirectoryOp.FIND, False, False)}
        await player.play(ctx, traffic(config, 100, seed=8))
    player.run(steps)


@pytest.mark.parametrize("config", [*CONFIGS, preset("ecp5-85f"),
                                    dataclasses.replace(preset("alveo-u55c"), planner=False)],
                         ids=lambda config: config.name)
def test_memory_equals_the_model(config):
    assert config.banks * memory_bits(DirectoryBank(config)) == directory_bits(config)
    assert directory_bits(config) == config.slots * (1 + config.directory_tag_width)
