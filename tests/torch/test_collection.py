"""HotEmbeddingBagCollection beside nn.EmbeddingBag: results, gradients, optimizers, semantics."""

from dataclasses import replace
from types import SimpleNamespace

import hotrow
import numpy as np
import pytest
import torch
from hotrow.contract.errors import BatchError
from hotrow.torch import (
    SGD,
    Adagrad,
    HotEmbeddingBag,
    HotEmbeddingBagCollection,
    Options,
    TableConfig,
)
from hotrow.torch.features.configs import TableGroup
from torch import nn

from tests.torch.training import PLANNING, TABLES, check_beside, draw, worth

MODES = ("resident", "scratchpipe", "freqcache", "hotline")


@pytest.fixture(params=MODES)
def mode(request):
    return request.param


@pytest.fixture
def make():
    """Collections, closed at the end with their devices."""
    made = []

    def build(mode="scratchpipe", tables=TABLES, optimizer="sgd", lr=0.2, transport="model",
              **options):
        device = None if mode == "resident" else hotrow.open(transport, config=PLANNING)
        made.append((HotEmbeddingBagCollection(tables, device, mode, optimizer, lr,
                                               seed=3, **options), device))
        return made[-1][0]

    yield build
    for collection, device in made:
        collection.close()
        if device is not None:
            device.close()


def plain(collection):
    """nn.EmbeddingBags with the collection's rows."""
    collection.flush()
    return nn.ModuleList(
        nn.EmbeddingBag.from_pretrained(
            collection.contents.table(config.name)[0].clone(), freeze=False, mode=config.pooling)
        for config in collection.tables)


def outputs(bags, batch):
    return torch.cat([bag(*ids) for bag, ids in zip(bags, batch.ids, strict=True)], dim=1)


@pytest.mark.parametrize("optimizer, beside", [
    ("sgd", lambda bags: torch.optim.SGD(bags, 0.2)),
    (Adagrad(0.2, initial=0.1), lambda bags: torch.optim.Adagrad(
        bags, 0.2, initial_accumulator_value=0.1)),
], ids=["sgd", "adagrad"])
def test_trains_as_embedding_bags_do(make, mode, optimizer, beside):
    collection = make(mode, optimizer=optimizer)
    bags = plain(collection)
    check_beside(collection, bags, beside(bags.parameters()), draw(4, 6),
                 lambda batch: outputs(bags, batch), TABLES)


def test_every_form_of_input_is_one_batch(make):
    tables = [TableConfig("a", 50, 4), TableConfig("b", 60, 8), TableConfig("c", 50, 4)]
    collection = make(tables=tables, share=1).eval()
    ids = torch.randint(0, 50, (6, 3))
    expected = collection(ids)
    assert expected.shape == (6, 16)
    ends = torch.arange(6)
    for form in ([(ids[:, each], ends) for each in range(3)],
                 [(ids[:, each].int(), ends) for each in range(3)], ids.numpy(), ids.int(),
                 ids.tolist() and ids.numpy().astype(np.uint32).astype(np.int64)):
        assert torch.equal(collection(form), expected)
    assert torch.equal(collection(ids.T.reshape(-1), torch.arange(19)), expected)
    found = collection(Keyed(["c", "a", "b"], ids[:, [2, 0, 1]]))
    assert torch.equal(found if isinstance(found, torch.Tensor) else found.values(), expected)


class Keyed:
    """The interface of a KeyedJaggedTensor that a collection uses."""

    def __init__(self, keys, ids):
        self._keys, self._ids = keys, ids

    def keys(self):
        return self._keys

    def values(self):
        return self._ids.T.reshape(-1)

    def lengths(self):
        return torch.ones(self._ids.numel(), dtype=torch.int32)

    def weights_or_none(self):
        return None


def test_inputs_of_another_form_are_refused(make):
    """A JaggedTensor has lengths and no keys, a dict has keys and no lengths."""
    ids = torch.zeros(4, dtype=torch.int64)
    jagged = SimpleNamespace(values=lambda: ids, lengths=lambda: torch.ones_like(ids))
    for inputs in ({"user": ids}, jagged):
        with pytest.raises(BatchError, match="expected ids as a tensor or an array"):
            make()(inputs)


