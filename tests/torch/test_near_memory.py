"""Mode `near_memory`: the card has the tables, pools bags and takes the step: resident's bits."""

from dataclasses import replace

import hotrow
import pytest
import torch
from hotrow.torch import (
    SGD,
    Adam,
    HotEmbeddingBagCollection,
    Options,
    TableConfig,
    TrainPipeline,
    convert,
)
from hotrow.torch.store.near_memory import NearMemoryStore, check_near
from hotrow.torch.store.resident import ResidentStore
from hotrow_rtl.config import preset
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.torch.test_on_card import beside, linked
from tests.torch.training import draw, train, worth

TABLES = (TableConfig("user", 300, 8), TableConfig("item", 500, 8, "mean"),
          TableConfig("place", 90, 4))
SUMS = (TableConfig("user", 300, 8), TableConfig("item", 500, 8))
OPTIMIZERS = ("sgd", "rowwise_adagrad")


def opened(device=None, tables=TABLES, mode="near_memory", optimizer="sgd", **options):
    return HotEmbeddingBagCollection(tables, device, mode, optimizer, 0.2,
                                     options=Options(seed=3, **options))


def contents(collection):
    """Copies of all rows and their state."""
    return {**collection.state_dict(), **collection.optimizer.state_dict()["state"].get(0, {})}


def check_equal(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), name


def beside_resident(device, run, tables=SUMS, optimizer="sgd"):
    """Check that `run` of a collection returns the same, and leaves the same, in both modes."""
    ends = []
    for mode, card in (("resident", None), ("near_memory", device)):
        with opened(card, tables, mode, optimizer) as collection:
            ends.append((run(collection), contents(collection)))
            if mode == "near_memory":
                assert {"POOL", "UPDATE"} <= device.statistics.keys()
    (expected, rows), (found, others) = ends
    check_equal(others, rows)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


def step(collection, inputs, *more):
    """Train on a batch; its embeddings before."""
    found = collection(inputs, *more)
    worth(found).backward()
    collection.optimizer.step()
    return found.detach()


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("longest, options", [
    (20, {"transport": "cpu", "ahead": 1}), (20, {"transport": "model"}),
    (8, {"transport": "model", "ahead": 3, "every": 3})], ids=str)
def test_tables_state_and_losses_are_residents(optimizer, longest, options):
    batches = draw(1, 20, TABLES, longest=longest)
    resident = train(batches, tables=TABLES, optimizer=optimizer, every=options.get("every", 1))
    found = train(batches, "near_memory", TABLES, optimizer, **options)
    assert (found.sha256, found.losses) == (resident.sha256, resident.losses)
    assert max(found.losses) < 10, "the run trains"


@pytest.mark.slow
def test_on_the_hardware():
    batches = draw(2, 20, TABLES, samples=6, longest=20)
    resident = train(batches, tables=TABLES, optimizer="rowwise_adagrad")
    found = train(batches, "near_memory", TABLES, "rowwise_adagrad", transport="sim", ahead=1)
    assert (found.sha256, found.losses) == (resident.sha256, resident.losses)


@pytest.mark.slow
@pytest.mark.parametrize("make", [linked, beside])
def test_tables_in_the_memory_of_a_card(make, monkeypatch):
    batches = draw(3, 8, TABLES)
    resident = train(batches, tables=TABLES, optimizer="rowwise_adagrad")
    monkeypatch.setattr(hotrow, "open", lambda _, config: make(config))
    found = train(batches, "near_memory", TABLES, "rowwise_adagrad", ahead=1)
    assert (found.sha256, found.losses) == (resident.sha256, resident.losses)


def test_one_id_a_bag(device):
    ids = torch.randint(300, (16, 2), generator=torch.Generator().manual_seed(1))
    beside_resident(device, lambda each: [step(each, ids - turn % 2) for turn in range(3)])


def test_the_card_reads_the_ids(device, monkeypatch):
    monkeypatch.delattr(hotrow.Device, "stage_rows")
    batches = draw(5, 2, SUMS, longest=5)
    beside_resident(device, lambda each: [step(each, drawn.ids) for drawn in batches])


def test_a_card_that_reads_lists():
    with hotrow.open("model", config=replace(preset("tiny"), arithmetic=1)) as card:
        test_one_id_a_bag(card)


def test_batches_without_lookups_and_without_samples(device):
    """Also bags that are all empty, and tables of which none is looked up."""
    none, some = torch.empty(0, dtype=torch.int64), torch.tensor([3, 3])

    def run(collection):
        found = [step(collection, torch.empty(0, 2, dtype=torch.int64)),
                 step(collection, none, torch.zeros(5).long())]
        pairs = [(none, torch.tensor([0, 0])), (some, torch.tensor([0, 0]))]
        collection.prefetch(pairs)
        return [*found, step(collection, pairs)]

    beside_resident(device, run)


