"""The weight of a replaced module: writes reach its rows; uses that would miss them are refused."""

import copy

import numpy as np
import pytest
import torch
from hotrow.contract.errors import Error
from hotrow.torch import convert
from torch import nn
from torch.nn.utils import parametrize, prune

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
        with torch.no_grad():
            write(weight)
        step()
        return model.eval()(IDS).detach(), model[0].weight.detach().clone()


def assign_data(weight):
    weight.data = weight + 1


WRITES = {"zero": lambda weight: weight.zero_(), "row": lambda weight: weight[IDS[0, 0]].fill_(3),
          "swap": lambda weight: weight.copy_(weight.flip(0)),
          "data": lambda weight: weight.data.mul_(2), "row_of_data": lambda weight: (
              weight.data[IDS[0, 0]].fill_(3)), "assign_data": assign_data}


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
def test_a_held_weight_shows_trained_rows(mode, optimizer):
    """And takes writes; a state dict has contiguous copies where state lies between the rows."""
    card = {} if mode == "resident" else {"device": "model", "preset": "tiny"}
    model = nn.Sequential(bag_of())
    with convert(model, mode=mode, lr=0.1, optimizer=optimizer, **card) as tables:
        held = {"weight": model[0].weight, "saved": model.state_dict()["0.weight"],
                "data": model[0].weight.data, "table": tables.table("0")[0]}
        before = model[0].weight.clone()
        for _ in range(3):
            model(IDS).square().sum().backward()
            tables.optimizer.step()
        assert not torch.equal(model[0].weight, before)
        for name, tensor in held.items():
            assert torch.equal(tensor.detach(), model[0].weight), name
        with torch.no_grad():
            for value, (name, tensor) in enumerate(held.items()):
                tensor[1:3] = value
                tensor *= 2
                assert model[0].weight[2, 0] == 2 * value, name
        if optimizer == "adam":
            for write in (lambda saved: saved[0].fill_(9), lambda saved: saved.T.zero_()):
                with pytest.raises(Error, match="would be lost"):
                    write(held["saved"])


REPLACING = {
    "script": lambda model: torch.jit.script(model),
    "prune": lambda model: prune.l1_unstructured(model[0], "weight", 0.5),
    "weight_norm": lambda model: nn.utils.parametrizations.weight_norm(model[0]),
    "old weight_norm": lambda model: nn.utils.weight_norm(model[0]),
    "spectral_norm": lambda model: nn.utils.parametrizations.spectral_norm(model[0]),
    "old spectral_norm": lambda model: nn.utils.spectral_norm(model[0]),
    "assign": lambda model: setattr(model[0], "weight", nn.Parameter(torch.zeros(50, 8))),
    "parametrize": lambda model: parametrize.register_parametrization(
        model[0], "weight", nn.Identity()),
    "assign a parameter": lambda model: model[0]._parameters.__setitem__(
        "weight", nn.Parameter(torch.zeros(50, 8))),
    "share": lambda model: model.share_memory(),
    "share the weight": lambda model: model[0].weight.share_memory_(),
    "other memory": lambda model: model[0].weight.set_(torch.zeros(50, 8)),
    "another shape": lambda model: model[0].weight.t_(),
    "parameters": lambda model: torch.func.functional_call(
        model, {name: value.detach() for name, value in model.named_parameters()}, (IDS,)),
    "state dict": lambda model: torch.func.functional_call(
        model, {name: value.clone() for name, value in model.state_dict().items()}, (IDS,)),
    "swap": lambda model: (torch.utils.swap_tensors(
        model[0].rows, nn.Parameter(torch.zeros(0))), model(IDS)),
}


def test_the_weight_is_not_swapped():
    model = nn.Sequential(bag_of())
    convert(model, mode="resident")
    with pytest.raises(RuntimeError, match="weakref"):
        torch.utils.swap_tensors(model[0].weight, nn.Parameter(torch.zeros(50, 8)))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", REPLACING)
def test_functions_that_replace_parameters_are_refused(name):
    model = nn.Sequential(bag_of())
    convert(model, mode="resident")
    with pytest.raises(Error):
        REPLACING[name](model)


def test_a_penalty_on_a_weight_that_was_listed_before_is_refused():
    model = nn.Sequential(bag_of())
    listed = list(model.parameters())
    convert(model, mode="resident")
    with pytest.raises(Error, match=r"the weight of 0, .* penalty .* take it from the list"):
        (model(IDS).sum() + listed[0].square().sum()).backward()


def test_an_optimizer_that_was_made_before_is_named_once(recwarn):
    model = nn.Sequential(bag_of(), nn.Linear(8, 1))
    early = torch.optim.SGD(model.parameters(), 0.1)
    with convert(model, mode="resident") as tables:
        for _ in range(3):
            model(IDS).sum().backward()
            early.step()
            tables.optimizer.step()
    assert ["the weight of 0, which convert() replaced" in str(each.message)
            for each in recwarn] == [True]


def freeze_in_place(weight):
    weight.requires_grad = False


@pytest.mark.parametrize("freeze", [
    freeze_in_place, lambda weight: weight.requires_grad_(False), lambda weight: weight.detach_()])
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


USES = {
    "penalty": lambda model, _: (model(IDS).sum() + model[0].weight.square().sum()).backward(),
    "tied use": lambda model, _: (model[0](IDS) @ model[0].weight.T).sum().backward(),
    "grad": lambda model, _: model[0].weight.grad,
    "hook": lambda model, _: model[0].weight.register_hook(print),
    "clamp": lambda model, _: [each.data.clamp_(-1, 1) for each in model.parameters()],
    "vector": lambda model, _: nn.utils.parameters_to_vector(model.parameters()),
    "gradients": lambda model, _: torch.autograd.grad(model(IDS).sum(), model.parameters()),
    "gradient of the weight": lambda model, _: torch.autograd.grad(
        model(IDS).sum(), model[0].weight, allow_unused=True),
    "backward to the weight": lambda model, _: model(IDS).sum().backward(inputs=[model[0].weight]),
    "finite": lambda model, _: [each.isfinite().all() for each in model.parameters()],
    "equal": lambda model, _: [torch.equal(each, each) for each in model.parameters()],
    "list": lambda model, _: [each.tolist() for each in model.parameters()],
    "double": lambda model, _: [each.detach().double() for each in model.parameters()],
    "transposed": lambda model, _: [each.detach().T for each in model.parameters()],
    "initialise": lambda model, _: [nn.init.xavier_uniform_(each) for each in model.parameters()
                                    if each.dim() > 1],
}


@pytest.mark.parametrize("name", USES)
def test_uses_of_the_weight_that_would_leave_rows_out_are_refused(name):
    model = nn.Sequential(bag_of())
    tables = convert(model, mode="resident")
    model(IDS).sum().backward()
    with pytest.raises(Error, match=r"gradient|leave the rows out"):
        USES[name](model, tables)
    with torch.no_grad():
        assert model[0].weight.norm() > 0
    model.zero_grad()


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
