"""Access counts are part of a checkpoint: a resumed run evicts by the counts of the saved one."""

import copy

import hotrow
import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from hotrow.contract.errors import Error
from hotrow.torch import (
    Checkpoint,
    HotEmbeddingBagCollection,
    Options,
    ShardedEmbeddingBagCollection,
    TableConfig,
)

from tests.driver.conftest import counts_of, pairs


def opened(mode):
    return HotEmbeddingBagCollection([TableConfig("a", 2000, 8), TableConfig("b", 90, 8)], "model",
                                     mode, lr=0.1, options=Options(preset="tiny", seed=0))


@pytest.mark.slow
@pytest.mark.parametrize("mode, counts", [("freqcache", True), ("scratchpipe", False)])
def test_a_checkpoint_restores_the_counts(tmp_path, mode, counts):
    generator = torch.Generator().manual_seed(0)
    rows = torch.tensor([2000, 90])
    with opened(mode) as tables:
        for _ in range(20):
            ids = (torch.rand(64, 2, generator=generator) ** 3 * rows).long()
            tables(ids).sum().backward()
            tables.optimizer.step()
        torch.save([tables.state_dict(), tables.optimizer.state_dict()], tmp_path / "saved.pt")
        kept = tables.store.device.counts()
    assert bool(len(kept)) == counts
    model, optimizer = torch.load(tmp_path / "saved.pt")
    with opened(mode) as tables:
        tables.load_state_dict(model)
        tables.optimizer.load_state_dict(optimizer)
        restored = tables.store.device.counts()
        assert counts_of(restored) == counts_of(kept) and pairs(restored) == pairs(kept)


SIZES = {"a": (40, 8), "b": (20, 8), "c": (30, 4)}


def collection_of(names="abc", mode="freqcache", kind=HotEmbeddingBagCollection, **options):
    """Tables with names of one letter; c is in a group of its own."""
    card = {} if mode == "resident" else {"device": "model", "preset": "tiny"}
    options = {"optimizer": "adagrad", **card, **options}
    return kind([TableConfig(name, *SIZES[name]) for name in names], mode=mode, lr=0.1,
                seed=0, **options)


def observe(collection, rows=(39, 19, 29), times=3):
    """Count a row of each table, by their names."""
    ids = [dict(zip("abc", rows, strict=True))[config.name] for config in collection.tables]
    for _ in range(times):
        collection.observe(torch.tensor([ids]))


def named(collection):
    """The device's counts by the tables' names: dict of (name, row) to int."""
    names = {collection.store.card.device_table(number): config.name
             for number, config in enumerate(collection.tables)}
    found = collection.store.card.device.counts()
    return {(names[table], row): count for table, row, count in zip(
        found.table.tolist(), found.row.tolist(), found.count.tolist(), strict=True)}


COUNTED = {("a", 39): 3, ("b", 19): 3, ("c", 29): 3}


def state_of(names="abc"):
    with collection_of(names) as collection:
        observe(collection)
        assert named(collection) == {key: 3 for key in COUNTED if key[0] in names}
        return copy.deepcopy(collection.optimizer.state_dict())


@pytest.mark.parametrize("mode", ["resident", "scratchpipe", "freqcache", "hotline"])
def test_every_state_has_the_same_keys(mode):
    with collection_of("cab", mode) as collection:
        fresh = copy.deepcopy(collection.optimizer.state_dict())
        if mode != "resident":
            observe(collection)
        counted = collection.optimizer.state_dict()
    closed = collection.optimizer.state_dict()
    assert list(fresh) == list(counted) == list(closed)
    for state in (fresh, counted, closed):
        names, counts = state["access_counts"]
        assert names == ["c", "a", "b"] and counts.dtype == torch.int64
        number = 3 if state is counted and mode != "resident" else 0
        assert counts.shape == (3, number)
        assert sorted(counts.T.tolist()) == [[0, 29, 3], [1, 39, 3], [2, 19, 3]][:number]


def test_without_a_device_counts_are_left_out():
    collection = collection_of(mode="resident")
    collection.optimizer.load_state_dict(state_of())
    collection.optimizer.load_state_dict(state_of("cba"))


def through_distributed(state, into, folder):
    dcp.save(state, checkpoint_id=folder, no_dist=True)
    loaded = copy.deepcopy(into.optimizer.state_dict())
    dcp.load(loaded, checkpoint_id=folder, no_dist=True)
    into.optimizer.load_state_dict(loaded)


@pytest.mark.parametrize("counted", [False, True])
def test_a_distributed_checkpoint_restores_the_counts(tmp_path, counted):
    """Of a collection that has counted none, or others."""
    with collection_of("cab") as collection:
        if counted:
            observe(collection, (1, 2, 3))
            observe(collection, (4, 5, 6))
        through_distributed(state_of(), collection, tmp_path)
        assert named(collection) == COUNTED


@pytest.mark.parametrize("modes", [("resident", "freqcache"), ("freqcache", "resident")])
def test_a_distributed_checkpoint_of_another_mode_loads(tmp_path, modes):
    with collection_of(mode=modes[0]) as first, collection_of(mode=modes[1]) as second:
        through_distributed(first.optimizer.state_dict(), second, tmp_path)


def test_a_distributed_checkpoint_of_another_card_loads(tmp_path):
    with collection_of(preset="ecp5") as collection:
        assert collection.store.card.device.geometry.counter_entries != 256
        through_distributed(state_of(), collection, tmp_path)
        assert named(collection) == COUNTED


