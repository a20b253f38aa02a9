"""The weight of a replaced module: writes reach its rows; uses that would miss them are refused."""

import copy

import numpy as np
import pytest
import torch
from hotrow.contract.errors import Error
from hotrow.torch import HotEmbeddingBagCollection, TableConfig, convert
from torch import nn
from torch.nn.utils import parametrize, prune
from torch.optim.swa_utils import AveragedModel

from tests.torch.bags import IDS, bag_of


def written(mode, write, train_after=False):
    """Output of evaluation after a write in place, and the tables' contents."""
    options = {} if mode == "resident" else {"device": "model", "preset": "tiny"}
    model = nn.Sequential(bag_of())
    torch.manual_seed(0)
    model[0].reset_parameters()
    with convert(model, mode=mode, lr=0.1, **options) as tables:
        def step():
            model(IDS).sum().backward()
            tables.optimizer.step()

        step()
        weight = model.state_dict()["0.weight"]
        if train_after:
            step()
            tables.flush()
        with torch.no_grad():
            write(weight)
        step()
        return model.eval()(IDS).detach(), model[0].weight.detach().clone()


WRITES = {"zero": lambda weight: weight.zero_(), "row": lambda weight: weight[IDS[0, 0]].fill_(3),
          "swap": lambda weight: weight.copy_(weight.flip(0))}


