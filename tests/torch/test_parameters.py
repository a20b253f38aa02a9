"""Functions of PyTorch that touch parameters: as with a plain model, or refused by name at once."""

import copy
import io
import os
import pickle

import numpy as np
import pytest
import torch
from hotrow.contract.errors import Error
from hotrow.torch import HotEmbeddingBagCollection, TableConfig, convert
from torch import nn
from torch.nn.utils import clip_grad_norm_, get_total_norm
from torch.optim.lr_scheduler import CyclicLR, OneCycleLR

from tests.torch.bags import IDS

MODES = ["resident", "scratchpipe"]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.word = nn.EmbeddingBag(50, 8, mode="sum"), nn.Embedding(20, 8)
        self.top = nn.Linear(8, 8)

    def forward(self, ids):
        return self.top(self.emb(ids) + self.word(ids[:, 0] % 20))


class Trained:
    """A model, plain or converted, with the optimizers of its rows and of all its parameters."""

    def __init__(self, mode=None, **options):
        torch.manual_seed(0)
        self.model, self.tables = Net(), None
        if mode is None:
            self.rows = torch.optim.SGD([self.emb.weight, self.model.word.weight], 0.1)
            self.dense = torch.optim.SGD(self.model.top.parameters(), 0.1)
            return
        card = {} if mode == "resident" else {"device": "model", "preset": "tiny"}
        self.tables = convert(self.model, mode=mode, lr=0.1, **card, **options)
        self.rows, self.dense = self.tables.optimizer, torch.optim.SGD(self.parameters, 0.1)

    @property
    def emb(self):
        return self.model.emb

    @property
    def parameters(self):
        return list(self.model.parameters())

    @property
    def own(self):
        """Parameters for an optimizer beside that of the rows."""
        return self.parameters if self.tables else list(self.model.top.parameters())

    def backward(self):
        self.model(IDS).square().mean().backward()
        return [each.grad for each in self.parameters]

    def step(self):
        for optimizer in (self.rows, self.dense):
            optimizer.step()
            optimizer.zero_grad()

    def train_by(self, optimizer):
        """A step of the rows, and of another optimizer of the rest."""
        self.backward()
        for each in (optimizer, self.rows):
            each.step()
            each.zero_grad()

    def train(self, steps=2):
        for _ in range(steps):
            self.backward()
            self.step()
        return {name: each.detach().clone() for name, each in self.model.state_dict().items()}


def stepped(make):
    def call(net):
        optimizer = make(net.own)
        for _ in range(2):
            net.train_by(optimizer)
        return net.train(0)

    return call


def with_a_closure(net):
    optimizer = torch.optim.LBFGS(net.own, 0.1, max_iter=3)

    def closure():
        net.model.zero_grad()
        loss = net.model(IDS).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    return net.train(1)


def reloaded(net):
    optimizer = torch.optim.Adagrad(net.own, 0.1)
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    for state in (optimizer.state_dict(), copy.deepcopy(optimizer.state_dict()), torch.load(file)):
        optimizer.load_state_dict(state)
        net.train_by(optimizer)
    return net.train(0)


def shared(net):
    """A second module that trains the same rows by an optimizer of its own."""
    other = nn.EmbeddingBag.from_pretrained(net.emb.weight, freeze=False, mode="sum")
    optimizer = torch.optim.SGD(other.parameters(), 0.1)
    for _ in range(2):
        net.train(1)
        other(IDS).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return net.train(1), other.weight, copy.deepcopy(other).weight, type(copy.deepcopy(
        other).weight) is nn.Parameter, [name for name, _ in other.named_parameters()]


def frozen(net):
    other = nn.Embedding.from_pretrained(net.emb.weight)
    net.train(1)
    return other(IDS)


def added_to(net):
    net.train(1)
    with torch.no_grad():
        net.emb.weight += 1
    return net.train(1)


def frozen_in_between(net):
    held = net.emb.weight
    held.requires_grad_(False)
    found = [net.emb.weight is held, held.requires_grad, (2 * held).requires_grad]
    held.requires_grad_(True)
    return *found, net.emb.weight is held, held.requires_grad, net.train(1)


