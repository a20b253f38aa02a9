"""Optimizers of rows refuse parameters without sense, and count the steps that have gradients."""

import copy
import math

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hotrow.contract.errors import Error
from hotrow.torch import (
    SGD,
    Adagrad,
    Adam,
    HotEmbeddingBagCollection,
    Options,
    PartialRowwiseAdam,
    RowwiseAdagrad,
    ShardedEmbeddingBagCollection,
    TableConfig,
)
from torch import nn

TABLES = [TableConfig("a", 40, 4)]
IDS = torch.arange(40)[:, None]
NO_NUMBERS = [None, "x", b"0.1", True, -1, math.nan, math.inf, 1e39, 10**400, [0.1], 1j,
              np.array([0.1]), torch.ones(2)]


def kind(value):
    return type(value).__name__


def collection(optimizer, **options):
    return HotEmbeddingBagCollection(TABLES, mode="resident", optimizer=optimizer,
                                     seed=3, **options)


def train(tables):
    tables(IDS).square().sum().backward()
    tables.optimizer.step()


@pytest.mark.parametrize("value", NO_NUMBERS, ids=kind)
@pytest.mark.parametrize("rule, name", [
    *((rule, name) for rule in (SGD, RowwiseAdagrad, Adagrad, Adam, PartialRowwiseAdam)
      for name in ("lr", "weight_decay")),
    *((rule, "eps") for rule in (RowwiseAdagrad, Adagrad, Adam, PartialRowwiseAdam)),
    *((rule, "initial") for rule in (RowwiseAdagrad, Adagrad))])
def test_what_is_no_number_of_at_least_0_is_refused(rule, name, value):
    with pytest.raises(Error, match=rf"^expected {name}\b.* of at least 0, .*, got "):
        rule(**{"lr": 0.1, name: value})


@pytest.mark.parametrize("value", [
    None, 0.9, "ab", (0.9,), (0.9, 0.99, 0.999), (0.9, "x"), (0.9, None), (0.9, math.nan),
    (-0.1, 0.9), (0.9, 1.0), {0.9, 0.99}, {"a": 0.9, "b": 0.9}, iter((0.9, 0.99))], ids=kind)
def test_what_is_no_pair_of_betas_is_refused(value):
    with pytest.raises(Error, match=r"^expected betas, two numbers from 0 to less than 1, got "):
        Adam(0.1, betas=value)


@pytest.mark.parametrize("seed", [1 << 63, -(1 << 63) - 1, 1 << 70, 0.5, "x", [1]], ids=repr)
def test_a_seed_beyond_64_bits_is_refused(seed):
    with pytest.raises(Error, match=r"^expected rounding_seed, an integer of 64 bits"):
        SGD(0.1, rounding_seed=seed)


@pytest.mark.parametrize("seed", [(1 << 63) - 1, -(1 << 63)])
def test_any_seed_of_64_bits_trains(seed):
    tables = HotEmbeddingBagCollection([TableConfig("a", 40, 4, dtype=torch.bfloat16)],
                                       mode="resident", optimizer=SGD(0.1, rounding_seed=seed))
    before = tables.contents.table("a")[0].clone()
    train(tables)
    assert not torch.equal(tables.contents.table("a")[0], before)


@pytest.mark.parametrize("lr", [np.float64(0.1), np.float32(0.1), torch.tensor(0.1), 1, 0])
@pytest.mark.parametrize("name", ["sgd", "rowwise_adagrad", "adagrad", "adam"])
def test_numbers_of_other_kinds_train(name, lr):
    tables = collection(name, lr=lr)
    before = tables.contents.table("a")[0].clone()
    train(tables)
    assert torch.equal(tables.contents.table("a")[0], before) == (not lr)


@pytest.mark.parametrize("lr", [None, "x", -3.0])
def test_the_rate_of_a_named_optimizer_is_refused(lr):
    with pytest.raises(Error, match=r"^expected lr, the learning rate"):
        collection("sgd", lr=lr)


def test_a_rule_that_was_changed_is_checked_again():
    rule = RowwiseAdagrad(0.1)
    rule.initial = -1
    with pytest.raises(Error, match=r"^expected initial"):
        collection(rule)


