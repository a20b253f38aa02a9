"""Properties of a replaced module: each one is carried, or refused by name."""

import copy
import os
import stat

import numpy as np
import pytest
import torch
from hotrow.contract.errors import BatchError, Error
from hotrow.torch import (
    Checkpoint,
    HotEmbeddingBag,
    HotEmbeddingBagCollection,
    TableConfig,
    convert,
)
from hotrow.torch.memory.rows import RowKind
from hotrow.torch.memory.tables import EmbeddingTables
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.utils import parametrize, prune

IDS = torch.randint(0, 50, (16, 3), generator=torch.Generator().manual_seed(0))


class Scaled(nn.EmbeddingBag):
    def forward(self, *arguments, **named):
        return 10 * super().forward(*arguments, **named)


def own_forward(bag):
    bag.forward = lambda *arguments: nn.EmbeddingBag.forward(bag, *arguments)


REFUSED = {
    "parametrizations": nn.utils.parametrizations.weight_norm,
    "float64": lambda bag: bag.double(),
    "backward hooks": lambda bag: bag.register_full_backward_hook(lambda *_: None),
    "buffers": lambda bag: bag.register_buffer("scale", torch.ones(1)),
    "forward of its own": own_forward,
    "hooks of its state dict": lambda bag: bag.register_state_dict_pre_hook(lambda *_: None),
}


def bag_of(dtype=torch.float32, **options):
    return nn.EmbeddingBag(50, 8, mode="sum", dtype=dtype, **options)


@pytest.mark.parametrize("name", REFUSED)
def test_convert_refuses_by_name(name):
    bag = bag_of()
    REFUSED[name](bag)
    with pytest.raises(Error, match=name):
        convert(nn.Sequential(bag), mode="resident")


def test_convert_refuses_a_subclass_and_tied_weights():
    with pytest.raises(Error, match="Scaled"):
        convert(nn.Sequential(Scaled(50, 8, mode="sum")), mode="resident")
    model = nn.ModuleDict({"bag": bag_of(), "top": nn.Linear(8, 50, bias=False)})
    model["top"].weight = model["bag"].weight
    with pytest.raises(Error, match=r"top\.weight"):
        convert(model, mode="resident")


def test_convert_carries_forward_hooks_and_the_training_state():
    bag = bag_of()
    bag.register_forward_hook(lambda module, given, result: 10 * result)
    model = nn.Sequential(bag).eval()
    keys, before = list(model.state_dict()), model(IDS).detach()
    convert(model, mode="resident")
    assert keys == list(model.state_dict())
    assert torch.equal(model(IDS), before)
    assert not model[0].training


@pytest.mark.parametrize("mode", ["resident", "scratchpipe"])
def test_a_backward_in_eval_is_refused_by_the_step(mode):
    """A plain model in eval() trains; rows here do not, which may not pass in silence."""
    card = {} if mode == "resident" else {"device": "model", "preset": "tiny"}
    model = nn.Sequential(bag_of(), nn.Linear(8, 1)).eval()
    with convert(model, mode=mode, **card) as tables:
        model(IDS).sum().backward()
        with pytest.raises(Error, match=r"in eval\(\)"):
            tables.optimizer.step()
        tables.optimizer.zero_grad()
        tables.optimizer.step()
        model.requires_grad_(False)[1].requires_grad_(True)
        model(IDS).sum().backward()
        tables.optimizer.step()


@pytest.mark.parametrize("options", [{}, {"mode": "hotline", "cold": "pooled", "device": "model",
                                          "preset": "tiny"}], ids=["rows", "bags"])
def test_zero_grad_of_a_bag_leaves_nothing_to_decay(options):
    """Rows without a gradient are no rows of the step: weight decay leaves them alone."""
    model = nn.ModuleList((bag_of(), bag_of()))
    with convert(model, **{"mode": "resident", **options}) as tables:
        before = model[0].weight.clone()
        (model[0](IDS) + model[1](IDS)).sum().backward()
        model[0].zero_grad()
        if not options:
            tables.optimizer.param_groups[0]["weight_decay"] = 0.5
        tables.optimizer.step()
        assert torch.equal(model[0].weight, before)
        (model[0](IDS) + model[1](IDS)).sum().backward()
        model.zero_grad()
        assert tables.staging.empty