def test_torchrec(make):
    torchrec = pytest.importorskip("torchrec", reason="torchrec is not installed")
    collection = make().eval()
    (batch,) = draw(3, 1)
    keyed = torchrec.KeyedJaggedTensor.from_offsets_sync(
        keys=[config.name for config in TABLES], values=torch.cat([ids for ids, _ in batch.ids]),
        offsets=torch.cat((torch.zeros(1, dtype=torch.int64), torch.cat([
            torch.diff(offsets, append=torch.tensor([len(ids)])) for ids, offsets in batch.ids
        ]).cumsum(0))))
    assert torch.equal(collection(keyed).values(), collection(batch.ids))


def test_weights_per_sample(make, mode):
    tables = [TableConfig("a", 40, 8)]
    collection = make(mode, tables)
    ids, offsets = torch.tensor([3, 5, 3, 7, 9]), torch.tensor([0, 3, 5])
    bag = nn.EmbeddingBag.from_pretrained(collection.contents.table("a")[0].clone(), freeze=False,
                                          mode="sum")
    weights = [torch.tensor([0.5, -1, 2, 0.25, 3]).requires_grad_() for _ in range(2)]
    worth(collection(ids, offsets, weights[0])).backward()
    worth(bag(ids, offsets[:-1], weights[1])).backward()
    torch.testing.assert_close(weights[0].grad, weights[1].grad)
    (staged,) = collection.gradients()
    rows = collection.staging.rows[0].rows
    torch.testing.assert_close(staged.grad, bag.weight.grad[rows])
    collection.optimizer.step()
    with pytest.raises(hotrow.Error, match="go with pooling 'sum' only"):
        make("resident", [TableConfig("a", 40, 8, "mean")])(ids, offsets, weights[0])


@pytest.mark.parametrize("dim", [1, 3, 4, 10])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_any_dim_and_element(make, dim, dtype):
    tables = [TableConfig("a", 90, dim, dtype=dtype), TableConfig("b", 40, 8, dtype=dtype)]
    ends = []
    for mode in ("resident", "scratchpipe"):
        collection = make(mode, tables, "rowwise_adagrad", **(
            {} if mode == "resident" else {"share": 4}))
        for batch in draw(2, 5, tables):
            worth(collection(batch.ids)).backward()
            collection.optimizer.step()
        collection.flush()
        ends.append(collection.sha256())
    assert ends[0] == ends[1]


def test_eval_reads_what_was_trained_and_leaves_no_trace(make, mode):
    collection = make(mode)
    batches, bags = draw(5, 8), plain(collection)
    other = torch.optim.SGD(bags.parameters(), 0.2)
    for number, batch in enumerate(batches):
        if number + 1 < len(batches):  # the next one is on its way
            collection.prefetch(batch.ids)
            collection.prefetch(batches[number + 1].ids) if number == 0 else None
        before = collection.statistics
        for training in (False, True):
            collection.train(training)
            with torch.no_grad():
                torch.testing.assert_close(collection(batches[-1].ids),
                                           outputs(bags, batches[-1]), rtol=1e-5, atol=1e-6)
        assert collection.statistics == before
        if number == 0:
            break
    collection.abandon()
    collection.train()
    for batch in batches:
        for result, steps in ((collection(batch.ids), collection.optimizer),
                              (outputs(bags, batch), other)):
            steps.zero_grad()
            worth(result).backward()
            steps.step()
        collection.eval()
        figures = collection.statistics
        torch.testing.assert_close(collection(batches[0].ids), outputs(bags, batches[0]),
                                   rtol=1e-5, atol=1e-6)
        assert collection.statistics == figures
        collection.train()


def test_clipping_accumulation_and_schedules(make, mode):
    collection = make(mode)
    bags = plain(collection)
    other = torch.optim.SGD(bags.parameters(), 0.2)
    plans = [torch.optim.lr_scheduler.StepLR(each, 1, 0.5)
             for each in (collection.optimizer, other)]
    for number, batch in enumerate(draw(6, 8)):
        worth(collection(batch.ids)).backward()
        worth(outputs(bags, batch)).backward()
        if number % 2:
            norms = [torch.nn.utils.clip_grad_norm_(each, 0.3)
                     for each in (collection.gradients(), list(bags.parameters()))]
            torch.testing.assert_close(*norms, rtol=1e-5, atol=1e-6)
            for steps, plan in zip((collection.optimizer, other), plans, strict=True):
                steps.step()
                steps.zero_grad()
                plan.step()
    assert collection.optimizer.param_groups[0]["lr"] == 0.2 / 16
    collection.flush()
    for config, bag in zip(TABLES, bags, strict=True):
        torch.testing.assert_close(collection.contents.table(config.name)[0], bag.weight.detach(),
                                   rtol=1e-5, atol=1e-6)


