import dataclasses
import random

import numpy as np
import pytest
from amaranth.hdl import Const
from amaranth.lib import data
from hotrow_rtl.config import log2, preset
from hotrow_rtl.contract.encoding import NO_SLOT
from hotrow_rtl.interfaces.lookup_payloads import slot_in_bank, slot_number
from hotrow_rtl.lookup.hashing.row_location import directory_hash, join_key, split_key
from hotrow_rtl.lookup.hashing.xorshift import hash_key
from hotrow_sim.golden.lookup.directory import Directory

TINY = preset("tiny")
CONFIGS = [
    TINY,
    dataclasses.replace(TINY, name="one-choice", directory_choices=1),
    dataclasses.replace(TINY, name="small", directory_sets=16, directory_partitions=2,
                        directory_ways=2),
    dataclasses.replace(TINY, name="bus-64", bus_bytes=64, counter_sets=256, directory_sets=256,
                        miss_entries=1024),
]


class BruteForce:
    """The directory as a dictionary from slot to row, by the words of the contract."""

    def __init__(self, config):
        self.config = config
        self.row_at = {}

    def slots_of(self, choice, key, partition):
        """The slots of the row's set for a choice, lowest first."""
        c, (parts_log2, part) = self.config, partition
        rest, bank = divmod(hash_key(key[0] << 32 | key[1], 0, c.key_width), c.banks)
        sets = (c.directory_sets // c.banks) >> parts_log2  # of a part, in each bank
        at = part * sets + (hash_key(rest, 1, c.bank_key_width) if choice else rest) % sets
        first = (choice * c.directory_sets + at * c.banks + bank) * c.directory_ways
        return range(first, first + c.directory_ways)

    def find(self, key, partition):
        for choice in range(self.config.directory_choices):
            for slot in self.slots_of(choice, key, partition):
                if self.row_at.get(slot) == key:
                    return slot
        return NO_SLOT

    def install(self, key, partition):
        slot = self.find(key, partition)
        if slot != NO_SLOT:
            return slot, True
        free = [[slot for slot in self.slots_of(choice, key, partition) if slot not in self.row_at]
                for choice in range(self.config.directory_choices)]
        most = max(free, key=len)  # the first on a tie
        if not most:
            return NO_SLOT, False
        self.row_at[most[0]] = key
        return most[0], False

    def remove(self, key, partition):
        slot = self.find(key, partition)
        self.row_at.pop(slot, None)
        return slot


def keys_and_partitions(config, rng, count):
    """Rows of tables with different partitions that do not overlap."""
    largest = config.directory_partitions.bit_length() - 1
    partitions = [(1, 0), (largest, (1 << largest) - 1)] if largest > 1 else [(1, 0), (1, 1)]
    for _ in range(count):
        table = rng.randrange(config.tables)
        yield (table, rng.getrandbits(32)), partitions[table % 2]


@pytest.mark.slow
@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
def test_edits_and_lookups_equal_brute_force(config, seed):
    rng = random.Random(seed)
    golden, brute = Directory(config), BruteForce(config)
    rows = list(keys_and_partitions(config, rng, 2 * config.slots))
    reached = set()
    for step in range(6 * config.slots):
        key, partition = rng.choice(rows)
        if rng.random() < 0.7:
            got, want = golden.install(*key, partition), brute.install(key, partition)
            reached.add(("install", want[1], want[0] == NO_SLOT))
        else:
            got, want = golden.remove(*key, partition), brute.remove(key, partition)
            reached.add(("remove", want == NO_SLOT))
        assert got == want, f"step {step} of seed {seed}"
    assert len(reached) == 5, f"seed {seed} reached only {reached}"
    columns = [np.array(column) for column in zip(
        *((*key, *where) for key, where in rows), strict=True)]
    found = golden.lookup(*columns)
    assert found.tolist() == [brute.find(key, where) for key, where in rows], f"seed {seed}"
    assert 0 < np.count_nonzero(found == NO_SLOT) < len(found)


def test_clear_frees_every_slot():
    directory = Directory(TINY)
    assert directory.install(1, 2, (0, 0)) == (directory.lookup(*np.array([[1], [2], [0], [0]]))[0],
                                               False)
    directory.clear()
    assert directory.lookup(*np.array([[1], [2], [0], [0]])).tolist() == [NO_SLOT]


def test_slots_stay_in_their_partition():
    directory = Directory(TINY)
    share = TINY.directory_sets // 4
    for row in range(200):
        slot, _ = directory.install(0, row, (2, 3))
        if slot != NO_SLOT:
            assert slot // TINY.directory_ways % TINY.directory_sets // share == 3


@pytest.mark.slow
@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
def test_slot_equals_the_hardware(config):
    """`bank_layouts.slot_number` of the parts of a slot is the number that the model gives."""
    directory, brute = Directory(config), BruteForce(config)
    layout, seen = slot_in_bank(config), set()
    for row in range(3 * config.slots):
        slot, _ = directory.install(1, row, (0, 0))
        if slot == NO_SLOT:
            continue
        bank, rest = split_key(config, 1 << 32 | row)
        for choice in range(config.directory_choices):
            at = directory_hash(config, choice, rest) % (config.directory_sets // config.banks)
            for way in range(config.directory_ways):
                parts = Const(layout.const({"way": way, "set": at, "choice": choice}).as_bits(),
                              layout.size)
                number = Const.cast(slot_number(config, Const(bank, log2(config.banks)),
                                                data.View(layout, parts)))
                if number.value == slot:
                    seen.add(slot)
        assert slot in seen and slot in brute.slots_of(
            slot // (config.slots // config.directory_choices), (1, row), (0, 0))
    assert len(seen) > 0.9 * config.slots


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
def test_rows_of_one_set_are_distinguished(config):
    """All rows that the smallest partition puts into one set of one bank: only tags differ."""
    directory = Directory(config)
    parts = log2(config.directory_partitions)
    sets = config.directory_sets // config.banks >> parts
    slots = {}
    for number in range(200):
        rest = (number * 977 * sets + sets - 1) & ((1 << config.bank_key_width) - 1)
        key = join_key(config, 3, rest)
        slot, present = directory.install(key >> 32, key & 0xFFFFFFFF, (parts, 0))
        assert not present, f"row {key:#x} was taken for one of {list(slots.values())}"
        if slot != NO_SLOT:
            assert slot not in slots
            slots[slot] = key
    assert len(slots) >= config.directory_ways
    assert {slot // config.directory_ways % config.banks for slot in slots} == {3}