@pytest.mark.parametrize("dim", [8, 4], ids=["same dim", "another dim"])
def test_zero_grad_of_a_bag_leaves_the_others_their_gradients(dim):
    """Tables of one dim share an array of gradients; those of another dim have their own."""
    model = nn.ModuleList((bag_of(), nn.EmbeddingBag(50, dim, mode="sum")))
    with convert(model, mode="resident", lr=0.5) as tables:
        before = [bag.weight.clone() for bag in model]
        (model[0](IDS).sum() + model[1](IDS).sum()).backward()
        model[0].zero_grad()
        tables.optimizer.step()
        assert torch.equal(model[0].weight, before[0])
        changed = (model[1].weight != before[1]).any(dim=1).nonzero()[:, 0]
        assert changed.tolist() == IDS.unique().tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_results_have_the_dtype_of_the_model(dtype):
    model = nn.Sequential(bag_of(dtype), nn.Linear(8, 1, dtype=dtype))
    convert(model, mode="resident")
    assert model(IDS).dtype == dtype


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_results_follow_a_change_of_dtype(dtype):
    model = nn.Sequential(bag_of(), nn.Linear(8, 1))
    convert(model, mode="resident")
    assert model.to(dtype)(IDS).dtype == dtype
    assert model.float()(IDS).dtype == torch.float32
    for change in (nn.Module.double, lambda model: model.to("meta")):
        with pytest.raises(Error, match=r"float64|meta"):
            change(model)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_results_of_a_collection_follow_a_change_of_dtype(dtype):
    for pooling in ("sum", "none"):
        tables = HotEmbeddingBagCollection([TableConfig("a", 50, 8, pooling)], mode="resident")
        ids = IDS[:, :1]
        expected = tables(ids)
        nn.Sequential(tables).to(dtype)
        for each in (tables, copy.deepcopy(tables)):
            assert torch.equal(each(ids), expected.to(dtype))
        each(ids).sum().backward()
        assert tables.float()(ids).dtype == torch.float32
        with pytest.raises(Error, match="float64"):
            tables.double()


def test_convert_and_copies_fill_no_rows_that_they_overwrite(monkeypatch):
    model = nn.Sequential(bag_of())
    before = model[0].weight.detach().clone()
    monkeypatch.setattr(EmbeddingTables, "initialise", lambda *_: pytest.fail("filled"))
    convert(model, mode="resident")
    assert torch.equal(copy.deepcopy(model)[0].weight, before)


@pytest.mark.parametrize("tables, optimizer, preset, said", [
    ([(50, 200)], "sgd", "tiny", "800 bytes: .* at most 512; presets that fit: ecp5, alveo-u55c"),
    ([(50, 128)], "adam", "ecp5", "1536 bytes: .* at most 1024; presets that fit: alveo-u55c"),
    ([(50, 400)], "adam", "alveo-u55c", "4800 bytes: .* no preset fits"),
    ([(50, 8)] * 33, "sgd", "ecp5", "33 tables: .* at most 32; presets that fit: alveo-u55c"),
    ([(50, 4), (50, 8), (50, 12)], "sgd", "ecp5", "3 kinds .*; presets that fit: tiny, alveo-u55c"),
    ([(1 << 33, 4)], "sgd", "alveo-u55c", "8,589,934,592 rows: .* at most 2"),
])
def test_sizes_are_checked_before_memory_is_allocated(monkeypatch, tables, optimizer, preset, said):
    monkeypatch.setattr(RowKind, "allocate", lambda *_: pytest.fail("allocated"))
    configs = [TableConfig(f"t{number}", *each) for number, each in enumerate(tables)]
    with pytest.raises(Error, match=said):
        HotEmbeddingBagCollection(configs, "model", optimizer=optimizer, preset=preset)


@pytest.mark.parametrize("padding", [-51, 50])
def test_a_padding_index_is_a_row(padding):
    with pytest.raises(Error, match="padding_idx"):
        HotEmbeddingBag(50, 8, padding_idx=padding, cache="resident")
    assert HotEmbeddingBag(50, 8, padding_idx=-1, cache="resident").padding_idx == 49


def test_the_random_state_belongs_to_the_caller():
    def draw(make):
        torch.manual_seed(5)
        make()
        return torch.rand(1).item()

    convert_ = draw(lambda: convert(nn.Sequential(bag_of()), mode="resident"))
    assert convert_ == draw(bag_of)  # only the bag that is replaced draws
    first, second = (draw_table() for _ in range(2))
    assert torch.equal(first, second)


def draw_table():
    torch.manual_seed(5)
    return HotEmbeddingBagCollection([TableConfig("a", 50, 8)], mode="resident").table("a")[0]


def test_tables_of_several_dims_start_differently():
    tables = HotEmbeddingBagCollection(
        [TableConfig("a", 100, 8), TableConfig("b", 100, 16)], mode="resident", seed=0)
    assert not torch.equal(tables.table("a")[0].ravel()[:64], tables.table("b")[0].ravel()[:64])


