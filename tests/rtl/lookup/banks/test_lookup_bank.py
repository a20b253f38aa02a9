"""Lookup bank: counters, directory and miss table together, beside their golden models."""

import dataclasses

import numpy as np
import pytest
from hotrow_rtl.config import EPOCH_WIDTH, preset
from hotrow_rtl.contract.encoding import NO_SLOT
from hotrow_rtl.interfaces.lookup_payloads import DirectoryOp, amount_width
from hotrow_rtl.lookup.banks.lookup_bank import LookupBank
from hotrow_rtl.lookup.directory.bank import DirectoryBank
from hotrow_rtl.lookup.hashing.row_location import key_of, place
from hotrow_sim.cost.design_memory import memory_bits
from hotrow_sim.cost.lookup import counters_bits, directory_bits, miss_table_bits
from hotrow_sim.golden.lookup.counters import Counters, unpack_key
from hotrow_sim.golden.lookup.directory import Directory
from hotrow_sim.golden.lookup.miss_table import MissTable
from hotrow_sim.testing.benches.stream_bench import StreamBench

TINY = dataclasses.replace(preset("tiny"), planner=False)
CONFIGS = [TINY, dataclasses.replace(
    TINY, name="bus-64", bus_bytes=64, counter_sets=256, directory_choices=1, directory_sets=256,
    miss_entries=1024)]
BANK = 5


def keys_of_bank(config, count, seed):
    """Different packed keys of one bank; some share their sets."""
    rng = np.random.default_rng(seed)
    rest = rng.choice(1 << config.bank_key_width - 8, count, replace=False).astype(np.uint64)
    rest = rest & ~np.uint64(0x18) | rest % np.uint64(3) << np.uint64(3)
    keys = np.unique(key_of(config, np.uint64(BANK), rest))
    assert (place(config, keys)[0] == BANK).all()
    return rng.permutation(keys)


class Golden:
    """One request after the other."""

    def __init__(self, config):
        self.config = config
        self.counters, self.directory = Counters(config), Directory(config)
        self.missed = {}  # by epoch

    def answer(self, key, amount, ask, miss, epoch, edit, partition):
        """(counted, (hit, placed, slot), (kept, repeated, place)); None: anything."""
        table, row = (int(part) for part in unpack_key(self.config, np.uint64(key)))
        counted = found = missed = None
        if amount:
            together = np.full(amount, table), np.full(amount, row), np.zeros(amount, int)
            counted = self.counters.observe(*together) - (amount - 1)
        slot = NO_SLOT
        if edit == DirectoryOp.INSTALL:
            slot, hit = self.directory.install(table, row, partition)
            found = int(hit), int(slot != NO_SLOT), slot
        elif edit == DirectoryOp.REMOVE:
            slot = self.directory.remove(table, row, partition)
            found = int(slot != NO_SLOT), int(slot != NO_SLOT), slot
        elif ask:
            slot = int(self.directory.lookup(
                np.array([table]), np.array([row], np.uint64), np.array([partition[0]]),
                np.array([partition[1]]))[0])
            found = int(slot != NO_SLOT), int(slot != NO_SLOT), slot
        if miss and slot == NO_SLOT:
            keys = self.missed.setdefault(epoch, [])
            keys.append(key)
            kept, repeated, at = (int(each[-1]) for each in
                                  MissTable(self.config).find(np.array(keys, np.uint64)))
            missed = kept, repeated, at
        return counted, found, missed


def requests_of(config, count, seed, edits=True):
    """Batches of lookups with some edits between them, as arguments of `Golden.answer`."""
    rng = np.random.default_rng(seed)
    keys = keys_of_bank(config, 40, seed).tolist()
    epoch = 1
    for _ in range(count):
        kind = rng.choice(["count", "split", "both", "op"], p=[0.2, 0.35, 0.35, 0.1])
        if rng.random() < 0.03:
            epoch = min(epoch + 1, (1 << EPOCH_WIDTH) - 1)
        amount = int(rng.integers(1, min(5, 1 << amount_width(config))))
        key = int(rng.choice(keys[:6])) if rng.random() < 0.4 else int(rng.choice(keys))
        parts = key % 3, key % (1 << key % 3)
        if kind == "edit" and edits:
            edit = DirectoryOp.INSTALL if rng.random() < 0.7 else DirectoryOp.REMOVE
            yield key, 0, 0, 0, epoch, edit, parts
        else:
            splits = int(kind != "count")
            yield key, amount * (kind != "split"), splits, splits, epoch, DirectoryOp.FIND, parts