@pytest.mark.parametrize("mode", ["scratchpipe", "freqcache", "hotline"])
@pytest.mark.parametrize("name", WRITES)
def test_writes_in_place_are_taken_over(name, mode):
    for found, expected in zip(written(mode, WRITES[name]), written("resident", WRITES[name]),
                               strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("name", WRITES)
def test_a_held_weight_writes_over_trained_rows(name):
    for found, expected in zip(*(written(mode, WRITES[name], train_after=True)
                                 for mode in ("scratchpipe", "resident")), strict=True):
        assert torch.equal(found, expected)


def test_the_reference_for_the_checks_is_sound():
    """Without a write both models agree, so that the comparison above can fail."""
    plain = copy.deepcopy(written("resident", lambda weight: None))
    changed = written("resident", WRITES["zero"])
    assert not np.array_equal(plain[1].numpy(), changed[1].numpy())


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("mode", ["resident", "scratchpipe"])
def test_parameters_are_plain_and_pass_dense_optimizers_by(mode, optimizer):
    """They are current after flush(); averages, norms and counts are those of a plain model."""
    torch.manual_seed(0)
    plain = nn.Sequential(nn.EmbeddingBag(50, 8, mode="sum"), nn.Linear(8, 1))
    model, card = copy.deepcopy(plain), {} if mode == "resident" else {"device": "model",
                                                                       "preset": "tiny"}
    names = [(name, each.shape) for name, each in plain.named_parameters()]
    with convert(model, mode=mode, lr=0.1, optimizer=optimizer, **card) as tables:
        assert [(name, each.shape) for name, each in model.named_parameters()] == names
        held = model[0].weight
        assert type(held) is nn.Parameter
        dense = torch.optim.Adam(model.parameters(), 0.1, weight_decay=0.5)
        for _ in range(3):
            dense.zero_grad()
            model(IDS).square().sum().backward()
            assert held.grad is None
            found = nn.utils.clip_grad_norm_([*model.parameters(), *tables.gradients()], 1e-3)
            assert found > nn.utils.get_total_norm([model[1].weight.grad, model[1].bias.grad])
            before = tables.sha256()
            dense.step()
            assert tables.sha256() == before
            tables.optimizer.step()
            assert tables.sha256() != before
        average = AveragedModel(plain)
        average.update_parameters(model)
        twin = AveragedModel(model)
        twin.update_parameters(model)
        for each in (average.module, twin.module):
            for key, value in model.state_dict().items():
                assert torch.equal(each.state_dict()[key], value), key
        assert torch.equal(held, model[0].weight) and not torch.equal(held, plain[0].weight)


REPLACING = {
    "script": lambda model: torch.jit.script(model),
    "prune": lambda model: prune.l1_unstructured(model[0], "weight", 0.5),
    "weight_norm": lambda model: nn.utils.parametrizations.weight_norm(model[0]),
    "spectral_norm": lambda model: nn.utils.parametrizations.spectral_norm(model[0]),
    "assign": lambda model: setattr(model[0], "weight", nn.Parameter(torch.zeros(50, 8))),
    "none": lambda model: setattr(model[0], "weight", None),
    "parametrize": lambda model: parametrize.register_parametrization(
        model[0], "weight", nn.Identity()),
    "data": lambda model: setattr(model[0].weight, "data", torch.zeros(50, 8)),
    "parameters": lambda model: torch.func.functional_call(
        model, {name: value.detach() for name, value in model.named_parameters()}, (IDS,)),
    "swap": lambda model: torch.utils.swap_tensors(
        model[0].weight, nn.Parameter(torch.zeros(50, 8))),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", REPLACING)
def test_a_replaced_parameter_is_refused_at_the_next_lookup(name):
    model = nn.Sequential(bag_of())
    convert(model, mode="resident")
    with pytest.raises((Error, AssertionError, KeyError)):  # of a name that PyTorch would set
        REPLACING[name](model)
        with torch.no_grad():
            model(IDS)


def test_a_change_of_dtype_or_device_leaves_rows():
    model = nn.Sequential(bag_of(), nn.Linear(8, 1))
    convert(model, mode="resident")
    before = model[0].weight.detach().clone()
    for change in (nn.Module.half, nn.Module.double, lambda each: each.to_empty(device="cpu"),
                   lambda each: each.to("meta")):
        change(model)
        assert torch.equal(model[0].weight, before) and model[0](IDS).dtype == torch.float32
    assert model[1].weight.is_meta


def test_tables_of_a_collection_train_together_or_not():
    tables = HotEmbeddingBagCollection([TableConfig("type", 5, 4), TableConfig("keys", 5, 4)],
                                       mode="resident")
    assert [name for name, _ in tables.named_parameters()] == list(tables.state_dict())
    tables.load_state_dict(copy.deepcopy(tables.state_dict()))
    ids = torch.ones(2, 2, dtype=torch.int64)
    tables.embeddings["keys"].weight.requires_grad_(False)
    with pytest.raises(Error, match="some tables of a collection are frozen"):
        tables(ids)
    assert not tables.requires_grad_(False)(ids).requires_grad


def test_a_penalty_on_a_weight_that_was_listed_before_is_refused():
    model = nn.Sequential(bag_of())
    listed = list(model.parameters())
    convert(model, mode="resident")
    with pytest.raises(Error, match=r"the weight of 0, .* penalty .* take it from the list"):
        (model(IDS).sum() + listed[0].square().sum()).backward()


def freeze_in_place(weight):
    weight.requires_grad = False


@pytest.mark.parametrize("freeze", [
    freeze_in_place, lambda weight: weight.requires_grad_(False)])
def test_the_weight_freezes_its_rows(freeze):
    model = nn.Sequential(bag_of(), nn.Linear(8, 1))
    tables = convert(model, mode="resident")
    before = model[0].weight.detach().clone()
    assert model[0].weight.requires_grad and model[0].weight.is_leaf
    held = model[0].weight
    freeze(held)
    assert not held.requires_grad
    model(IDS).sum().backward()
    tables.optimizer.step()
    assert torch.equal(model[0].weight, before) and not model[0].weight.requires_grad


def test_copies_of_the_weight_are_plain_tensors(tmp_path):
    model = nn.Sequential(bag_of(), bag_of())
    convert(model, mode="resident")
    kept = model.state_dict()
    torch.save(kept, tmp_path / "kept")
    for each in (copy.deepcopy(kept), torch.load(tmp_path / "kept", weights_only=True)):
        assert all(type(value) is torch.Tensor for value in each.values())
        assert all(torch.equal(value, kept[name]) for name, value in each.items())
    assert model.state_dict(keep_vars=True)["0.weight"].requires_grad


def test_parameters_are_drawn_as_those_of_the_bag():
    plain, bag = bag_of(padding_idx=3), bag_of(padding_idx=3)
    model = nn.Sequential(bag)
    convert(model, mode="resident")
    for each in (plain, model[0]):
        torch.manual_seed(3)
        each.reset_parameters()
    assert torch.equal(model[0].weight, plain.weight)
