"""Calls on a whole model reach the rows, or are refused."""

import copy
import io
import pickle
import threading

import pytest
import torch
from hotrow.contract.errors import Error
from hotrow.torch import HotEmbeddingBagCollection, Options, TableConfig, convert
from torch import nn

from tests.torch.bags import IDS

MODES = ["resident", "scratchpipe"]


def converted(mode="resident", freeze=False, **options):
    """A model of two bags, one of which may be frozen beforehand, and its tables."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.EmbeddingBag(50, 8, mode="sum"), nn.Linear(8, 8))
    model.append(nn.ModuleDict({"other": nn.EmbeddingBag(50, 8, mode="sum")}))
    model[0].weight.requires_grad_(not freeze)
    card = {} if mode == "resident" else {"device": "model", "preset": "tiny"}
    return model, convert(model, mode=mode, lr=0.1, **card, **options)


def backward(model):
    loss = (model[1](model[0](IDS)) * model[2]["other"](IDS)).square().sum()
    loss.backward()
    return loss.detach()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("before", [True, False])
def test_frozen_rows_stay(mode, before):
    model, tables = converted(mode, freeze=before)
    if not before:
        model[0].requires_grad_(False)
    weights = [model[0].weight.clone(), model[2]["other"].weight.clone()]
    backward(model)
    tables.optimizer.step()
    assert torch.equal(model[0].weight, weights[0])
    assert not torch.equal(model[2]["other"].weight, weights[1])
    model.requires_grad_(True)
    backward(model)
    tables.optimizer.step()
    assert not torch.equal(model[0].weight, weights[0])
    tables.close()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("ids", [IDS, IDS[:, :1]], ids=["bags", "one id each"])
@pytest.mark.parametrize("calls", [1, 2])
def test_a_frozen_bag_between_others_that_are_one_batch(mode, ids, calls):
    """A batch of the card has tables of consecutive numbers, the frozen one among them; a bag that
    is called twice is two features of its table."""
    torch.manual_seed(0)
    model = nn.ModuleList(nn.EmbeddingBag(50, 8, mode="sum") for _ in range(3))
    model[1].weight.requires_grad_(False)
    model.forward = lambda ids: sum(bag(ids) for bag in (*model, *[model[2]] * (calls - 1)))
    card = {} if mode == "resident" else {"device": "model", "preset": "tiny"}
    plain = [bag.weight.detach().clone().requires_grad_() for bag in model]
    expected = sum(nn.functional.embedding_bag(ids, weight, mode="sum") * many
                   for weight, many in zip(plain, (1, 1, calls), strict=True))
    expected.sum().backward()
    with torch.no_grad():
        for weight in (plain[0], plain[2]):
            weight -= 0.5 * weight.grad
    with convert(model, inputs=lambda ids: {"0": ids, "1": ids, "2": [ids] * calls}, mode=mode,
                 lr=0.5, **card) as tables:
        result = model(ids)
        result.sum().backward()
        tables.optimizer.step()
        torch.testing.assert_close(result, expected)
        for bag, weight in zip(model, plain, strict=True):
            torch.testing.assert_close(bag.weight.detach(), weight.detach())


def test_a_frozen_collection_gives_weights_of_lookups_their_gradient():
    tables = HotEmbeddingBagCollection([TableConfig("a", 50, 8)], mode="resident",
                                       options=Options(seed=0))
    nn.Sequential(tables).requires_grad_(False)
    weights = torch.ones(16, requires_grad=True)
    tables(IDS[:, 0], torch.arange(17), weights).sum().backward()
    assert torch.equal(weights.grad, tables.contents.table("a")[0][IDS[:, 0]].sum(1))
    assert tables.staging.rows[0].values is None


COPIES = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "save": lambda model: torch.load(saved(model), weights_only=False),
}


def saved(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return file


@pytest.mark.parametrize("name", COPIES)
def test_copies_are_resident_and_train_alike(name):
    model, tables = converted("scratchpipe", freeze=True, optimizer="adagrad")
    backward(model)
    tables.optimizer.step()
    twin = COPIES[name](model)
    collection = twin[0].collection
    assert collection is twin[2]["other"].collection and collection.mode == "resident"
    assert not twin[0].weight.requires_grad
    assert backward(model) == backward(twin)
    tables.optimizer.step()
    collection.optimizer.step()
    tables.flush()
    assert tables.sha256() == collection.sha256()
    tables.close()


@pytest.mark.parametrize("copied", [copy.deepcopy, pickle.dumps])
def test_an_optimizer_of_rows_is_copied_with_its_tables(copied):
    with pytest.raises(Error, match="copy the collection"):
        copied(converted()[1].optimizer)


@pytest.mark.slow
def test_compiled_models_break_their_graph_at_lookups():
    model, tables = converted("scratchpipe")
    plain, _ = converted()
    compiled = torch.compile(nn.Sequential(model[0], model[1]), backend="eager")
    for each in (compiled, nn.Sequential(plain[0], plain[1])):
        each(IDS).square().sum().backward()
    tables.optimizer.step()
    plain[0].optimizer.step()
    assert torch.equal(model[0].weight, plain[0].weight)
    tables.close()


def both(mode, **options):
    """A plain model and its SGD, the converted one and its rows' optimizer, and the tables."""
    torch.manual_seed(0)
    plain = nn.Sequential(nn.EmbeddingBag(50, 8, mode="sum"), nn.Linear(8, 1))
    model = copy.deepcopy(plain)
    card = {} if mode == "resident" else {"device": "model", "preset": "tiny"}
    tables = convert(model, mode=mode, lr=0.1, **card, **options)
    return (plain, torch.optim.SGD([plain[0].weight], 0.1)), (model, tables.optimizer), tables