class OnData(torch.optim.Optimizer):
    """Works on `data`, and assigns it."""

    def __init__(self, parameters):
        super().__init__(parameters, {})

    def step(self):
        for each in self.param_groups[0]["params"]:
            each.data = each.data - 0.1 * each.grad.data


def after_backward(read):
    return lambda net: [read(each) for each in net.backward()]


def distributed(call):
    def run(net):
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
        torch.distributed.init_process_group(
            "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
        try:
            return call(net)
        finally:
            torch.distributed.destroy_process_group()

    return run


def in_ranks(net):
    for each in net.parameters:
        torch.distributed.broadcast(each.data, 0)
    for each in net.backward():
        torch.distributed.all_reduce(each)
    net.step()
    return net.train(1)


# PyTorch's gloo may wait for ever if the last reference to a group is dropped, with the
# interpreter's lock, while a thread of the group frees the reduction of a backward.
KEPT = []


def bucket_view(net):
    ranks = nn.parallel.DistributedDataParallel(net.model, gradient_as_bucket_view=True)
    KEPT.append(ranks)
    ranks(IDS).sum().backward()
    net.step()


def zeroed(net):
    for each in net.backward():
        each.detach_()
        each.zero_()
    net.step()
    return net.train(0)


def clipped_by_group(net):
    net.backward()
    clip_grad_norm_(net.rows.param_groups[0]["params"], 1e-3)
    net.rows.step()
    return net.model.state_dict()


def clipped(net):
    net.backward()
    norm = clip_grad_norm_([*net.parameters, *(net.tables.gradients() if net.tables else [])], 0.01)
    net.step()
    return norm, net.train(0)


SAME = {
    "names and shapes": lambda net: [(name, each.shape, each.size(0), len(each), each.stride())
                                     for name, each in net.model.named_parameters()],
    "count": lambda net: sum(each.numel() + each.data.nelement() + torch.numel(each)
                             for each in net.parameters),
    "bytes": lambda net: sum(each.nbytes + each.numel() * each.element_size()
                             for each in net.parameters),
    "type": lambda net: [(each.type(), each.dim()) for each in net.parameters],
    "likes": lambda net: [torch.zeros_like(each).shape for each in net.parameters],
    "shapes of gradients": after_backward(lambda each: (each.shape, each.numel(), each is None)),
    "no gradient": after_backward(lambda each: each == None),  # noqa: E711
    "zeroed gradients": zeroed,
    "identity": lambda net: [net.emb.weight is net.emb.weight,
                             net.model.state_dict(keep_vars=True)["emb.weight"] is net.emb.weight],
    "sets and dicts": lambda net: [len({*net.parameters} - {net.emb.weight}), {
        each: name for name, each in net.model.named_parameters()}[net.emb.weight]],
    "is a parameter": lambda net: [
        net.model.get_parameter("emb.weight").shape, isinstance(net.emb.weight, nn.Parameter),
        isinstance(net.emb.weight.data, nn.Parameter),
        type(copy.deepcopy(net.emb.weight)) is nn.Parameter,
        type(pickle.loads(pickle.dumps(net.emb.weight))) is nn.Parameter],
    "freeze": frozen_in_between,
    "add to the weight": added_to,
    "to_empty": lambda net: [each.shape for each in net.model.to_empty(device="cpu").parameters()],
    "parameter of the weight": lambda net: nn.Parameter(net.emb.weight).sum(),
    "from_pretrained": frozen,
    "from_pretrained that trains": shared,
    "adafactor": stepped(lambda given: torch.optim.Adafactor(given, 0.1)),
    "adagrad": stepped(lambda given: torch.optim.Adagrad(given, 0.1)),
    "muon": stepped(lambda given: torch.optim.Muon([each for each in given if each.ndim == 2])),
    "on data": stepped(OnData),
    "closure": with_a_closure,
    "state of an optimizer": reloaded,
    "clip": clipped,
    "clip the optimizer's group": clipped_by_group,
    "collectives": distributed(in_ranks),
}


def values(found):
    if isinstance(found, dict):
        found = list(found.values())
    if isinstance(found, (list, tuple)) and not isinstance(found, torch.Size):
        return [value for each in found for value in values(each)]
    return [found]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", SAME)
def test_as_with_a_plain_model(name, mode):
    plain, net = Trained(), Trained(mode)
    found, expected = values(SAME[name](net)), values(SAME[name](plain))
    assert len(found) == len(expected)
    for here, there in zip(found, expected, strict=True):
        if isinstance(there, torch.Tensor):
            torch.testing.assert_close(here.detach().as_subclass(torch.Tensor), there.detach())
        else:
            assert here == there
    net.tables.close()


def after_an_error(net):
    class Failing(torch.optim.SGD):
        def step(self, closure=None):
            raise KeyError

    with pytest.raises(KeyError):
        Failing(net.parameters, 0.1).step()
    return sum(each.square().sum() for each in net.parameters)


def after_a_kept_error(net):
    class Failing(torch.optim.SGD):
        def step(self, closure=None):
            raise KeyError

    with pytest.raises(KeyError) as kept:
        Failing(net.parameters, 0.1).step()
    net.backward()
    return sum(each.square().sum() for each in net.parameters), kept


def after_a_closure(net):
    optimizer = torch.optim.SGD(net.parameters, 0.1)
    optimizer.step(closure=net.backward)
    return sum(each.square().sum() for each in net.parameters)


def penalty_in_a_closure(net):
    optimizer = torch.optim.SGD(net.parameters, 0.1)
    optimizer.step(lambda: sum(each.square().sum() for each in net.parameters))


def tied(net):
    net.model.top.weight = net.emb.weight


def into(write):
    """Write into memory of the weight."""
    return lambda net: write(net.emb.weight)


REFUSED = {
    "address": (lambda net: [each.data_ptr() for each in net.parameters], "state_dict"),
    "storage": (lambda net: [each.untyped_storage() for each in net.parameters], "state_dict"),
    "sum of likes": (lambda net: [torch.ones_like(each).sum() for each in net.parameters],
                     "state_dict"),
    "another type": (lambda net: [each.type(torch.float64) for each in net.parameters],
                     "state_dict"),
    "expanded": (lambda net: [each.expand_as(torch.ones(50, 8)) for each in net.parameters[:1]],
                 "state_dict"),
    "backward": (lambda net: net.parameters[0].backward(), "state_dict"),
    "pickled": (lambda net: pickle.dumps(net.parameters), "state_dict"),
    "penalty after a failed step": (after_an_error, "state_dict"),
    "penalty after a kept error": (after_a_kept_error, "state_dict"),
    "penalty after a closure": (after_a_closure, "state_dict"),
    "penalty in a closure": (penalty_in_a_closure, "state_dict"),
    "norm": (after_backward(lambda each: each.norm()), r"collection\.gradients"),
    "norm of data": (after_backward(lambda each: each.data.norm()), r"collection\.gradients"),
    "total norm": (lambda net: get_total_norm(net.backward()), r"collection\.gradients"),
    "clip": (lambda net: (net.backward(), clip_grad_norm_(net.parameters, 1.0)),
             r"collection\.gradients"),
    "another gradient": (lambda net: [setattr(each, "grad", torch.ones(each.shape))
                                      for each in net.parameters[:1]], r"collection\.gradients"),
    "scaled gradient": (lambda net: (net.tables.gradients(), net.backward(), [
        setattr(each, "grad", each.grad * 0.5) for each in net.parameters]),
                        r"collection\.gradients"),
    "data": (lambda net: [setattr(each, "data", torch.zeros(each.shape))
                          for each in net.parameters], "state_dict"),
    "finite": (after_backward(lambda each: each.isfinite().all()), r"collection\.gradients"),
    "largest": (after_backward(lambda each: each.abs().max()), r"collection\.gradients"),
    "copied": (after_backward(copy.deepcopy), r"collection\.gradients"),
    "one-cycle": (lambda net: OneCycleLR(net.rows, 0.1, total_steps=9), "cycle_momentum=False"),
    "cycle": (lambda net: CyclicLR(net.rows, 0.01, 0.1), "cycle_momentum=False"),
    "tied": (tied, r"Linear\.weight cannot be the weight of a table"),
    "in a list": (lambda net: nn.ParameterList([net.emb.weight]), "cannot be the weight"),
    "another parameter": (lambda net: setattr(net.emb, "weight", nn.Parameter(torch.zeros(50, 8))),
                          "replaced or assigned"),
    "none": (lambda net: setattr(net.emb, "weight", None), "replaced or assigned"),
    "deleted": (lambda net: delattr(net.emb, "weight"), "replaced or assigned"),
    "another dtype": (into(lambda weight: setattr(weight, "data", weight.half())), "its dtype"),
    "half of a sharing module": (
        lambda net: nn.Embedding.from_pretrained(net.emb.weight).half(), "its dtype"),
    "to_empty of a sharing module": (
        lambda net: nn.Embedding.from_pretrained(net.emb.weight).to_empty(device="cpu"),
        "keeps its memory"),
    "fill of the storage": (into(lambda weight: weight.untyped_storage().fill_(0)), "its memory"),
    "item of the storage": (into(lambda weight: weight.data.storage().__setitem__(0, 1)),
                            "its memory"),
    "resized storage": (into(lambda weight: weight.untyped_storage().resize_(0)), "its memory"),
    "dlpack": (into(lambda weight: torch.from_dlpack(weight.detach())), "its memory"),
    "bucket view": (distributed(bucket_view), "leave gradient_as_bucket_view"),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name_at_the_first_call(name, mode):
    call, said = REFUSED[name]
    net = Trained(mode)
    before = net.train(1)
    with pytest.raises(Error, match=said):
        call(net)
    net.rows.zero_grad()
    for key, each in net.model.state_dict().items():
        if not key.startswith("top"):
            torch.testing.assert_close(each.detach().as_subclass(torch.Tensor), before[key])
    net.tables.close()


@pytest.mark.parametrize("options", [{}, {"fused": True}])
def test_a_state_that_was_saved_before_convert_is_refused(options):
    plain, net = Trained(), Trained("resident")
    before, after = (torch.optim.Adam(each.parameters, **options) for each in (plain, net))
    plain.backward(), before.step(), net.backward()
    after.load_state_dict(before.state_dict())
    with pytest.raises(Error, match="saved before convert"):
        after.step()
    for each in (net.emb, net.model.word):
        del after.state[each.rows]
    after.step()


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_table_has_a_storage_of_its_own(optimizer):
    """Who looks for shared memory finds that of the table, though its group has one array."""
    net = Trained("resident", optimizer=optimizer)
    for each in (net.emb.weight, net.model.word.weight, net.model.state_dict()["emb.weight"]):
        storage = each.untyped_storage()
        assert storage.data_ptr() == each.data_ptr()
        assert len(storage) == storage.nbytes() == each.storage().size() * each.itemsize
        assert storage.nbytes() >= each.nbytes and (
            storage.nbytes() == each.nbytes or not each.is_contiguous())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("read", [
    lambda weight: weight.detach().numpy(), lambda weight: np.asarray(weight.data)])
def test_numpy_reads_the_weight_and_does_not_write_it(read, mode):
    net = Trained(mode)
    net.train(1)
    found = read(net.emb.weight)
    assert np.array_equal(found, net.emb.weight.detach().clone().numpy())
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 1
    net.tables.close()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_dtype_that_rows_do_not_have_is_said(dtype, recwarn):
    net = Trained("resident")
    with pytest.warns(UserWarning, match="rows of hotrow's tables keep their dtype"):
        net.model.to(dtype)
    assert net.emb.weight.dtype == torch.float32 and net.emb(IDS).dtype == dtype
    recwarn.clear()
    net.model.to(dtype).float()
    convert(nn.Sequential(nn.EmbeddingBag(50, 8, dtype=dtype)), mode="resident")
    assert not recwarn.list


def test_what_stands_for_rows_says_so():
    net = Trained("resident")
    for each in (net.parameters[0], net.parameters[0].data, net.backward()[0]):
        assert f"{each}" == repr(each)
        assert "rows [50, 8] of hotrow's tables" in repr(each)


def test_a_collection_shows_the_elements_of_all_its_tables():
    tables = [TableConfig("a", 5, 8), TableConfig("b", 7, 8), TableConfig("c", 3, 4)]
    collection = HotEmbeddingBagCollection(tables, mode="resident")
    assert sum(each.numel() for each in collection.parameters()) == 5 * 8 + 7 * 8 + 3 * 4
    assert [each.nbytes for each in HotEmbeddingBagCollection(
        [TableConfig("a", 5, 8, dtype=torch.float16)], mode="resident").parameters()] == [80]
