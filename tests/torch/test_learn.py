"""What learn() takes, and what is refused before anything changes: arguments, a closed collection,
and batches of any id in another order than prefetched."""

import numpy as np
import pytest
import torch
from hotrow import BatchError
from hotrow.contract.errors import Error
from hotrow.ids import LeastCount
from hotrow.torch import HotEmbeddingBagCollection, TableConfig
from torch.utils.checkpoint import checkpoint

CACHED = ("scratchpipe", "freqcache", "hotline")
MODES = ("resident", *CACHED)
TABLES = (TableConfig("a", 40, 4), TableConfig("b", 9, 4))
BATCHES = [torch.stack((torch.arange(6) * step % 40, torch.arange(6) * step % 9), 1)
           for step in (1, 3, 7)]
NAN = float("nan")


def opened(mode, tables=TABLES):
    card = {} if mode == "resident" else {"device": "cpu", "preset": "tiny"}
    return HotEmbeddingBagCollection(tables, mode=mode, lr=0.1, seed=3, **card)


def step(tables, ids):
    tables(ids).square().sum().backward()
    tables.optimizer.step()


def trained(tables):
    """The digest of the rows after a training."""
    for ids in BATCHES:
        step(tables, ids)
    tables.flush()
    return tables.sha256()


def held(tables):
    """The rows that have slots: of table a 0 to 39, of b from its flat row on."""
    return sorted(tables.store.storages[0].resident.tolist())


ROWS_REFUSED = [
    ({"a": [1, 1, 3]}, r"row 1 of table 'a' is listed twice \(positions 0 and 1 of"),
    ({"a": [7], "b": torch.tensor([8, 2, 0, 2])}, r"row 2 of table 'b' is .*\(positions 1 and 3 "),
    ({"a": [[1, 2], [3, 4]]}, r"rows of table 'a' with 1 dimension, got shape \[2, 2\]"),
    ({"a": 5}, r"rows of table 'a' with 1 dimension, got shape \[\]"),
    ({"a": [39, 40]}, r"40 is no row of table 'a' \(position 1 of its list\): expected 0 to 39"),
    ({"a": [48]}, "48 is no row of table 'a'"),
    ({"a": np.array([1 << 40])}, "1099511627776 is no row of table 'a'"),
    ({"b": [-1]}, "-1 is no row of table 'b' .*expected 0 to 8"),
    ({"a": None}, "rows of table 'a' as a tensor or an array of integers, got NoneType"),
    ({"a": ["x"]}, "rows of table 'a' .*got list of strings"),
    ({"a": [1.5]}, "rows of table 'a' as integers, got torch.float64"),
    ({"a": [True]}, "rows of table 'a' as integers, got torch.bool"),
    ({"a": [[1], [2, 3]]}, "rows of table 'a' as .*, got list"),
]


@pytest.mark.parametrize("mode", MODES)
def test_rows_that_are_refused_change_nothing(mode):
    with opened("resident") as plain:
        expected = trained(plain)
    with opened(mode) as tables:
        tables.learn({"a": [5, 6]})
        for rows, message in ROWS_REFUSED:
            with pytest.raises(BatchError, match=message):
                tables.learn(rows)
            assert mode == "resident" or held(tables) == [5, 6], rows
        assert trained(tables) == expected
        assert tables.learn({"a": [7]}) == (mode != "resident")


@pytest.mark.parametrize("mode", CACHED)
def test_a_repeated_row_of_a_fresh_collection(mode):
    """It is where the slots are all free that a row could get two."""
    with opened(mode) as tables:
        with pytest.raises(BatchError, match="listed twice") as refused:
            tables.learn({"b": [4, 3, 4]})
        assert (refused.value.position, refused.value.table, refused.value.row) == (2, 1, 4)
        assert held(tables) == []
        assert tables.learn({"b": [4, 3]}) == 2
        trained(tables)