def loss_of(net):
    return net(IDS).square().sum()


BACKWARDS = {
    "grad of a part": lambda net: torch.autograd.grad(loss_of(net), [net[1].weight]),
    "backward to a part": lambda net: loss_of(net).backward(inputs=[net[1].weight]),
    "twice": lambda net: [loss_of(net).backward() for _ in range(2)],
    "retained": lambda net: [each.backward(retain_graph=True) for each in 2 * [loss_of(net)]],
    "graph": lambda net: loss_of(net).backward(create_graph=True),
}


def test_the_gradient_of_weights_has_no_derivative():
    """As in `nn.EmbeddingBag`: that by the rows would be left out."""
    (plain, _), (model, _), _ = both("resident")
    found = []
    for net, error in ((plain, RuntimeError), (model, Error)):
        weights = torch.ones(16, 3, requires_grad=True)
        loss = net[0](IDS, per_sample_weights=weights).square().sum()
        found += torch.autograd.grad(loss, weights, create_graph=True)
        with pytest.raises(error, match="derivative"):
            found[-1].square().sum().backward()
    torch.testing.assert_close(*found)


@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", BACKWARDS)
def test_a_backward_stages_what_it_accumulates(name, mode):
    """What `torch.autograd.grad` computes, and what a backward leaves out, does not train."""
    *pairs, tables = both(mode)
    for net, optimizer in pairs:
        BACKWARDS[name](net)
        (loss_of(net) + 1).backward()
        optimizer.step()
    torch.testing.assert_close(pairs[1][0][0].weight.detach(), pairs[0][0][0].weight.detach())
    tables.close()


@pytest.mark.parametrize("mode", MODES)
def test_an_empty_batch_whose_loss_is_a_sum(mode):
    card = {} if mode == "resident" else {"device": "model", "preset": "tiny"}
    with HotEmbeddingBagCollection([TableConfig("a", 50, 4), TableConfig("b", 50, 4)], mode=mode,
                                   **card) as tables:
        before = tables.contents.table("a")[0].clone()
        tables(torch.empty(0, 2, dtype=torch.int64)).sum().backward()
        tables.optimizer.step()
        assert torch.equal(tables.contents.table("a")[0], before)


def test_rows_that_never_step_are_warned_of_once():
    (_, _), (model, _), _ = both("resident")
    dense = torch.optim.Adam(model.parameters(), 0.1)
    with pytest.warns(UserWarning, match="collection's optimizer") as found:
        for _ in range(150):
            dense.zero_grad()
            loss_of(model).backward()
            dense.step()
    assert len(found) == 1


@pytest.mark.parametrize("mode", MODES)
def test_threads_that_share_a_model_add_up_their_gradients(mode):
    *pairs, tables = both(mode)
    batches = [torch.randint(0, 50, (100, 5)) for _ in range(3)]
    errors = []

    def run(net, ids):
        try:
            net(ids).square().mean().backward()
        except Exception as error:  # shown by the test
            errors.append(error)

    for net, optimizer in pairs:
        for _ in range(5):
            threads = [threading.Thread(target=run, args=(net, ids)) for ids in batches]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            optimizer.step()
            optimizer.zero_grad()
    assert not errors
    torch.testing.assert_close(pairs[1][0][0].weight.detach(), pairs[0][0][0].weight.detach())
    tables.close()