def test_a_scaler_skips_the_step_that_overflowed(make, mode):
    collection = make(mode)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=1000)
    (batch,) = draw(7, 1)
    collection.flush()
    before = collection.sha256()
    for factor, moved in ((float("inf"), False), (1.0, True)):
        scaler.scale(worth(collection(batch.ids)) * factor).backward()
        scaler.step(collection.optimizer)
        scaler.update()
        collection.optimizer.zero_grad()
        collection.flush()
        assert (collection.sha256() != before) == moved
    assert scaler.get_scale() == 4.0


def test_gradients_that_are_no_numbers(make, mode):
    collection = make(mode)
    (batch, other) = draw(7, 2)
    worth(collection(batch.ids)).backward()
    collection.optimizer.step()
    collection.flush()
    before = collection.sha256()
    (worth(collection(other.ids)) * float("nan")).backward()
    with pytest.raises(hotrow.Error, match=r"batch 1: the gradient of row \d+ of table '\w+' is "
                       "not finite, and nothing was applied"):
        collection.optimizer.step()
    collection.optimizer.zero_grad()
    collection.flush()
    assert collection.sha256() == before


def test_a_gradient_changed_behind_autograd_is_checked(make):
    collection, (batch,) = make(), draw(7, 1)
    worth(collection(batch.ids)).backward()
    collection.gradients()[0].grad.data[0] = float("nan")
    with pytest.raises(hotrow.Error, match="is not finite, and nothing was applied"):
        collection.optimizer.step()


@pytest.mark.slow
def test_state_goes_from_one_collection_to_another(make, mode):
    batches = draw(8, 9)
    whole, first = (make(mode, optimizer="rowwise_adagrad") for _ in range(2))
    for number, batch in enumerate(batches):
        for each in (whole, first)[:1 + (number < 4)]:
            worth(each(batch.ids)).backward()
            each.optimizer.step()
    second = make("resident" if mode == "scratchpipe" else "scratchpipe",
                  optimizer="rowwise_adagrad")
    for batch in batches[:2]:  # something to forget
        worth(second(batch.ids)).backward()
        second.optimizer.step()
    state = first.state_dict()
    assert list(state) == [f"embedding_bags.{config.name}.weight" for config in TABLES]
    second.load_state_dict(state)
    second.optimizer.load_state_dict(first.optimizer.state_dict())
    for batch in batches[4:]:
        worth(second(batch.ids)).backward()
        second.optimizer.step()
    for each in (whole, second):
        each.flush()
    assert whole.sha256() == second.sha256()


def test_an_empty_batch_and_empty_bags(make, mode):
    collection = make(mode)
    none = torch.empty(0, dtype=torch.int64)
    empty = [(none, torch.zeros(3, dtype=torch.int64))] * 3
    pooled = collection(empty)
    assert pooled.shape == (3, 22) and not pooled.any()
    pooled.sum().backward()
    collection.optimizer.step()
    assert collection([(none, none)] * 3).shape == (0, 22)


@pytest.mark.parametrize("ids, message", [
    ([[0, 0, 0], [0, 700, 0]], "batch 0: id 700 of sample 1 is no row of table 'item', which has "
     "rows 0 to 499"),
    ([[0, -1, 0]], "id -1 of sample 0"),
    ([[0, 1]], r"expected ids as \[samples, 3 features\], got \[1, 2\]"),
    ([[0.5, 1, 2]], "expected ids as integers, got torch.float"),
])
def test_wrong_ids(make, mode, ids, message):
    with pytest.raises(hotrow.Error, match=message):
        make(mode)(torch.tensor(ids))


def test_a_batch_larger_than_the_card_takes(make):
    with pytest.raises(hotrow.Error, match="1025 samples: this card takes at most 1024"):
        make()(torch.zeros(1025, 3, dtype=torch.int64))


def test_other_batches_than_prefetched_are_refused(make):
    collection, (one, other) = make(), draw(3, 2)
    collection.prefetch(one.ids)
    with pytest.raises(hotrow.Error, match="batch 0 is not the one that was prefetched"):
        collection(other.ids)