@pytest.mark.parametrize("mode", CACHED)
@pytest.mark.parametrize("options, message", [
    ({"rows": [1]}, "rows is a dict by the names of tables, not list"),
    ({"rows": {"shop": [1]}}, "there is no table 'shop': expected some of a, b"),
    ({"rows": {1: [1], "c": [1]}}, "there is no table 1"),
    ({"rows": {"a": [1]}, "limit": -1}, "limit is a number of slots, 0 or more, not -1"),
    ({"limit": 1000}, "1,000 hot rows do not fit: the card's directory holds 256"),
    ({"rows": {"a": [1]}, "warmup_ratio": NAN}, "share of the slots, 0 to 1, not nan"),
    ({"warmup_ratio": -5}, "share of the slots, 0 to 1, not -5"),
    ({"warmup_ratio": 1.5}, "share of the slots, 0 to 1, not 1.5"),
    ({"warmup_ratio": "1"}, "share of the slots, 0 to 1, not '1'"),
    ({"warmup_ratio": 2, "limit": 1}, "share of the slots, 0 to 1, not 2"),
    ({"decay": -1}, "decay is a number of binary places, 0 or more, not -1"),
    ({"ids_freq_mapping": [1]}, "ids_freq_mapping is a dict by the names of tables, not list"),
    ({"ids_freq_mapping": {"c": [1]}}, "there is no table 'c'"),
    ({"ids_freq_mapping": {"a": [1] * 41}},
     r"each of the 40 rows of table 'a' is accessed, got list of shape \[41\]"),
    ({"ids_freq_mapping": {"a": torch.ones(39)}}, r"got Tensor of shape \[39\]"),
    ({"ids_freq_mapping": {"b": [1] * 8 + [-2]}}, "from 0 on, got -2 for row 8"),
    ({"ids_freq_mapping": {"b": [1] * 7 + [NAN] * 2}}, "from 0 on, got nan for row 7"),
    ({"ids_freq_mapping": {"b": ["x"] * 9}}, "of table 'b' is accessed, got list of shape"),
    ({"ids_freq_mapping": {"b": None}}, "of table 'b' is accessed, got NoneType"),
    ({"ids_freq_mapping": {"b": [[1], [2, 3]]}}, "of table 'b' is accessed, got list"),
])
def test_options_that_are_refused_change_nothing(mode, options, message):
    with opened(mode) as tables:
        tables.learn({"a": [5, 6]})
        with pytest.raises(Error, match=message):
            tables.learn(**options)
        assert held(tables) == [5, 6]
        step(tables, BATCHES[0])


@pytest.mark.parametrize("mode", CACHED)
def test_what_is_taken(mode):
    with opened(mode) as tables:
        other = tables.store.groups[0].tables.first[1]
        for rows, expected in (
                (range(3), [0, 1, 2]), (torch.tensor([2, 0]), [0, 2]), ((4, 3), [3, 4]),
                (np.array([39, 7], np.uint64), [7, 39]), (np.array([5], np.uint8), [5]),
                ([], []), (range(0), []), (torch.empty(0, dtype=torch.int64), [])):
            assert tables.learn({"a": rows}) == len(expected)
            assert held(tables) == expected
        assert tables.learn({"b": [1, 0], "a": [9, 8]}, limit=3) == 3
        assert held(tables) == [8, 9, other + 1]
        assert tables.learn({"a": [9, 8]}, limit=0) == 0 and held(tables) == []
        assert tables.learn({"a": [9, 8]}, warmup_ratio=0) == 1 and held(tables) == [9]
        assert tables.learn({}) == 0 and held(tables) == []
        assert tables.learn(ids_freq_mapping={}) == 0
        assert tables.learn(ids_freq_mapping={"b": torch.arange(9.0).bfloat16()}) == 8
        for ids in BATCHES:
            tables.observe(ids)
        assert tables.learn(limit=2) == 2
        assert tables.learn(limit=0) == 0 and held(tables) == []
        trained(tables)