def test_weights(device):
    """Also with a gradient of their own."""
    ids, offsets = torch.tensor([1, 2, 2, 9, 1, 1]), torch.tensor([0, 2, 2, 4, 6])
    weights = torch.tensor([0.5, -1.25, 3, 0.1, 2, 2])

    def run(collection):
        found = [step(collection, ids, offsets, weights)]
        own = weights.clone().requires_grad_()
        found.append(step(collection, ids, offsets, own))
        return [*found, own.grad]

    beside_resident(device, run)


@pytest.mark.parametrize("early", [False, True])
def test_clipped_gradients(device, early):
    """The norm is that of the rows' gradients, whether a caller asks for these before or after
    backward."""
    ids = torch.tensor([[1, 2], [1, 7], [3, 7]])

    def run(collection):
        tensors = collection.gradients() if early else None
        worth(collection(ids)).backward()
        norm = nn.utils.clip_grad_norm_(tensors or collection.gradients(), 1e-3)
        collection.optimizer.step()
        return [norm, step(collection, ids)]

    beside_resident(device, run, optimizer="rowwise_adagrad")


def test_gradients_that_add_up(device):
    """Of two backwards of one step, and of one lookup after another step."""
    ids = torch.tensor([[1, 2], [1, 7], [3, 7]])

    def run(collection):
        for batch in (ids, ids + 1):
            worth(collection(batch)).backward()
        collection.optimizer.step()
        collection.optimizer.step()
        worth(collection(ids)).backward()
        collection.optimizer.zero_grad()
        return [step(collection, ids + 2)]

    beside_resident(device, run)


def test_bags_that_backward_repeats(device):
    ends = []
    for mode, card in (("resident", None), ("near_memory", device)):
        torch.manual_seed(1)
        model = nn.ModuleList(nn.EmbeddingBag(50, 8, mode="sum") for _ in range(3))
        tables = convert(model, optimizer="sgd", lr=0.1, mode=mode, device=card)
        for seed in range(3):
            ids = torch.randint(50, (6, 3), generator=torch.Generator().manual_seed(seed))
            tables.prefetch(tables.batches.bags(ids))
            sums = [bag(ids[:, [number]]) for number, bag in enumerate(model) if number != 1]
            again = checkpoint(lambda part, bag=model[1]: bag(part).exp(), ids[:, [1]],
                               use_reentrant=False)
            (sums[0] * again * sums[1]).sum().backward()
            tables.optimizer.step()
        ends.append(contents(tables))
        tables.close()
    check_equal(*ends)


def test_a_pipeline_sends_rows_ahead(device):
    batches = [torch.tensor([[number, 2], [1, number]]) for number in range(5)]
    ahead = []

    def run(collection):
        found = []
        with TrainPipeline(batches, collection, lambda batch: batch) as pipeline:
            for batch in pipeline:
                ahead.append(collection.store.waiting)
                if int(batch[0, 0]) == 3:
                    pipeline.skip()
                else:
                    found.append(step(collection, batch))
        return found

    beside_resident(device, run)
    assert max(ahead) == 2
    assert device.statistics["POOL"].commands == 4


def test_a_checkpoint_and_evaluation(device):
    ids = torch.tensor([[1, 2], [3, 7]])
    with opened(device, SUMS) as collection, opened(None, SUMS, "resident") as other:
        step(collection, ids)
        other.load_state_dict(collection.state_dict())
        other.optimizer.load_state_dict(collection.optimizer.state_dict())
        step(collection, ids)
        step(other, ids)
        check_equal(contents(collection), contents(other))
        before = contents(other)
        other.eval(), collection.eval()
        assert torch.equal(collection(ids), other(ids))
        collection.load_state_dict({name: value + 1 for name, value in before.items()})
        assert torch.equal(collection(ids), other(ids) + 1)
        assert collection.statistics["lookups"] == 8, "of batches that trained"
    assert torch.equal(collection(ids), other(ids) + 1), "closed, the rows are in the tables"
    with pytest.raises(hotrow.Error, match="is closed"):
        collection.train()(ids)


def test_writes_into_a_table_reach_the_card():
    ids = torch.tensor([[1, 2], [3, 2]])
    with linked() as device, opened(device, SUMS) as collection:
        step(collection, ids)
        with torch.no_grad():
            collection.embedding_bags["user"].weight[3] = 7
        assert (step(collection, ids)[1, :8] == 7).all()
        access = device.transport.memory.access
        before = access.sent + access.fetched
        step(collection, ids)
        assert access.sent + access.fetched - before < 1500 < 300 * 8 * 4


