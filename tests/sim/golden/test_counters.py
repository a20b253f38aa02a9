from dataclasses import replace

import numpy as np
import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.lookup.hashing.row_location import split_counter_key, split_key
from hotrow_sim.golden.lookup.counters import Counters, pack_key, unpack_key

TINY = preset("tiny")
APART = TINY.window_beats + 1  # beats
CONFIGS = [
    replace(TINY, name="tiny"),
    replace(TINY, name="three-ways", counter_sets=16, counter_ways=3, counter_bits=4),
    replace(TINY, name="two-ways", counter_sets=16, counter_ways=2, counter_bits=5),
    replace(TINY, name="many-ways", counter_sets=16, counter_ways=16, counter_bits=32),
]


class ByLists:
    """The counters as lists of [key, count, credit] by way, one lookup at a time."""

    def __init__(self, config):
        self.config = config
        self.clear()

    def clear(self):
        self.sets = [[[None, 0, 0] for _ in range(self.config.counter_ways)]
                     for _ in range(self.config.counter_sets)]

    def observe(self, table, row, beat):
        """A row's lookups join the first of it up to `window_beats` beats before."""
        keys = [t << 32 | r for t, r in zip(table.tolist(), row.tolist(), strict=True)]
        newest, groups = {}, []
        for key, at in zip(keys, beat.tolist(), strict=True):
            if key not in newest or at > groups[newest[key]][1] + self.config.window_beats:
                newest[key] = len(groups)
                groups.append([key, at, 0])
            groups[newest[key]][2] += 1
        return sum(self.count(key, amount) for key, _, amount in groups)

    def count(self, key, amount):
        """How many of these lookups hit."""
        bank, rest = split_key(self.config, key)
        number = split_counter_key(self.config, rest)[0] * self.config.banks + bank
        ways, limit = self.sets[number], 2 ** self.config.counter_bits - 1
        for way in ways:
            if way[0] == key and way[1]:
                way[1:] = min(way[1] + amount, limit), 32 * min(way[1], 3)
                return amount
        victim = min(ways, key=lambda way: way[1])
        if victim[1] and victim[2]:
            victim[2] = max(victim[2] - amount, 0)
        else:
            victim[:] = key, min(amount, limit), 0
        return amount - 1

    def decay(self, shift):
        for ways in self.sets:
            for way in ways:
                way[1:] = way[1] >> shift, 0 if shift else way[2]

    def harvest(self, wanted, threshold):
        entries = [(*way[:2], place) for place, way in enumerate(way for ways in self.sets
                                                             for way in ways)
                   if way[1] >= max(1, threshold)]
        best = sorted(entries, key=lambda entry: (-entry[1], entry[2]))[:wanted]
        return [(key >> 32, key & 0xFFFF_FFFF, count)
                for key, count, _ in sorted(best, key=lambda entry: entry[2])]


def same(golden, model, wanted, threshold=0):
    table, row, count = golden.harvest(wanted, threshold)
    assert list(zip(table.tolist(), row.tolist(), count.tolist(), strict=True)) == (
        model.harvest(wanted, threshold)), f"the {wanted} most counted from {threshold} on"


def rows_of(config, kind, count, seed):
    rng = np.random.default_rng(seed)
    spread = {"few": 3, "crowded": config.counter_entries, "uniform": 1 << 32}.get(kind)
    row = rng.integers(0, spread, count) if spread else np.minimum(rng.zipf(1.3, count), 1 << 31)
    return rng.integers(0, 2, count), row, np.arange(count) // config.lanes


def one_a_beat(*rows):
    """Lookups of table 0 so far apart that none joins another."""
    return np.zeros(len(rows), int), np.array(rows), np.arange(len(rows)) * APART