def test_a_checkpoint_file_restores_the_counts(tmp_path):
    checkpoint = Checkpoint(tmp_path / "run.pt")
    checkpoint.save(optimizer=state_of())
    with collection_of() as collection:
        collection.optimizer.load_state_dict(checkpoint.load()["optimizer"])
        assert named(collection) == COUNTED


@pytest.mark.parametrize("without", ["counts", "key"])
def test_a_state_without_counts_leaves_none(without):
    with collection_of() as collection:
        fresh = copy.deepcopy(collection.optimizer.state_dict())
        if without == "key":
            del fresh["access_counts"]
        observe(collection)
        collection.optimizer.load_state_dict(fresh)
        assert not named(collection)
        observe(collection, times=1)
        assert set(named(collection).values()) == {1}


@pytest.mark.parametrize("names", ["abc", "bac", "cba", "cab"])
@pytest.mark.parametrize("saved", ["abc", "cba"])
def test_counts_go_by_the_names_of_tables(saved, names):
    state = state_of(saved)
    with collection_of(names) as collection:
        collection.optimizer.load_state_dict(state)
        assert named(collection) == COUNTED
        again = copy.deepcopy(collection.optimizer.state_dict())
    with collection_of(saved) as collection:
        collection.optimizer.load_state_dict(again)
        assert named(collection) == COUNTED


def test_a_device_that_another_collection_gets_afterwards():
    """A closed collection neither saves its counts nor sets them."""
    with hotrow.open("model", preset="tiny") as device:
        with collection_of("cab", device=device, preset=None) as collection:
            collection.optimizer.load_state_dict(state_of())
            assert named(collection) == COUNTED
        with collection_of("abc", device=device, preset=None) as other:
            observe(other)
            assert not collection.optimizer.state_dict()["access_counts"][1].numel()
            collection.optimizer.load_state_dict(state_of())
            assert named(other) == COUNTED


def test_an_older_state_goes_by_the_numbers_of_tables():
    """It has a column per counter, and no names; the device numbers tables group after group."""
    state, counts = state_of("abc"), torch.zeros(3, 256, dtype=torch.int64)
    counts[:, 1:4] = torch.tensor([[0, 1, 2], [39, 19, 29], [3, 3, 3]])
    with collection_of("acb") as collection:
        collection.optimizer.load_state_dict({**state, "access_counts": counts})
        assert named(collection) == COUNTED


NAMES = ["a", "b", "c"]


@pytest.mark.parametrize("names, counts, words", [
    (["a", "x", "c"], None, "of table 'x', and there is none: expected some of 'a', 'b', 'c'"),
    (["b", "a", "c"], None, "of row 39 of table 'b', which has 20"),
    (["a", "b"], None, "of table 'number 2', and there is none"),
    ("abc", None, "with a list of names of tables, got 'abc'"),
    ([1, 2, 3], None, r"with a list of names of tables, got \[1, 2, 3\]"),
    (NAMES, [[0], [-1], [1]], "of row -1 of table 'a', which has 40"),
    (NAMES, [[0], [0], [1 << 32]], "from 0 to 4294967295"),
    (NAMES, [[0], [0], [-1]], "from 0 to 4294967295, got -1"),
    (NAMES, [[-1], [0], [1]], "of table 'number -1', and there is none"),
    (None, [[7], [0], [1]], "of table 'number 7', and there is none"),
    (None, [[1], [20], [1]], "of row 20 of table 'b'")])
def test_counts_of_other_tables_are_refused_before_a_row_is_written(names, counts, words):
    state = state_of()
    counts = state["access_counts"][1] if counts is None else torch.tensor(counts)
    state["access_counts"] = counts if names is None else (names, counts)
    state["state"][0]["a"] += 1
    with collection_of() as collection:
        observe(collection, (0, 0, 0))
        before, counts = collection.saved.row_states()["a"].clone(), named(collection)
        with pytest.raises(Error, match=words) as found:
            collection.optimizer.load_state_dict(state)
        assert type(found.value) is Error
        assert torch.equal(collection.saved.row_states()["a"], before)
        assert named(collection) == counts
        del state["access_counts"]
        collection.optimizer.load_state_dict(state)  # as the error advises
        assert torch.equal(collection.saved.row_states()["a"], before + 1)


def test_ranks_save_and_load_by_names():
    """Also after close()."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with collection_of("abc", kind=ShardedEmbeddingBagCollection) as shared:
            assert not shared.optimizer.state_dict()["access_counts"][1].numel()
            observe(shared)
            state = copy.deepcopy(shared.optimizer.state_dict())
        closed = shared.optimizer.state_dict()
        assert not closed["access_counts"][1].numel()
        shared.optimizer.load_state_dict(state)
        with collection_of("cba", kind=ShardedEmbeddingBagCollection) as shared:
            shared.optimizer.load_state_dict(state)
            assert named(shared) == COUNTED
            shared.optimizer.load_state_dict(closed)
            assert not named(shared)
            with pytest.raises(Error, match="of table 'x'"):
                shared.optimizer.load_state_dict(
                    {**state, "access_counts": (["x"], torch.tensor([[0], [0], [1]]))})
        with collection_of() as alone:
            alone.optimizer.load_state_dict(state)
            assert named(alone) == COUNTED
    finally:
        dist.destroy_process_group()