def counts(tables):
    """The counts of accesses by (table, row)."""
    *rows, found = tables.cache.access_counts().tolist()
    return dict(zip(zip(*rows, strict=True), found, strict=True))


def test_counts_do_not_decay_while_a_batch_is_in_flight():
    with opened("hotline") as tables:
        for _ in range(4):
            tables.observe(BATCHES[1])
        tables.prefetch(BATCHES[0])  # whose lookups are counted now or soon
        before = counts(tables)
        with pytest.raises(Error, match=r"1 batches are in flight.* give slots to other rows"):
            tables.learn(decay=1)
        after = counts(tables)
        assert all(after[row] >= count for row, count in before.items())
        step(tables, BATCHES[0])
        after = counts(tables)
        tables.learn(decay=1)
        assert max(counts(tables).values()) <= max(after.values()) // 2


@pytest.mark.parametrize("mode", CACHED)
@pytest.mark.parametrize("rows", [{"a": [1]}, None])
def test_after_close(mode, rows):
    tables = opened(mode)
    tables.close()
    with pytest.raises(Error, match=r"is closed.*call learn\(\) before close\(\)"):
        tables.learn(rows)
    if mode != "resident":
        with pytest.raises(Error, match="the collection is closed"):
            tables.observe(BATCHES[0])


ANY = (TableConfig("a", 40, 4, ids="any", admission=LeastCount(2, 64)),)
ONE, OTHER, THIRD = (torch.tensor([[1000 * each + 1], [1000 * each + 2]]) for each in (1, 2, 3))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("ahead", [(ONE,), (ONE, OTHER)], ids=("one ahead", "two ahead"))
def test_a_batch_of_any_ids_out_of_order_is_an_error(mode, ahead):
    """And the batches that were prefetched train once, in their order."""
    with opened(mode, ANY) as tables:
        for ids in ahead:
            tables.prefetch(ids)
        for ids in (OTHER, THIRD):
            with pytest.raises(Error, match=r"not the one that was prefetched .*skip\(\)"):
                tables(ids)
        for ids in ahead:
            step(tables, ids)
        ids, _ = tables.id_maps.maps[0].items()
        assert ids.tolist() == [], "an id was counted twice"
        assert tables.id_maps.maps[0].batch == len(ahead)
        step(tables, ONE)
        assert sorted(tables.id_maps.maps[0].items()[0].tolist()) == ONE.ravel().tolist()


@pytest.mark.parametrize("mode", MODES)
def test_a_skipped_batch_of_any_ids(mode):
    with opened(mode, ANY) as tables:
        for ids in (ONE, OTHER):
            tables.prefetch(ids)
        tables.skip()
        step(tables, OTHER)
        assert tables.id_maps.maps[0].batch == 2 and not tables.id_maps.waiting


@pytest.mark.parametrize("ahead", [0, 1, 2])
def test_a_lookup_that_backward_repeats_counts_once(ahead):
    """Of activation checkpointing, also while the next batch is prefetched."""
    digests = []
    for mode, repeats in (("resident", False), ("resident", True), ("scratchpipe", True)):
        with opened(mode, ANY) as tables:
            made = [ONE, OTHER, ONE, THIRD, OTHER, ONE]
            for ids in made[:ahead]:
                tables.prefetch(ids)
            for number, ids in enumerate(made):
                if ahead and number + ahead < len(made):
                    tables.prefetch(made[number + ahead])
                loss = (checkpoint(lambda ids, tables=tables: tables(ids).sin(), ids,
                                   use_reentrant=False) if repeats else tables(ids).sin())
                loss.sum().backward()
                tables.optimizer.step()
            tables.flush()
            digests.append((tables.sha256(), tables.id_maps.maps[0].digest(),
                            tables.id_maps.maps[0].batch))
    assert digests[0] == digests[1] == digests[2]
    assert digests[0][2] == len(made)
