"""Steps of rows against PyTorch's optimizers and formulas in fp64; stochastic rounding."""

import copy

import numpy as np
import pytest
import torch
from hotrow.contract.errors import Error
from hotrow.torch import (
    SGD,
    Adagrad,
    Adam,
    HotEmbeddingBagCollection,
    Options,
    PartialRowwiseAdam,
    RowwiseAdagrad,
    TableConfig,
)
from hotrow.torch.optim import rules
from hotrow.torch.optim.arithmetic import updated
from hotrow.torch.optim.rounding import _drawn, round_stochastically, row_keys
from hotrow.torch.training.options import STATEFUL
from torch import nn

ROWS, DIM, STEPS = 40, 8, 20
ALL = torch.arange(ROWS)[None]


def collection(optimizer, dtype=torch.float32, **options):
    return HotEmbeddingBagCollection([TableConfig("a", ROWS, DIM, dtype=dtype)], mode="resident",
                                     optimizer=optimizer, seed=3, **options)


def beside(tables, optimizer, **options):
    """A parameter with the rows of a collection, and its optimizer of PyTorch."""
    rows = nn.Parameter(tables.contents.table("a")[0].clone())
    return rows, optimizer([rows], **options)


def step_both(tables, rows, theirs, ids, gradient, sparse=False):
    found = tables([(ids, torch.arange(len(ids)))])
    found.backward(gradient)
    tables.optimizer.step()
    if sparse:
        rows.grad = torch.sparse_coo_tensor(ids[None], gradient, rows.shape, check_invariants=True)
    else:
        rows.grad = torch.zeros_like(rows).index_add_(0, ids, gradient)
    theirs.step()


@pytest.mark.parametrize("rule, optimizer, options", [
    (SGD(0.1, weight_decay=0.01), torch.optim.SGD, {"weight_decay": 0.01}),
    (Adam(0.1, eps=1e-3), torch.optim.Adam, {"eps": 1e-3}),
    (Adam(0.1, (0.5, 0.9), weight_decay=0.1), torch.optim.Adam,
     {"betas": (0.5, 0.9), "weight_decay": 0.1}),
    (Adam(0.1, weight_decay=0.1, decoupled_weight_decay=True), torch.optim.AdamW,
     {"weight_decay": 0.1}),
], ids=["sgd, L2", "adam", "adam, L2", "adam, decoupled"])
def test_as_pytorch_where_every_row_is_looked_up(rule, optimizer, options):
    generator = torch.Generator().manual_seed(1)
    tables = collection(rule)
    rows, theirs = beside(tables, optimizer, lr=0.1, **options)
    for _ in range(STEPS):
        gradient = torch.randn(ROWS, DIM, generator=generator)
        step_both(tables, rows, theirs, torch.arange(ROWS), gradient)
        torch.testing.assert_close(tables.contents.table("a")[0], rows.detach(),
                                   rtol=1e-5, atol=1e-6)


def test_adam_of_some_rows_is_sparse_adam():
    generator = torch.Generator().manual_seed(2)
    tables = collection(Adam(0.1, eps=1e-12))
    rows, theirs = beside(tables, torch.optim.SparseAdam, lr=0.1, eps=1e-12)
    for _ in range(STEPS):
        ids = torch.randperm(ROWS, generator=generator)[:7]
        gradient = torch.randn(7, DIM, generator=generator)
        step_both(tables, rows, theirs, ids, gradient, sparse=True)
        torch.testing.assert_close(tables.contents.table("a")[0], rows.detach(),
                                   rtol=1e-5, atol=1e-6)


