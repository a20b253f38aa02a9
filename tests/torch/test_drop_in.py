"""Properties of a replaced module: each one is carried, or refused by name."""

import copy

import pytest
import torch
from hotrow.contract.errors import BatchError, Error
from hotrow.torch import HotEmbeddingBag, HotEmbeddingBagCollection, Options, TableConfig, convert
from hotrow.torch.memory.rows import RowKind
from hotrow.torch.memory.tables import EmbeddingTables
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from tests.torch.bags import IDS, bag_of


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_results_have_the_dtype_of_the_model(dtype):
    model = nn.Sequential(bag_of(dtype), nn.Linear(8, 1, dtype=dtype))
    convert(model, mode="resident")
    assert model(IDS).dtype == dtype


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
        HotEmbeddingBagCollection(configs, "model", optimizer=optimizer,
                                  options=Options(preset=preset))


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
    tables = HotEmbeddingBagCollection([TableConfig("a", 50, 8)], mode="resident")
    return tables.contents.table("a")[0]


def test_tables_of_several_dims_start_differently():
    tables = HotEmbeddingBagCollection([TableConfig("a", 100, 8), TableConfig("b", 100, 16)],
                                       mode="resident", options=Options(seed=0))
    a, b = (tables.contents.table(name)[0].ravel()[:64] for name in "ab")
    assert not torch.equal(a, b)


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
    "functionalize": lambda model: torch.func.functionalize(model)(IDS),
    "functionalize around": lambda model: torch.func.functionalize(lambda x: model(IDS) * x)(
        torch.ones(8)),
    "grad": lambda model: torch.func.grad(
        lambda parameters: torch.func.functional_call(model, parameters, (IDS,)).sum())(
            {name: each.detach() for name, each in model.named_parameters()}),
}


@pytest.mark.parametrize("name", TRACED)
def test_tracing_and_transforms_are_refused(name):
    model = nn.Sequential(bag_of(), nn.Linear(8, 1))
    convert(model, mode="resident")
    with pytest.raises((Error, RuntimeError), match=r"traced, exported or transformed|replaced|"
                       r"data pointer|value out of a tracing tensor|_local_scalar_dense"):
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
                                       mode="resident", options=Options(seed=0))
    ids, weights = IDS[:, :2], torch.rand(16, 2)
    expected = torch.cat([nn.functional.embedding_bag(
        ids[:, column:column + 1], tables.contents.table("ab"[column])[0], mode="sum",
        per_sample_weights=weights[:, column:column + 1]) for column in range(2)], dim=1)
    torch.testing.assert_close(tables(ids, None, weights), expected)
    for module in (bag, tables):
        for given in (weights.T, weights.ravel(), weights[:, :1]):
            with pytest.raises(BatchError, match=r"expected .*weights of shape"):
                module(ids, None, given)
    with pytest.raises(BatchError, match="expected a weight for each"):
        tables(ids.ravel(), torch.arange(33), weights.ravel()[:, None])


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
