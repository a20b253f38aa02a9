"""Rows that are not pooled, several features of a table, ids out of bounds, counts by table."""

import warnings
from contextlib import contextmanager

import hotrow
import numpy as np
import pytest
import torch
from hotrow.contract.errors import BatchError
from hotrow.torch import HotEmbeddingBagCollection, TableConfig, TrainPipeline
from hotrow.torch.features import outputs
from torch import nn

from tests.torch.training import PLANNING, TABLES, check_beside, draw, worth

MODES = ("resident", "scratchpipe", "freqcache", "hotline")
SEED = 5


@pytest.fixture(params=MODES)
def mode(request):
    return request.param


@pytest.fixture
def make():
    """Collections, closed at the end with their devices."""
    made = []

    def build(mode, tables, optimizer="sgd", **options):
        device = None if mode == "resident" else hotrow.open("model", config=PLANNING)
        made.append((HotEmbeddingBagCollection(tables, device, mode, optimizer, 0.2,
                                               seed=3, **options), device))
        return made[-1][0]

    yield build
    for collection, device in made:
        collection.close()
        if device is not None:
            device.close()


def step(collection, batch):
    collection.optimizer.zero_grad()
    worth(collection(batch.ids)).backward()
    collection.optimizer.step()


UNPOOLED = [TableConfig("user", 300, 8, "none"), TableConfig("item", 500, 8, "none")]


def test_rows_that_are_not_pooled(make, mode):
    """As nn.Embedding's rows, feature after feature."""
    tables, collection = UNPOOLED, make(mode, UNPOOLED, share=2)
    beside = nn.ModuleList(nn.Embedding.from_pretrained(
        collection.contents.table(config.name)[0].clone(), freeze=False) for config in tables)
    steps = torch.optim.SGD(beside.parameters(), 0.2)
    check_beside(collection, beside, steps, draw(SEED, 6, tables), lambda batch: torch.cat(
        [each(ids) for each, (ids, _) in zip(beside, batch.ids, strict=True)]), tables)


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [0, 3])
def test_not_pooled_the_bits_are_residents(make, ahead):
    batches, digests = draw(SEED, 12, UNPOOLED), []
    for mode in MODES:
        collection = make(mode, UNPOOLED, "rowwise_adagrad", share=4)
        with TrainPipeline(batches, collection, lambda batch: batch.ids, ahead=ahead) as pipeline:
            for batch in pipeline:
                step(collection, batch)
        collection.flush()
        digests.append(collection.sha256())
    assert digests == [digests[0]] * len(MODES), f"seed {SEED}"