@pytest.mark.parametrize("kind", ["few", "crowded", "uniform", "skewed"])
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_equals_lists(config, kind):
    """Batches of any size, the empty one included, with decay between them."""
    golden, model = Counters(config), ByLists(config)
    for turn, count in enumerate((1, 0, 7, 400, 150, 60)):
        lookups = rows_of(config, kind, count, seed=turn)
        assert golden.observe(*lookups) == model.observe(*lookups), f"hits of batch {turn}"
        everyone = config.counter_entries
        for wanted in (1, 2, everyone // 3, everyone - 1, everyone, everyone + 1):
            for threshold in (0, 1, 2, 5, 1 << 31):
                same(golden, model, max(1, wanted), threshold)
        if turn == 3:
            golden.decay(2)
            model.decay(2)


def test_each_lookup_takes_a_credit():
    """Each of a burst's owners takes what its lookups would, one by one, and not below zero."""
    config = CONFIGS[0]
    golden, model = Counters(config), ByLists(config)
    bursts = np.repeat(np.arange(config.counter_entries * 4), 40)
    lookups = np.zeros(len(bursts), int), bursts, np.arange(len(bursts)) // config.lanes
    for _ in range(3):
        assert golden.observe(*lookups) == model.observe(*lookups)
        same(golden, model, config.counter_entries)
    assert golden.credit.min() >= 0 and golden.credit.max() == 96


@pytest.mark.parametrize("config", CONFIGS[1:3], ids=lambda config: config.name)
def test_counts_saturate(config):
    golden, model = Counters(config), ByLists(config)
    limit = (1 << config.counter_bits) - 1
    for count in (limit - 1, 1, 1, 2 * limit):
        lookups = np.zeros(count, int), np.full(count, 7), np.arange(count) // 4
        assert golden.observe(*lookups) == model.observe(*lookups)
        same(golden, model, 1)
    assert golden.harvest(1, 0)[2].tolist() == [limit]


def test_ties_are_ordered_by_set_and_way():
    config = CONFIGS[2]
    golden, model = Counters(config), ByLists(config)
    lookups = one_a_beat(*range(config.counter_entries))
    golden.observe(*lookups), model.observe(*lookups)
    held = len(golden.harvest(config.counter_entries, 0)[0])
    assert held > 3
    for wanted in range(1, held + 1):
        same(golden, model, wanted)


@pytest.mark.parametrize("shift", [0, 1, 3, 4, 31, 32, 33, 1 << 31, (1 << 32) - 1])
def test_decay_of_any_shift(shift):
    config = CONFIGS[3]  # counts of 32 bits
    golden, model = Counters(config), ByLists(config)
    lookups = rows_of(config, "few", 100, seed=1)
    golden.observe(*lookups), model.observe(*lookups)
    golden.count[golden.count == golden.count.max()] = (1 << 32) - 1
    before = golden.count.copy()
    golden.decay(shift)
    assert golden.count.tolist() == [[count >> shift for count in ways]
                                     for ways in before.tolist()]
    assert golden.count.dtype == np.uint32


def test_a_decayed_row_is_gone():
    """A count of zero is an empty way: the row is a miss and fills a way."""
    config = CONFIGS[1]
    golden, model = Counters(config), ByLists(config)
    for counters in (golden, model):
        counters.observe(*one_a_beat(1, 1, 2))
        counters.decay(1)
    assert golden.observe(*one_a_beat(2, 1)) == 1
    assert model.observe(*one_a_beat(2, 1)) == 1
    same(golden, model, 9)


def test_clear_clears_every_counter():
    golden = Counters(TINY)
    golden.observe(*one_a_beat(*range(50)))
    golden.clear()
    assert not len(golden.harvest(100, 0)[0])
    assert golden.observe(*one_a_beat(*range(50))) == 0


@pytest.mark.parametrize("address_width, row_width", [(64, 32), (36, 32), (35, 31), (32, 28)])
def test_keys_pack_table_above_row(address_width, row_width):
    config = replace(TINY, address_width=address_width)
    last = (1 << row_width) - 1
    key = pack_key(config, [3, 0], [last, last])
    assert key.tolist() == [(3 << row_width) + last, last]
    assert np.array_equal(unpack_key(config, key), [[3, 0], [last, last]])