@pytest.mark.parametrize("name, value, words", [
    ("lr", -3, "expected lr, .* got -3"), ("lr", None, "expected lr, .* got None"),
    ("weight_decay", -1, "expected weight_decay"), ("betas", 0.9, "expected betas"),
    ("eps", "x", "expected eps"), ("momentum", 0.9, "'momentum': 0.9"),
    *(("step", value, "expected step, the number of steps, of at least 0, got")
      for value in (-1, None, "x", 2.5, math.nan, math.inf))])
def test_a_loaded_group_without_sense_is_refused_and_loads_nothing(name, value, words):
    tables, other = collection("adam"), collection("adam")
    train(other)
    state = copy.deepcopy(other.optimizer.state_dict())
    state["param_groups"][0][name] = value
    before = copy.deepcopy(tables.optimizer.state_dict())
    with pytest.raises(Error, match=words):
        tables.optimizer.load_state_dict(state)
    after = tables.optimizer.state_dict()
    assert after["param_groups"] == before["param_groups"]
    assert torch.equal(after["state"][0]["a"], before["state"][0]["a"])
    train(tables)


@pytest.mark.parametrize("mode", ["resident", "scratchpipe"])
def test_a_step_without_gradients_is_none_as_with_adam_of_pytorch(mode):
    card = {} if mode == "resident" else {"device": "model", "preset": "tiny"}
    with HotEmbeddingBagCollection(TABLES, mode=mode, optimizer=Adam(0.1, eps=1e-3),
                                   seed=3, **card) as tables:
        rows = nn.Parameter(tables.contents.table("a")[0].clone())
        theirs = torch.optim.Adam([rows], 0.1, eps=1e-3)
        for number in range(1, 4):
            train(tables)
            rows.square().sum().backward()
            theirs.step()
            theirs.zero_grad()
            for _ in range(2):
                tables.optimizer.step()
                theirs.step()
            assert tables.optimizer.param_groups[0]["step"] == number == theirs.state[rows]["step"]
            torch.testing.assert_close(tables.embeddings["a"].weight.detach(), rows.detach(),
                                       rtol=1e-5, atol=1e-6)
        assert tables.staging.steps == 9 and tables.staging.counted == 3


@pytest.mark.parametrize("rule", [PartialRowwiseAdam(0.1), SGD(0.1, rounding_seed=3)],
                         ids=lambda rule: rule.name)
def test_steps_without_gradients_leave_the_bits(rule):
    dtype = torch.float32 if rule.state else torch.float16
    digests = []
    for idle in (0, 3):
        tables = HotEmbeddingBagCollection([TableConfig("a", 40, 4, dtype=dtype)], mode="resident",
                                           optimizer=rule, options=Options(seed=3))
        for _ in range(3):
            train(tables)
            for _ in range(idle):
                tables.optimizer.step()
            tables(IDS).sum().backward()
            tables.optimizer.zero_grad()
            tables.optimizer.step()
        digests.append(tables.sha256())
    assert digests[0] == digests[1]


@pytest.fixture
def one_rank():
    """A process group with this process only."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("samples", [0, 3])
@pytest.mark.parametrize("kind", [HotEmbeddingBagCollection, ShardedEmbeddingBagCollection])
def test_a_backward_without_lookups_counts_as_with_adam_of_pytorch(one_rank, kind, samples):
    """And as with several processes, of which another may have lookups."""
    bag = nn.EmbeddingBag(40, 4, mode="sum")
    theirs = torch.optim.Adam(bag.parameters(), 0.1)
    none = torch.zeros(0, dtype=torch.int64), torch.zeros(samples, dtype=torch.int64)
    with kind(TABLES, mode="resident", optimizer="adam", options=Options(seed=3)) as tables:
        for number in (1, 2):
            bag(*none).sum().backward()
            theirs.step()
            theirs.zero_grad()
            tables([none]).sum().backward()
            tables.optimizer.step()
            assert tables.optimizer.param_groups[0]["step"] == number
            assert theirs.state[bag.weight]["step"] == number


def test_ranks_count_every_step(one_rank):
    """A rank does not know of the backward of another."""
    with ShardedEmbeddingBagCollection(TABLES, mode="resident", optimizer="adam",
                                       options=Options(seed=3)) as tables:
        train(tables)
        tables.optimizer.step()
        assert tables.optimizer.param_groups[0]["step"] == 2