def test_not_pooled_in_two_parts(make):
    """Popular samples first: within the rounding of another order of sums."""
    ends = []
    for mode in ("resident", "hotline"):
        collection = make(mode, [TableConfig("user", 300, 8, "none")])
        collection.learn({"user": range(100)})
        batches = [torch.from_numpy(each.ids[0][0].numpy()[:, None])
                   for each in draw(SEED, 6, UNPOOLED[:1]) if len(each.ids[0][0])]
        with TrainPipeline(batches, collection, lambda batch: batch) as pipeline:
            pipeline.train(lambda batch: collection(batch).square().sum(1).mean())
        collection.flush()
        ends.append(collection.embeddings["user"].weight.detach().clone())
    torch.testing.assert_close(*ends, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", ["resident", "freqcache", "hotline"])
def test_a_batch_without_lookups_in_two_parts(make, mode):
    """It trains whole: nothing was read ahead for it."""
    collection = make(mode, [TableConfig("user", 300, 8)])
    before, dense = collection.contents.table("user")[0].clone(), nn.Parameter(torch.zeros(8))
    ids = torch.tensor([1, 2, 299])
    batches = [(ids[:count], torch.arange(4).clamp(max=count)) for count in (3, 0, 2, 0)]

    def chosen(batch, samples):
        """The bags of some samples, of at most one id each."""
        held = [batch[0][sample:sample + 1] for sample in samples.tolist()]
        starts = torch.tensor([0, *map(len, held[:-1])]).cumsum(0)
        return torch.cat(held), starts

    with TrainPipeline(batches, collection, lambda batch: [batch]) as pipeline:
        pipeline.train(lambda batch: (collection([batch]) + dense).sum(1).mean(),
                       torch.optim.SGD([dense], 0.5), select=chosen)
    collection.flush()
    assert (dense == -0.5 * len(batches)).all()
    steps = torch.zeros(300, 1).index_add_(0, torch.cat([each for each, _ in batches]),
                                           torch.ones(5, 1))
    collection.flush()
    torch.testing.assert_close(collection.contents.table("user")[0], before - 0.2 / 4 * steps)


SHARED = [TableConfig("user", 300, 8, feature_names=["buyer", "seller", "friend"]),
          TableConfig("item", 500, 8, "mean"),
          TableConfig("place", 90, 6, feature_names=("from", "to"))]
APART = [TableConfig(name, config.num_embeddings, config.embedding_dim, config.pooling)
         for config in SHARED for name in config.feature_names]


@pytest.mark.parametrize("longest", [1, 3], ids="{} ids at most".format)
def test_several_features_look_up_in_a_table(make, mode, longest):
    """Several features of a table look up what tables with equal rows would give."""
    collection = make(mode, SHARED)
    beside = nn.ModuleList(
        nn.EmbeddingBag.from_pretrained(collection.contents.table(config.name)[0].clone(),
                                        freeze=False, mode=config.pooling) for config in SHARED)
    of = [number for number, config in enumerate(SHARED) for _ in config.feature_names]
    steps = torch.optim.SGD(beside.parameters(), 0.2)
    rng = np.random.default_rng(SEED)
    batches = draw(SEED, 6, APART)
    for batch in batches:
        if longest == 1:  # what a device takes as dense, were the features as many everywhere
            size = len(batch.label)
            batch.ids[:] = [(torch.from_numpy(rng.integers(0, config.num_embeddings, size)),
                             torch.arange(size)) for config in APART]
    check_beside(collection, beside, steps, batches, lambda batch: torch.cat(
        [beside[table](*ids) for table, ids in zip(of, batch.ids, strict=True)], dim=1), SHARED)


def test_as_many_features_of_every_table_stay_dense(make):
    tables = [TableConfig("user", 300, 8, feature_names=("a", "b")),
              TableConfig("item", 500, 8, feature_names=("c", "d"))]
    collection = make("scratchpipe", tables)
    ids = torch.arange(20).reshape(5, 4)
    request = collection.batches.request(collection.batches.bags(ids))
    batch = request.bags.device_batch(collection.store.slot_map.registered)
    assert batch.lengths is None and (batch.samples, batch.table_count) == (10, 2)
    names = {config.name: collection.embeddings[config.name].weight.detach() for config in tables}
    expected = torch.cat([names[table][ids[:, at]] for at, table in enumerate(
        ("user", "user", "item", "item"))], dim=1)
    assert torch.equal(collection(ids), expected)


def test_a_batch_with_more_features_than_the_card_takes(make):
    collection = make("scratchpipe", SHARED)
    most = collection.store.device.geometry.batch_samples
    ids = [(torch.zeros(most, dtype=torch.int64), torch.arange(most)) for _ in APART]
    with pytest.raises(hotrow.Error, match=f"{most} samples for 3 features of a table: this card "
                                           f"takes at most {most // 3}"):
        collection(ids)


@contextmanager
def nothing_warned():
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        yield


@pytest.mark.parametrize("bounds", ["fatal", "warning", "ignore"])
def test_ids_out_of_bounds(make, mode, bounds):
    collection = make(mode, TABLES, bounds_check_mode=bounds)
    wrong = torch.tensor([[3, 500, 89], [-1, 499, 4]])
    if bounds == "fatal":
        with pytest.raises(BatchError, match=r"batch 0: id 500 of sample 0 .*'item'|"
                                             r"batch 0: id -1 of sample 1 .*'user'"):
            collection(wrong)
        return
    with (pytest.warns(UserWarning, match=r"batch 0: id -1 of sample 1 .*'user'.*; 1 more .* row 0")
          if bounds == "warning" else nothing_warned()):
        collection.prefetch(wrong)
        found = collection(wrong)
    right = torch.tensor([[3, 0, 89], [0, 499, 4]])
    assert torch.equal(found, collection.eval()(right))


def test_a_prefetched_batch_is_named_by_its_own_number(make):
    collection = make("scratchpipe", TABLES)
    batches = draw(SEED, 3)
    for batch in batches:
        collection.prefetch(batch.ids)
    with pytest.raises(BatchError, match="batch 3: id 300 of sample 0"):
        collection.prefetch(torch.tensor([[300, 0, 0]]))


@pytest.mark.parametrize("mode", MODES[1:])
def test_counts_by_table(make, mode):
    """The tables' counts add up to the totals; the lookups of each table are exact."""
    collection, made = make(mode, TABLES, share=4), {config.name: 0 for config in TABLES}
    for batch in draw(SEED, 8):
        worth(collection(batch.ids)).backward()
        collection.optimizer.step()
        collection.optimizer.zero_grad()
        for config, (ids, _) in zip(TABLES, batch.ids, strict=True):
            made[config.name] += len(ids)
    collection.flush()
    total, by_table = collection.statistics, collection.table_statistics
    assert {name: each["lookups"] for name, each in by_table.items()} == made
    for field in ("lookups", "fills", "evictions", "bypasses", "rows_moved"):
        assert sum(each[field] for each in by_table.values()) == total[field], field
    for each in by_table.values():
        assert each["fills"] <= min(each["lookups"], each["rows_moved"])
    assert total["hits"] or mode == "hotline"
    assert total["bypasses"] and total["rows_moved"] > total["fills"]


def test_hits_are_those_of_the_card(make):
    """On few lookups a lookup is a hit unless the batch fetches its row."""
    collection = make("scratchpipe", [TableConfig("a", 50, 4), TableConfig("b", 50, 4)])
    for ids, hits in (([[1, 2], [1, 3]], 0), ([[1, 4], [5, 2]], 2), ([[1, 4], [1, 4]], 6)):
        collection(torch.tensor(ids)).sum().backward()
        collection.optimizer.step()
        assert collection.statistics["hits"] == hits


@pytest.mark.parametrize("tables, options, message", [
    ([UNPOOLED[0], TABLES[1]], {}, "'user' is not pooled, and others are"),
    ([UNPOOLED[0], TableConfig("b", 5, 4, "none")], {}, "need one dim, not 4, 8"),
    ([TABLES[0], TABLES[0]], {}, "there are 2 tables named 'user'"),
    ([], {}, "a collection needs at least one table"),
    (TABLES, {"bounds_check_mode": "none"}, "'fatal', 'warning', 'ignore', not 'none'"),
])
def test_wrong_options(tables, options, message):
    with pytest.raises(hotrow.Error, match=message):
        HotEmbeddingBagCollection(tables, None, "resident", **options)


def test_wrong_configs():
    with pytest.raises(hotrow.Error, match="pooling is 'sum', 'mean', 'none', not 'max'"):
        TableConfig("a", 5, 4, "max")
    with pytest.raises(hotrow.Error, match="feature_names is a sequence of names, not 'f'"):
        TableConfig("a", 5, 4, feature_names="f")
    for rows, dim in ((0, 4), (5, 0), (-1, 4)):
        with pytest.raises(hotrow.Error, match=f"one row and one element, not {rows} x {dim}"):
            TableConfig("a", rows, dim)
    assert TableConfig("a", 1, 1).feature_names == ("a",)


def test_weights_go_with_sums(make):
    """As in nn.EmbeddingBag."""
    collection = make("resident", UNPOOLED[:1])
    with pytest.raises(hotrow.Error, match="weights per sample go with pooling 'sum' only"):
        collection(torch.tensor([1, 2]), torch.tensor([0, 2]), torch.ones(2))


def test_slots_by_how_often_rows_are_accessed(make):
    """The most accessed rows over all tables; rows that nobody accesses get none."""
    collection = make("freqcache", TABLES)
    counts = {"user": np.arange(300) % 7, "place": np.full(90, 6)}
    assert collection.learn(ids_freq_mapping=counts, warmup_ratio=0.5) == 128  # of 256 slots
    wanted = [("user", row) for row in range(6, 300, 7)] + [("place", row) for row in range(90)]

    def resident(collection):
        return sorted((group.configs[table].name, row)
                      for storage, group in zip(collection.store.storages,
                                                collection.store.groups, strict=True)
                      for rows in [group.tables.locate(storage.resident)]
                      for table, row in zip(rows.table, rows.row, strict=True))

    found = resident(collection)
    assert set(found) <= set(wanted) and {("user", row) for row in range(6, 300, 7)} <= set(found)
    few = np.zeros(300, np.int64)
    few[[5, 17]] = 1
    for counted in (few, few.astype(np.uint64), few / 2):
        assert collection.learn(ids_freq_mapping={"user": counted}) == 2
        assert resident(collection) == [("user", 5), ("user", 17)]
    with pytest.raises(hotrow.Error, match="there is no table 'shop': expected some of user, item"):
        collection.learn({"shop": [1]})


@pytest.mark.parametrize("factor, slots", [(1.0, 256), (0.2, 128), (0.1, 64)])
def test_cache_load_factor(make, factor, slots):
    """Of 890 rows, in the largest power of two that is no more."""
    collection = make("scratchpipe", TABLES, cache_load_factor=factor)
    assert collection.store.slots == slots <= max(256 * (factor == 1), factor * 890)
    with pytest.raises(hotrow.Error, match=r"at least one slot, not 0\.00089"):
        make("scratchpipe", TABLES, cache_load_factor=1e-6)


def test_accesses_are_counted_not_rows(make):
    """A row looked up often in one batch is more frequent than one of several batches."""
    collection = make("freqcache", [TableConfig("a", 300, 4)])
    for batch in ([[7]] * 9 + [[3]], [[3]], [[3], [4]]):
        collection.observe(torch.tensor(batch))
    hot = collection.store.device.harvest(2)
    assert sorted(zip(hot.count.tolist(), hot.row.tolist(), strict=True)) == [(3, 3), (9, 7)]


@pytest.mark.slow
def test_rows_beyond_what_float32_tells_apart(make):
    first = 1 << 24
    tables = [TableConfig("a", first + 4, 1, dtype=torch.float32)]
    collection = make("scratchpipe", tables, share=4)
    ids = torch.tensor([[first], [first + 1], [first + 2], [first + 3]])
    before = collection.embeddings["a"].weight.detach()[first:].clone()
    for number in range(4):
        (collection(ids)[number] * (number + 1)).sum().backward()
    collection.optimizer.step()
    collection.flush()
    moved = before - collection.embeddings["a"].weight.detach()[first:]
    torch.testing.assert_close(moved, torch.tensor([[0.2], [0.4], [0.6], [0.8]]))


def test_keys_of_results():
    """Those of TorchRec: a feature of several tables has the table's name, too."""
    configs = [TableConfig("one", 9, 4), TableConfig("two", 9, 4), TableConfig("three", 9, 4)]
    assert outputs._keys(configs, [(0, "a"), (1, "b"), (1, "a")]) == ["a@one", "b", "a@two"]
    assert outputs._keys(configs, [(0, "a"), (1, "a"), (2, "a")]) == ["a@one", "a@two", "a@three"]