@pytest.mark.parametrize("lr", [-1, float("nan"), float("inf"), "0.1"])
def test_a_rate_is_a_number(lr):
    with pytest.raises(Error, match="rate"):
        HotEmbeddingBagCollection([TableConfig("a", 5, 4)], mode="resident", lr=lr)


def test_arguments_of_the_optimizer_have_an_effect_or_are_refused():
    with pytest.raises(Error, match="'sgd', 'rowwise_adagrad', 'adagrad'"):
        HotEmbeddingBagCollection([TableConfig("a", 5, 4)], mode="resident", optimizer="lamb")
    tables = HotEmbeddingBagCollection([TableConfig("a", 5, 4)], mode="resident", lr=1)
    with pytest.raises(Error, match="rows only"):
        tables.optimizer.add_param_group({"params": [nn.Parameter(torch.ones(3))]})
    tables.optimizer.param_groups[0]["momentum"] = 0.1
    with pytest.raises(Error, match="momentum"):
        tables.optimizer.step()
    tables.optimizer.param_groups[0] |= {"momentum": 0, "lr": -1}
    with pytest.raises(Error, match="rate"):
        tables.optimizer.step()


class Keyed:
    """A KeyedJaggedTensor of features a and b."""

    def __init__(self, strides=(3, 3), weights=None):
        self.strides, self.weights = strides, weights

    def keys(self):
        return ["a", "b"]

    def values(self):
        return torch.arange(6)

    def lengths(self):
        return torch.ones(6, dtype=torch.int64)

    def weights_or_none(self):
        return self.weights

    def stride_per_key(self):
        return list(self.strides)


def keyed_tables(**options):
    return HotEmbeddingBagCollection([TableConfig("a", 50, 8), TableConfig("b", 50, 8)],
                                     mode="resident", seed=0, **options)


def test_weights_of_a_keyed_tensor_count_where_the_collection_is_weighted():
    weights = torch.full((6,), 2.0)
    plain, weighted = keyed_tables(), keyed_tables(is_weighted=True)
    ids = torch.arange(6).view(2, 3).T
    expected = plain(ids)
    for tables, factor in ((plain, 1), (weighted, 2)):
        result = tables(Keyed(weights=weights))
        result = result if isinstance(result, torch.Tensor) else result.values()
        assert torch.equal(result, factor * expected)
    with pytest.raises(BatchError, match="no weights"):
        weighted(Keyed())


def test_a_batch_size_per_key_is_refused():
    with pytest.raises(BatchError, match="'a': 2, 'b': 4"):
        keyed_tables()(Keyed(strides=(2, 4)))


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


@pytest.mark.parametrize("mode", ["resident", "scratchpipe"])
@pytest.mark.parametrize("kind", [nn.EmbeddingBag, nn.Embedding])
def test_results_may_be_changed_in_place(mode, kind):
    card = {} if mode == "resident" else {"device": "model", "preset": "tiny"}
    plain = nn.Sequential(kind(50, 8))
    model = copy.deepcopy(plain)
    rows = torch.optim.SGD(plain.parameters(), 0.1)
    with convert(model, mode=mode, lr=0.1, **card) as tables:
        for net, optimizer in ((plain, rows), (model, tables.optimizer)):
            result = net(IDS)
            result += 1
            nn.functional.relu(result, inplace=True)
            result.square().sum().backward()
            optimizer.step()
        torch.testing.assert_close(model[0].weight.detach(), plain[0].weight.detach())


def test_a_checkpoint_follows_the_umask_and_keeps_modes_and_links(tmp_path):
    before = os.umask(0o022)
    try:
        paths = {name: tmp_path / name for name in ("new.pt", "old.pt", "target.pt")}
        paths["old.pt"].touch()
        paths["old.pt"].chmod(0o640)
        link = tmp_path / "link.pt"
        link.symlink_to(paths["target.pt"])
        for path in (paths["new.pt"], paths["old.pt"], link):
            Checkpoint(path).save(a=1)
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(paths[name].stat().st_mode) for name in paths]
    assert modes == [0o644, 0o640, 0o644]
    assert link.is_symlink() and Checkpoint(paths["target.pt"]).load() == {"a": 1}


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


def test_the_module_that_was_replaced_is_not_called_any_more():
    bag = bag_of()
    model, elsewhere = nn.Sequential(bag), [bag]
    convert(model, mode="resident")
    with pytest.raises(Error, match="replaced by convert"):
        elsewhere[0](IDS)


def fake(model):
    with FakeTensorMode(allow_non_fake_inputs=True):
        model(IDS)