def slot_of(config, found):
    slot = found["slot"]
    set_ = slot["set"] * config.banks + BANK
    return (slot["choice"] * config.directory_sets + set_) * config.directory_ways + slot["way"]


def run(config, given, gaps):
    """Play the requests; check every answer and when it comes; return the cycles."""
    dut, golden = LookupBank(config), Golden(config)
    bench = StreamBench(dut)
    entered, cycles = [], []

    async def ask(ctx):
        await ctx.tick().until(dut.ready)
        begun = bench.cycles
        for number, (key, amount, ask, miss, epoch, edit, parts) in enumerate(given):
            for _ in range(gaps[number % len(gaps)]):
                await ctx.tick()
            ctx.set(dut.requests.p, {
                "bank_key": int(place(config, np.uint64(key))[1]), "amount": amount, "search": ask,
                "miss": miss, "epoch": epoch, "op": edit, "parts_log2": parts[0],
                "part": parts[1]})
            ctx.set(dut.requests.valid, 1)
            await ctx.tick().until(dut.requests.ready)
            ctx.set(dut.requests.valid, 0)
            entered.append(bench.cycles)
        cycles.append(bench.cycles - begun)

    async def check(ctx):
        for number, request in enumerate(given):
            counted, found, missed = golden.answer(*request)
            (answer,) = await ctx.tick().sample(dut.answers.p).until(dut.answers.valid)
            where = f"request {number} {request}"
            waited = bench.cycles - entered[number] - dut.latency
            assert 0 <= waited < DirectoryBank.edit_cycles, where
            assert counted is None or answer.counted == counted, where
            if found is not None:
                got = answer.found
                assert (got.hit, got.placed) == found[:2], where
                assert found[2] == NO_SLOT or slot_of(config, got) == found[2], where
            if missed is not None:
                got = answer.missed
                assert (got.kept, got.repeated if got.kept else 0) == missed[:2], where
                assert not missed[0] or got.place == missed[2], where
    bench.process("requests", ask)
    bench.process("answers", check)
    bench.run(40 * len(given) + 500)
    return cycles[0]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
@pytest.mark.parametrize("gaps", [(0,), (0, 0, 3, 1, 9)], ids=["steady", "gaps"])
def test_equals_the_golden_models(config, gaps):
    run(config, list(requests_of(config, 400, seed=1)), gaps)


def test_a_request_a_cycle_unless_sets_meet():
    """All rows in different sets of counters and misses: nothing waits."""
    rests = [7 * number % 8 for number in range(64)]
    given = [(int(key_of(TINY, np.uint64(BANK), np.uint64(rest << 4 | rest))), 1, 1, 1, 1,
              DirectoryOp.FIND, (0, 0)) for rest in rests]
    assert run(TINY, given, (0,)) == len(given)


def test_an_edit_keeps_the_next_request_waiting():
    keys = keys_of_bank(TINY, 12, 3).tolist()
    given = [(key, 0, 0, 0, 1, DirectoryOp.INSTALL, (0, 0)) for key in keys]
    # One more waits in the bank.
    assert run(TINY, given, (0,)) == DirectoryBank.edit_cycles * (len(given) - 2) + 2


@pytest.mark.parametrize("after", [0, 1, 3, 6, 8])
def test_restart_drops_the_requests_in_flight(after):
    dut = LookupBank(TINY)
    bench = StreamBench(dut)

    async def drive(ctx):
        await ctx.tick().until(dut.ready)
        ctx.set(dut.requests.p, {"bank_key": 77, "amount": 1, "search": 1, "miss": 1, "epoch": 1})
        ctx.set(dut.requests.valid, 1)
        await ctx.tick()
        ctx.set(dut.requests.valid, 0)
        for _ in range(after):
            await ctx.tick()
        ctx.set(dut.restart, 1)
        await ctx.tick()
        ctx.set(dut.restart, 0)
        for _ in range(dut.latency + 2):
            _, _, valid = await ctx.tick().sample(dut.answers.valid)
            assert not valid
    bench.process("drive", drive)
    bench.run(200)


@pytest.mark.parametrize("config", [*CONFIGS, preset("ecp5-85f")], ids=lambda config: config.name)
def test_memory(config):
    bits = counters_bits(config) + directory_bits(config) + miss_table_bits(config)
    assert config.banks * memory_bits(LookupBank(config)) == bits