@pytest.mark.slow
def test_batches_that_never_step_are_refused(make):
    collection, (batch,) = make(), draw(3, 1)
    with pytest.raises(hotrow.Error, match="have not trained, and this card follows 64"):
        for _ in range(80):
            worth(collection(batch.ids)).backward()


@pytest.mark.slow
@pytest.mark.parametrize("ids", ["rows", "any"])
@pytest.mark.parametrize("following", [0, 1])
@pytest.mark.parametrize("release", ["step", "zero_grad", "skip"])
@pytest.mark.parametrize("mode", ["scratchpipe", "freqcache"])
def test_a_batch_that_is_refused_leaves_no_trace(make, mode, release, following, ids):
    tables = [replace(config, ids=ids) for config in TABLES]
    batches = draw(3, 70)
    collection, beside = make(mode, tables, transport="cpu"), make("resident", tables)
    with pytest.raises(hotrow.Error, match=r"step\(\) of the collection's optimizer"):
        for refused, batch in enumerate(batches):  # noqa: B007
            worth(collection(batch.ids)).backward()
    for batch in batches[:refused]:
        worth(beside(batch.ids)).backward()
    for each in (collection, beside):
        each.optimizer.zero_grad() if release == "zero_grad" else each.optimizer.step()
    if release == "skip":
        collection.skip()  # without effect: nothing was prefetched
    for batch in batches[refused + following:refused + following + 4]:
        for each in (collection, beside):
            worth(each(batch.ids)).backward()
            each.optimizer.step()
    assert collection.sha256() == beside.sha256()
    if ids == "any":
        assert all(collection.id_maps.maps[number].digest() == each.digest()
                   for number, each in beside.id_maps.maps.items())


@pytest.mark.parametrize("options, message", [
    ({"mode": "fast"}, "mode is resident, .*, near_memory, not 'fast'"),
    ({"mode": "resident", "device": "model"}, "mode resident takes no device"),
    ({"mode": "hotline", "device": 3}, "device is an open hotrow.Device or the name"),
])
def test_wrong_options(options, message):
    with pytest.raises(hotrow.Error, match=message):
        HotEmbeddingBagCollection(TABLES, **options)


@pytest.mark.parametrize("transport", ["model", "cpu"])
@pytest.mark.parametrize("options", [
    {}, {"share": 4}, {"mode": "freqcache"}, {"mode": "hotline"},
    {"mode": "hotline", "cold": "pooled"}])
def test_a_device_has_nothing_of_a_closed_collection(transport, options):
    tables = [replace(config, embedding_dim=8) for config in TABLES]
    with hotrow.open(transport, config=PLANNING) as device:
        def held():
            """What the device has of its users, apart from the driver's own memory."""
            return device.tables, device._commands.tables.in_directory, [
                buffer for buffer in filter(None, device.regions._buffers)
                if not buffer.name.startswith(("staging", "results", "rings"))]

        for _ in range(2):
            with HotEmbeddingBagCollection(tables, device, **options) as collection:
                for batch in draw(1, 3):
                    worth(collection(batch.ids)).backward()
                    collection.optimizer.step()
            assert held() == ((), set(), [])
            collection.close()  # once is enough


def test_memory_beside_the_tables(make):
    collection, (batch,) = make(share=2, tables=TABLES[:2]), draw(3, 1, TABLES[:2])
    worth(collection(batch.ids)).backward()
    memory = collection.memory
    assert memory["slots"] == collection.store.slots * 32 == 128 * 32
    rows = len(collection.staging.rows[0].rows)
    assert memory["gradients"] == rows * (32 + 8) and memory["staging"] == 0
    assert 65 < memory["metadata_bits_per_slot"] < 128
    assert make("resident").memory == {}


def test_rows_beyond_what_a_float_tells_apart(make):
    """Ids stay integers: as float32, 2**24 and 2**24 + 1 would be one row."""
    big, rule = 2**24, SGD(0.5)
    config = TableConfig("big", big + 3, 4)
    group = TableGroup([0], [config], rule)  # its memory is touched where rows are used
    collection = make("scratchpipe", [config], rule, groups=[group])
    weights = collection.embeddings["big"].weight.detach()
    weights[big:] = 1.0
    collection(torch.tensor([[big + 1], [big + 1], [big + 2]])).sum().backward()
    collection.optimizer.step()
    collection.flush()
    assert weights[big:, 0].tolist() == [1.0, 0.0, 0.5]