def test_a_step_that_fails_is_left_half_done(device, monkeypatch):
    """Of two groups the second fails: nothing trains until rows are loaded."""
    with opened(device) as collection:
        kept = {name: value.clone() for name, value in collection.state_dict().items()}
        update, calls = device.update, []

        def fail(*given, **named):
            calls.append(given)
            if len(calls) > 1:
                raise hotrow.DeviceError("the queue has stopped")
            return update(*given, **named)

        worth(collection(torch.tensor([[1, 2, 3]]))).backward()
        monkeypatch.setattr(device, "update", fail)
        with pytest.raises(hotrow.DeviceError, match="has stopped"):
            collection.optimizer.step()
        monkeypatch.undo()
        with pytest.raises(hotrow.Error, match="left some rows before it"):
            collection(torch.tensor([[1, 2, 3]]))
        collection.load_state_dict(kept)
        step(collection, torch.tensor([[1, 2, 3]]))


def test_a_gradient_that_is_not_finite_is_named(device):
    with opened(device, SUMS) as collection:
        found = collection(torch.tensor([[7, 1], [8, 1]]))
        (found * torch.tensor([[1.0], [float("nan")]])).sum().backward()
        with pytest.raises(hotrow.Error, match="row 8 of table 'user' is not finite"):
            collection.optimizer.step()


def test_what_the_card_wrote_and_cannot_be_read_is_named(monkeypatch):
    device = beside()
    collection = opened(device, SUMS)
    step(collection, torch.tensor([[1, 2]]))

    def refuse(*_, **__):
        raise hotrow.DeviceError("the queue has stopped")

    monkeypatch.setattr(device._commands, "submit", refuse)
    with pytest.raises(hotrow.TransportError, match="rows of 'user', 'item' that have trained"):
        collection.flush()


def test_tables_that_do_not_fit_the_card_are_refused():
    with beside(memory_bytes=1 << 14) as device, pytest.raises(
            hotrow.RegistrationError, match="no room"):
        opened(device, SUMS)


def test_the_cpu_is_resident():
    with opened("cpu") as collection, opened() as other:
        assert isinstance(collection.store, ResidentStore)
        assert isinstance(other.store, ResidentStore)
    with opened("model") as collection:
        assert isinstance(collection.store, NearMemoryStore)


@pytest.mark.parametrize("table, options, message", [
    (TableConfig("a", 60, 6), {}, "'a': the card pools float32 rows whose dim is a multiple of 4"),
    (TableConfig("a", 60, 8, dtype=torch.float16), {}, "not torch.float16 rows"),
    (TableConfig("a", 60, 8, "none"), {}, "'a' is not pooled"),
    (TableConfig("a", 60, 8, ids="any"), {}, "'a' has ids='any'"),
    (TableConfig("a", 60, 8, path="never"), {}, "'a' is on disk"),
    (TableConfig("a", 60, 8), {"optimizer": Adam(0.1)}, "sgd or rowwise_adagrad, not adam"),
    (TableConfig("a", 60, 8), {"optimizer": SGD(0.1, weight_decay=0.1)},
     "not sgd with weight decay"),
    (TableConfig("a", 60, 8), {"optimizer": SGD(0.1, rounding_seed=1)}, "stochastic rounding"),
    (TableConfig("a", 60, 8), {"cold": "pooled"}, "near_memory has no cold rows"),
])
@pytest.mark.parametrize("transport", ["cpu", "model"])
def test_what_the_card_lacks_is_refused(transport, table, options, message):
    """At the construction, also where the host's cores are the card."""
    with pytest.raises(hotrow.Error, match=message):
        opened(transport, [table], **{"optimizer": "sgd", **options})


def test_what_is_refused_of_a_device_a_step_and_ranks(device):
    with (hotrow.open("model", config=replace(preset("tiny"), arithmetic=0)) as plain,
          pytest.raises(hotrow.Error, match="no arithmetic, and rows of mode near_memory")):
        opened(plain, SUMS)
    with pytest.raises(hotrow.Error, match="pools whole bags on one card"):
        check_near(SUMS, SGD(0.1), several_ranks=True)
    with opened(device, SUMS) as collection:
        with pytest.raises(hotrow.Error, match="has tables already"):
            opened(device, SUMS)
        worth(collection(torch.tensor([[1, 2]]))).backward()
        collection.optimizer.param_groups[0]["weight_decay"] = 0.5
        with pytest.raises(hotrow.Error, match="with weight decay"):
            collection.optimizer.step()
