"""Calls on a whole model reach the rows, or are refused."""

import copy
import io
import pickle

import pytest
import torch
from hotrow.contract.errors import Error
from hotrow.torch import HotEmbeddingBagCollection, TableConfig, convert
from torch import nn
from torch.optim.swa_utils import AveragedModel

IDS = torch.randint(0, 50, (16, 3), generator=torch.Generator().manual_seed(0))
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
def test_a_frozen_bag_between_others_that_are_one_batch(mode):
    """A batch of the card has tables of consecutive numbers, the frozen one among them."""
    torch.manual_seed(0)
    model = nn.ModuleList(nn.EmbeddingBag(50, 8, mode="sum") for _ in range(3))
    model[1].weight.requires_grad_(False)
    model.forward = lambda ids: sum(bag(ids) for bag in model)
    card = {} if mode == "resident" else {"device": "model", "preset": "tiny"}
    weights = [bag.weight.detach().clone() for bag in model]
    with convert(model, inputs=lambda ids: dict.fromkeys("012", ids), mode=mode, **card) as tables:
        model(IDS).sum().backward()
        tables.optimizer.step()
        changed = [not torch.equal(*each) for each in zip(
            weights, (bag.weight for bag in model), strict=True)]
    assert changed == [True, False, True]


def test_a_frozen_collection_gives_weights_of_lookups_their_gradient():
    tables = HotEmbeddingBagCollection([TableConfig("a", 50, 8)], mode="resident", seed=0)
    nn.Sequential(tables).requires_grad_(False)
    weights = torch.ones(16, requires_grad=True)
    tables(IDS[:, 0], torch.arange(17), weights).sum().backward()
    assert torch.equal(weights.grad, tables.table("a")[0][IDS[:, 0]].sum(1))
    assert tables.staged()[0].values is None


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("set_to_none", [True, False])
def test_zero_grad_of_the_model_drops_staged_gradients(mode, set_to_none):
    model, tables = converted(mode, optimizer="adagrad")
    weights = model[0].weight.clone()
    backward(model)
    model.zero_grad(set_to_none)
    tables.optimizer.step()
    assert torch.equal(model[0].weight, weights)
    other = model[2]["other"].weight.clone()
    backward(model)
    model[0].zero_grad(set_to_none)  # of one table
    torch.optim.SGD(model.parameters(), 0.1).zero_grad()  # an optimizer's drops none
    tables.optimizer.step()
    assert torch.equal(model[0].weight, weights)
    assert not torch.equal(model[2]["other"].weight, other)
    tables.close()


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
    assert not twin[0].rows.requires_grad
    assert backward(model) == backward(twin)
    tables.optimizer.step()
    collection.optimizer.step()
    tables.flush()
    assert tables.sha256() == collection.sha256()
    tables.close()


@pytest.mark.parametrize("mode", MODES)
def test_clipping_takes_the_staged_gradients_or_is_refused(mode):
    model, tables = converted(mode)
    backward(model)
    for clip in (lambda given: nn.utils.clip_grad_norm_(given, 1.0),
                 lambda given: nn.utils.clip_grad_value_(given, 1.0)):
        with pytest.raises(Error, match=r"collection\.gradients\(\)"):
            clip(model.parameters())
        clip([*model.parameters(), *tables.gradients()])
        clip(model[1].parameters())
    model.zero_grad()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # nothing is staged
    tables.close()


def test_averages_and_penalties_of_parameters_are_refused():
    model, _ = converted()
    with pytest.raises(Error, match="state_dict"):
        AveragedModel(model).update_parameters(model)
    for penalty in (torch.norm, torch.square, lambda each: each**2, lambda each: each.abs().sum()):
        with pytest.raises(Error, match="state_dict"):
            [penalty(each) for each in model.parameters()]


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