def test_accesses_are_counted_not_rows(make):
    """A row that one batch looks up often is hotter than one that two batches look up once."""
    collection = make("freqcache", TABLES[:2])
    for ids in ([[7, 9]] * 5 + [[8, 9]], [[8, 9]]):
        worth(collection(torch.tensor(ids))).backward()
        collection.optimizer.step()
    hot = collection.store.device.harvest(3)
    assert hot.row.tolist() == [9, 7, 8] and hot.count.tolist() == [7, 5, 2]


def test_a_card_without_a_planner():
    with hotrow.open("model", config=replace(PLANNING, planner=False)) as device:
        with pytest.raises(hotrow.Error, match="this card has no planner"):
            HotEmbeddingBagCollection(TABLES, device)
        collection = HotEmbeddingBagCollection(TABLES, device, "hotline")
        with pytest.raises(hotrow.Error, match=r"the device has tables already \(3\)"):
            HotEmbeddingBagCollection(TABLES, device, "hotline")
        collection.close()


def test_warm_rows_by_name(make):
    collection = make("freqcache")
    ranked = {"user": range(100), "item": range(100)}
    assert collection.learn(ranked, warmup_ratio=0.25) == 64
    (batch,) = draw(3, 1)
    worth(collection(batch.ids)).backward()
    assert collection.statistics["hits"] > 0
    with pytest.raises(hotrow.Error, match="1 batches are in flight"):
        collection.learn(ranked)


@pytest.mark.parametrize("options", [{}, {"mode": "sum", "include_last_offset": True},
                                     {"mode": "sum", "padding_idx": 2}], ids=str)
def test_embedding_bag(options):
    with hotrow.open("model", config=PLANNING) as device:
        bag = HotEmbeddingBag(60, 5, device=device, lr=0.1, seed=2, **options)
        other = nn.EmbeddingBag(60, 5, **options)
        other.load_state_dict(bag.state_dict())
        steps = torch.optim.SGD(other.parameters(), 0.1)
        for number in range(4):
            torch.manual_seed(number)
            ids = torch.randint(0, 60, (4, 3))
            offsets = torch.tensor([0, 3, 3, 12])[:None if "include_last_offset" in options else 3]
            for inputs in ((ids,), (ids.ravel(), offsets)):
                pooled, expected = bag(*inputs), other(*inputs)
                torch.testing.assert_close(pooled, expected)
                for result, each in ((pooled, bag.optimizer), (expected, steps)):
                    each.zero_grad()
                    worth(result).backward()
                    each.step()
        torch.testing.assert_close(bag.weight, other.weight.detach())
        bag.collection.close()


@pytest.mark.parametrize("options, mode", [
    ({}, "resident"), ({"optimizer": "adam", "seed": 3, "depth": 2}, "resident"),
    ({"device": "model", "preset": "tiny"}, "scratchpipe"), ({"preset": "tiny"}, "scratchpipe"),
    ({"policy": "lru"}, "scratchpipe"), ({"cache_load_factor": 0.5}, "scratchpipe"),
    ({"path": True}, "scratchpipe")], ids=str)
def test_the_mode_where_none_is_named(options, mode, tmp_path, caplog):
    path = tmp_path / "t" if options.pop("path", False) else None
    with caplog.at_level("INFO", "hotrow.torch"), HotEmbeddingBagCollection(
        [TableConfig("a", 1 << 17, 8, path=path)], **options) as tables:
        assert tables.mode == mode
    assert [f"mode {mode}, because" in record.getMessage() for record in caplog.records] == [True]


def test_options_by_name_are_those_of_the_dataclass():
    tables = [TableConfig("a", 50, 8)]
    with (HotEmbeddingBagCollection(tables, options=Options(seed=3)) as one,
          HotEmbeddingBagCollection(tables, options=Options(depth=2), seed=3) as other):
        assert other.options == Options(seed=3, depth=2)
        assert torch.equal(one.embedding_bags["a"].weight, other.embedding_bags["a"].weight)
    with pytest.raises(TypeError, match=r"Options.*unexpected keyword argument 'sead'"):
        HotEmbeddingBagCollection(tables, sead=3)