TRACED = {
    "trace": lambda model: torch.jit.trace(model, IDS),
    "export": lambda model: torch.export.export(model, (IDS,)),
    "vmap": lambda model: torch.vmap(model)(IDS[:, None]),
    "make_fx": lambda model: make_fx(model)(IDS),
    "linearize": lambda model: torch.func.linearize(lambda x: model[1](model[0](IDS) * x),
                                                    torch.ones(8)),
    "fake": fake,
    "grad": lambda model: torch.func.grad(
        lambda parameters: torch.func.functional_call(model, parameters, (IDS,)).sum())(
            {name: each.detach() for name, each in model.named_parameters()}),
}


@pytest.mark.parametrize("name", TRACED)
def test_tracing_and_transforms_are_refused(name):
    model = nn.Sequential(bag_of(), nn.Linear(8, 1))
    convert(model, mode="resident")
    with pytest.raises(Error, match=r"traced, exported or transformed|replaced"):
        TRACED[name](model)


def test_the_default_dtype_of_later_calls_is_the_callers():
    model = nn.Sequential(bag_of())
    tables = convert(model, mode="resident")
    torch.set_default_dtype(torch.float64)
    try:
        for ids in (IDS, IDS[:, :1], IDS[:, :0], IDS[:0]):
            assert model(ids).dtype == torch.float32
            model(ids).sum().backward()
            tables.optimizer.step()
    finally:
        torch.set_default_dtype(torch.float32)


def test_weights_of_lookups_have_the_shape_of_the_ids():
    bag = HotEmbeddingBag(50, 8, mode="sum", cache="resident")
    tables = HotEmbeddingBagCollection([TableConfig("a", 50, 8), TableConfig("b", 50, 8)],
                                       mode="resident", seed=0)
    ids, weights = IDS[:, :2], torch.rand(16, 2)
    expected = torch.cat([nn.functional.embedding_bag(
        ids[:, column:column + 1], tables.table("ab"[column])[0], mode="sum",
        per_sample_weights=weights[:, column:column + 1]) for column in range(2)], dim=1)
    torch.testing.assert_close(tables(ids, None, weights), expected)
    for module in (bag, tables):
        for given in (weights.T, weights.ravel(), weights[:, :1]):
            with pytest.raises(BatchError, match=r"expected .*weights of shape"):
                module(ids, None, given)
    with pytest.raises(BatchError, match="expected a weight for each"):
        tables(ids.ravel(), torch.arange(33), weights.ravel()[:, None])


def test_parameters_are_drawn_as_those_of_the_bag():
    plain, bag = bag_of(padding_idx=3), bag_of(padding_idx=3)
    model = nn.Sequential(bag)
    convert(model, mode="resident")
    for each in (plain, model[0]):
        torch.manual_seed(3)
        each.reset_parameters()
    assert torch.equal(model[0].weight, plain.weight)


def test_copies_of_the_weight_are_plain_tensors(tmp_path):
    model = nn.Sequential(bag_of(), bag_of())
    convert(model, mode="resident")
    kept = model.state_dict()
    torch.save(kept, tmp_path / "kept")
    for each in (copy.deepcopy(kept), torch.load(tmp_path / "kept", weights_only=True)):
        assert all(type(value) is torch.Tensor for value in each.values())
        assert all(torch.equal(value, kept[name]) for name, value in each.items())
    assert model.state_dict(keep_vars=True)["0.weight"].requires_grad


def test_the_reference_for_the_checks_is_sound():
    """Without a write both models agree, so that the comparison above can fail."""
    plain = copy.deepcopy(written("resident", lambda weight: None))
    changed = written("resident", WRITES["zero"])
    assert not np.array_equal(plain[1].numpy(), changed[1].numpy())


class Summed(nn.ModuleList):
    """Three bags, whose results are side by side."""

    def __init__(self):
        super().__init__(nn.EmbeddingBag(5, 2, mode="sum") for _ in range(3))

    def forward(self, ids):
        return torch.cat([bag(ids) for bag in self], 1)


@pytest.mark.parametrize("mode", ["resident", "scratchpipe"])
@pytest.mark.parametrize("inputs", [
    None, lambda ids: {f"{number}": ids for number in range(3)}], ids=["calls", "announced"])
def test_bags_of_no_samples(mode, inputs):
    """Of several bags, none of which has a place of its own in the results."""
    model = Summed()
    with convert(model, inputs, mode=mode, lr=0.1) as tables:
        for samples in (0, 4, 0):
            pooled = model(torch.ones(samples, 3, dtype=torch.int64))
            assert pooled.shape == (samples, 6)
            pooled.sum().backward()
            tables.optimizer.step()