def test_partial_rowwise_adam_against_fp64():
    """The formula of FBGEMM's optimizer, whose CPU build has no Adam to run beside."""
    rng, rule = np.random.default_rng(3), PartialRowwiseAdam(0.1, eps=1e-3)
    weights = rng.standard_normal((ROWS, DIM))
    first, second = np.zeros((ROWS, DIM)), np.zeros((ROWS, 1))
    found, state = torch.from_numpy(weights).float(), torch.zeros(ROWS, DIM + 1)
    for step in range(1, STEPS):
        gradient = rng.standard_normal((ROWS, DIM))
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * (gradient**2).mean(axis=1, keepdims=True)
        weights = weights - 0.1 * (first / (1 - 0.9**step)) / (
            np.sqrt(second / (1 - 0.999**step)) + 1e-3)
        rule.steps = step
        found, state = rule.update(found, torch.from_numpy(gradient).float(), state)
        np.testing.assert_allclose(found.numpy(), weights, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(state.numpy(), np.hstack((first, second)), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("decoupled", [False, True])
def test_weight_decay_of_rowwise_adagrad_against_fp64(decoupled):
    """FBGEMM's L2 and DECOUPLE, by the formulas of its GPU code: its CPU build ignores both."""
    rng, rate, decay = np.random.default_rng(6), 0.1, 0.05
    rule = RowwiseAdagrad(rate, 1e-3, 0.0, weight_decay=decay, decoupled_weight_decay=decoupled)
    weights, squares = rng.standard_normal((ROWS, DIM)), np.zeros(ROWS)
    found, state = torch.from_numpy(weights).float(), torch.zeros(ROWS)
    for _ in range(STEPS):
        gradient = rng.standard_normal((ROWS, DIM))
        squared = gradient if decoupled else gradient + decay * weights
        squares = squares + (squared**2).mean(axis=1)
        factor = (rate / (np.sqrt(squares) + 1e-3))[:, None]
        kept = 1 - decay * (rate if decoupled else factor)
        weights = kept * weights - factor * gradient
        found, state = rule.update(found, torch.from_numpy(gradient).float(), state)
        np.testing.assert_allclose(found.numpy(), weights, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(state.numpy(), squares, rtol=1e-5)


@pytest.mark.parametrize("wrong, name", [
    (lambda: SGD(0.1, momentum=0.9), "momentum"),
    (lambda: Adam(0.1, betas=(0.9, 1.0)), "betas"), (lambda: Adam(0.1, eps=-1), "eps"),
    (lambda: SGD(0.1, weight_decay=-1), "weight_decay"),
    (lambda: SGD(0.1, weight_decay="0.1"), "weight_decay"),
    (lambda: SGD(0.1, rounding_seed=0.5), "rounding_seed"),
    (lambda: collection(torch.optim.SGD([nn.Parameter(torch.ones(1))])), "PartialRowwiseAdam"),
    (lambda: collection("lamb"), "'partial_rowwise_adam'"),
    (lambda: collection("adam", torch.bfloat16), "float32 rows"),
])
def test_refusals_name_what_is_wrong(wrong, name):
    with pytest.raises(Error, match=name):
        wrong()


@pytest.mark.parametrize("name, value", [
    ("momentum", 0.9), ("nesterov", True), ("weight_decay", -1), ("lr", float("nan"))])
def test_the_parameter_group_has_an_effect_or_is_refused(name, value):
    tables = collection("sgd")
    tables.optimizer.param_groups[0][name] = value
    with pytest.raises(Error, match="rate" if name == "lr" else name):
        tables.optimizer.step()


def test_a_card_that_updates_rows_has_two_rules():
    for rule in ("adam", SGD(0.1, weight_decay=0.1)):
        with pytest.raises(Error, match=r"cold='gathered'"):
            HotEmbeddingBagCollection([TableConfig("a", ROWS, DIM)], "model", "hotline", rule,
                                      options=Options(preset="tiny", cold="pooled"))
    with HotEmbeddingBagCollection([TableConfig("a", ROWS, DIM)], "model", "hotline", "sgd",
                                   options=Options(preset="tiny", cold="pooled")) as tables:
        tables.optimizer.param_groups[0]["weight_decay"] = 0.1
        tables(torch.zeros(2, 1, dtype=torch.int64)).sum().backward()
        with pytest.raises(Error, match="weight decay"):
            tables.optimizer.step()
        tables.optimizer.zero_grad()


def test_schedules_and_weight_decay_in_the_group():
    tables = collection("sgd", lr=1.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(tables.optimizer, 1.0, 10, cycle_momentum=False)
    tables.optimizer.param_groups[0]["weight_decay"] = 0.5
    before, rate = tables.contents.table("a")[0].clone(), tables.optimizer.param_groups[0]["lr"]
    (tables(ALL.T) * 0).sum().backward()
    tables.optimizer.step()
    schedule.step()
    torch.testing.assert_close(tables.contents.table("a")[0], before * (1 - rate * 0.5))


@pytest.mark.parametrize("name", ["adam", "partial_rowwise_adam"])
def test_checkpoints_and_copies_go_on_as_before(name):
    """State and the number of steps, on which the bias correction depends."""
    ids = torch.randint(0, ROWS, (12, 6, 1), generator=torch.Generator().manual_seed(4))

    def train(tables, batches):
        for each in batches:
            tables(each).square().sum().backward()
            tables.optimizer.step()

    tables = collection(name)
    train(tables, ids[:6])
    tables.optimizer.param_groups[0]["lr"] = 0.3
    saved = copy.deepcopy((tables.state_dict(), tables.optimizer.state_dict()))
    copied = copy.deepcopy(tables)
    resumed = collection(name)
    resumed.load_state_dict(saved[0])
    resumed.optimizer.load_state_dict(saved[1])
    for each in (tables, copied, resumed):
        train(each, ids[6:])
    assert tables.sha256() == copied.sha256() == resumed.sha256()
    assert tables.optimizer.param_groups[0]["step"] == 12


def test_a_step_that_is_refused_is_not_counted():
    tables = collection("adam")
    tables(ALL.T).backward(torch.full((ROWS, DIM), torch.inf))
    with pytest.raises(Error, match="not finite"):
        tables.optimizer.step()
    assert tables.optimizer.param_groups[0]["step"] == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_stochastic_rounding(dtype):
    """Each result is one of the two neighbours, representable values stay, the mean is exact."""
    generator = torch.Generator().manual_seed(5)
    scales = 10.0 ** torch.randint(-9, 5, (2000, 1), generator=generator)
    values = torch.randn(2000, DIM, generator=generator) * scales
    values[:8, 0] = torch.tensor([0.0, -0.0, 1e-30, -1e-30, 7e4, -7e4, 65504.0, 3e38])
    keys = row_keys(1, torch.arange(2000))
    rounded = round_stochastically(values, dtype, keys, seed=9, step=1)
    exact = values.to(dtype).float()
    same = exact == values
    assert torch.equal(rounded.float()[same], exact[same])
    finite = torch.isfinite(rounded) & torch.isfinite(values.to(dtype))
    larger = torch.nextafter(rounded.abs(), torch.full_like(rounded, torch.inf)).float()
    smaller = torch.nextafter(rounded.abs(), torch.zeros_like(rounded)).float()
    assert ((smaller <= values.abs()) & (values.abs() <= larger))[finite].all()
    order = torch.randperm(2000, generator=generator)
    again = round_stochastically(values[order], dtype, keys[order], seed=9, step=1)
    assert torch.equal(again.view(torch.int16), rounded[order].view(torch.int16))
    for other in ({"seed": 8, "step": 1}, {"seed": 9, "step": 2}):
        assert not torch.equal(round_stochastically(values, dtype, keys, **other)[9:], rounded[9:])
    third = torch.full((20_000, 1), 1 + 2.0**-9 if dtype == torch.bfloat16 else 1 + 2.0**-12)
    mean = round_stochastically(third, dtype, torch.arange(20_000), 0, 0).double().mean()
    ulp = 2.0**-7 if dtype == torch.bfloat16 else 2.0**-10
    assert abs(mean - third[0, 0].double()) < 5 * ulp * 0.5 / 20_000**0.5


def test_a_draw_has_24_bits():
    drawn = _drawn(torch.arange(100), 4, seed=3, step=5) * 2.0**24
    assert 0 <= drawn.min() < 2**18 and 2**24 - 2**18 < drawn.max() < 2**24
    assert set((drawn % 2).unique().tolist()) == {0, 1}


def test_small_steps_move_narrow_rows_on_average():
    """Rounding to nearest loses steps below half a unit in the last place."""
    nearest, drawn = (collection(SGD(2.0**-12, rounding_seed=seed), torch.bfloat16)
                      for seed in (None, 3))
    for tables in (nearest, drawn):
        tables.contents.table("a")[0].fill_(1.0)
        for _ in range(64):
            tables(ALL.T).backward(torch.ones(ROWS, DIM))
            tables.optimizer.step()
    assert (nearest.embeddings["a"].weight.detach() == 1).all()
    assert abs(drawn.embeddings["a"].weight.detach().double().mean() - (1 - 64 * 2.0**-12)) < 2e-3


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_without_a_seed_narrow_rows_round_to_nearest(dtype):
    """Also in a step that is not SGD's alone, here with weight decay."""
    tables = collection(SGD(0.1, weight_decay=0.3), dtype)
    before = tables.contents.table("a")[0].float()
    tables(ALL.T).backward(torch.full((ROWS, DIM), 0.7))
    tables.optimizer.step()
    expected = before - 0.1 * (0.7 + 0.3 * before)
    torch.testing.assert_close(tables.contents.table("a")[0], expected.to(dtype))


def test_options_know_which_optimizers_have_state():
    """Without loading PyTorch."""
    assert {name: bool(rules.OPTIMIZERS[name].state) for name in STATEFUL} == STATEFUL


@pytest.mark.parametrize("rule, state", [(SGD(0.5), None), (Adagrad(0.5), torch.ones(3, DIM))])
def test_a_step_that_is_not_finite_leaves_the_rows(rule, state):
    weights, gradients = torch.ones(3, DIM), torch.full((3, DIM), 2.0)
    after, state_after = updated(rule, weights, state, gradients)
    assert not (after == weights).any()
    for finite, expected, expected_state in (
            (True, after, state_after), (False, weights, state)):
        found, found_state = updated(rule, weights, state, gradients, torch.tensor(finite))
        assert torch.equal(found, expected)
        assert (found_state is None if state is None else torch.equal(found_state, expected_state))
