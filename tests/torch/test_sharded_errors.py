"""What goes wrong at one of several ranks in learn(), table() and average_gradients() is an error
at all, and they stay in step.

As a script, started by torchrun with names of checks, it is one of the ranks.
"""

import os
import re
import sys
from contextlib import contextmanager
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from hotrow.contract.errors import Error
from hotrow.torch import ShardedEmbeddingBagCollection, TableConfig, average_gradients
from torch import nn

from tests.torch.launching import torchrun

TABLES = (TableConfig("a", 40, 4), TableConfig("b", 40, 4))
PATIENCE = 120  # seconds that a rank waits for another
IDS = torch.tensor([[1, 2], [30, 4], [39, 39]])


def place():
    """(this rank, whether it is the last one, the number of ranks)."""
    rank, world = dist.get_rank(), dist.get_world_size()
    return rank, rank == world - 1, world


@contextmanager
def refused(here, elsewhere):
    """The block's Error says `here` at the last rank, and `elsewhere` at the others."""
    try:
        yield
    except Error as error:
        assert re.search(here if place()[1] else elsewhere, str(error)), error
    else:
        raise AssertionError(f"expected an error: {here}, or {elsewhere} at other ranks")


def opened(mode="scratchpipe"):
    card = {} if mode == "resident" else {"device": "cpu", "preset": "tiny"}
    return ShardedEmbeddingBagCollection(TABLES, mode=mode, lr=0.1, seed=3, **card)


def step(shared):
    shared(IDS).square().sum().backward()
    shared.optimizer.step()


def learning_is_refused():
    """Wrong arguments of the last rank, before and after a step."""
    _, last, world = place()
    wrong = (({"rows": {"a": None}}, "rows of table 'a' .*NoneType"),
             ({"rows": {"zz": [1]}}, "there is no table 'zz'"),
             ({"rows": {"a": [1, 47]}}, r"47 is no row of table 'a' \(position 1 of its list\)"),
             ({"rows": {"a": [1, 2, 1]}}, r"row 1 of table 'a' is listed twice \(positions 0 and"),
             ({"rows": {"a": [1]}, "limit": -1}, "not -1"),
             ({"rows": {"a": [1]}, "limit": 1000}, "1,000 hot rows do not fit"),
             ({"warmup_ratio": float("nan")}, "not nan"),
             ({"ids_freq_mapping": {"a": [1] * 50}}, r"got list of shape \[50\]"))
    for mode in ("resident", "scratchpipe", "hotline"):
        with opened(mode) as shared:
            for _ in range(2):
                for options, message in wrong:
                    if mode == "resident" and options.get("limit") == 1000:
                        continue  # it has no slots
                    with refused(message, f"because of the arguments of rank {world - 1}"):
                        shared.learn(**options if last else {"rows": {"a": [1]}})
                step(shared)  # after which batches are finished by all ranks in learn()
            rows = {"a": [7, 3, 38, 20], "b": [1]}
            assert shared.learn(rows) == (0 if mode == "resident" else 5)
            step(shared)
            whole = shared.state_dict()["embedding_bags.a.weight"].clone()
        assert torch.isfinite(whole).all()
        if mode != "resident":
            with refused("is closed", "is closed"):
                shared.learn(rows)


def learning_fails_at_the_card():
    """The last rank's device fails: an error at all, and the next call goes on."""
    _, last, world = place()
    with opened("hotline") as shared:
        inner = shared.store.inner
        if last:
            inner.filling.warm = lambda rows: (_ for _ in ()).throw(Error("planted"))
        with refused("planted", f"because of the card of rank {world - 1}"):
            shared.learn({"a": [1]})
        vars(inner.filling).pop("warm", None)
        assert shared.learn({"a": [1, 2]}) == 2
        step(shared)


def rows_go_to_their_owners():
    """Rows and counts of whole tables, of which each rank holds its part."""
    rank, _, world = place()
    with opened("hotline") as shared:
        assert shared.learn({"a": [9, 0, 3], "b": [2, 39]}) == 5
        held = shared.store.card.storages[0].resident
        spans = shared.store.sharding.shards[0].whole_rows(held)
        first = shared.store.groups[0].tables.first[1]
        wanted = [row for row in (9, 0, 3) if row % world == rank]
        wanted += [int(first) + row for row in (2, 39) if (row + 1) % world == rank]
        assert sorted(spans.tolist()) == sorted(wanted)
        counts = torch.zeros(40)
        counts[[5, 6, 39]] = torch.tensor([1.0, 0.5, 7.0])
        assert shared.learn(ids_freq_mapping={"a": counts}) == 3


def tables_are_refused():
    """A name that the last rank alone gives, known or not."""
    _, _, world = place()
    with opened() as shared:
        names = ("zz", "b") if world > 1 else ("zz",)
        for name in names:
            here = "there is no table 'zz'" if name == "zz" else "make different calls"
            with refused(here, "make different calls.*table 'a' was not gathered"):
                shared.contents.table(name if place()[1] else "a")
        weights, state = shared.contents.table("a")
        assert weights.shape == (40, 4) and state is None
        step(shared)


def parameter(values, dtype=torch.float32):
    return nn.Parameter(torch.zeros(values, dtype=dtype))


def drawn(shape, dtype, seed):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def gradients_are_averaged():
    """Of several dtypes, some of which ranks lack; those that all lack stay None."""
    rank, _, world = place()
    kinds = [torch.float32, torch.float16, torch.float32, torch.bfloat16, torch.float64,
             torch.float32]
    shapes = [(3, 5), (7,), (4,), (2, 2), (1,), ()]
    ranks_with = [range(world), range(world), [], [world - 1], range(world), [0]]
    given = [parameter(shape, dtype) for shape, dtype in zip(shapes, kinds, strict=True)]
    frozen = parameter(3).requires_grad_(False)

    def of(number, each):
        return drawn(shapes[number], kinds[number], 10 * number + each)

    for number, each in enumerate(given):
        if rank in ranks_with[number]:
            each.grad = of(number, rank)
    average_gradients([*given[:3], frozen, *given[3:]])
    for number, each in enumerate(given):
        if not ranks_with[number]:
            assert each.grad is None
            continue
        total = torch.zeros_like(each) if 0 not in ranks_with[number] else of(number, 0)
        for other in range(1, world):
            total = total + (of(number, other) if other in ranks_with[number]
                             else torch.zeros_like(each))
        assert each.grad.dtype == each.dtype and each.grad.shape == each.shape
        assert torch.equal(each.grad, (total / world).detach()), number
    assert frozen.grad is None
    average_gradients([])
    average_gradients([parameter(3)])  # without any gradient


def a_parameter_without_gradients_stays():
    """Also with momentum and weight decay."""
    used, unused = nn.Linear(3, 2), nn.Linear(3, 2)
    parameters = [*used.parameters(), *unused.parameters()]
    dense = torch.optim.SGD(parameters, 0.1, momentum=0.9, weight_decay=0.1)
    before = [each.detach().clone() for each in parameters]
    used(torch.ones(2, 3)).sum().backward()
    average_gradients(parameters)
    dense.step()
    same = [torch.equal(each, other) for each, other in zip(parameters, before, strict=True)]
    assert same == [False, False, True, True]


def gradients_are_refused():
    """A sparse gradient, or other parameters, at the last rank: no gradient changes."""
    _, last, world = place()
    dense, embedding = nn.Linear(2, 2), nn.Embedding(9, 2, sparse=last)
    parameters = [*dense.parameters(), *embedding.parameters()]
    dense(embedding(torch.tensor([1, 1, 3]))).sum().backward()
    before = [each.grad.clone() for each in parameters]
    with refused(r"parameter 2 of .*shape \[9, 2\], has a gradient of layout torch.sparse_coo.*"
                 "sparse=False",
                 fr"^gradients \(3 tensors: 24 of torch.float32\) .*because of .*rank {world - 1}"):
        average_gradients(parameters)
    for each, kept in zip(parameters, before, strict=True):
        assert torch.equal(each.grad.to_dense(), kept.to_dense())
    average_gradients(dense.parameters())
    if world == 1:
        return
    for others in ([], [parameter(8)], [parameter(6, torch.float16)]):
        with refused("make different calls", "make different calls"):
            average_gradients(others if last else dense.parameters())
    sizes = (5, 3) if last else (3, 5)
    message = "parameter 0 .* has 3 numbers at rank 0, and 5 at rank 1: give the same parameters"
    with refused(message, message):
        average_gradients([parameter(size) for size in sizes])
    average_gradients(dense.parameters())


CHECKS = {each.__name__: each for each in (
    learning_is_refused, learning_fails_at_the_card, rows_go_to_their_owners, tables_are_refused,
    gradients_are_averaged, a_parameter_without_gradients_stays, gradients_are_refused)}


@pytest.fixture
def one_rank():
    """A process group with this process only."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("check", CHECKS)
def test_a_single_rank(one_rank, check):
    CHECKS[check]()


@pytest.mark.long
def test_two_ranks(tmp_path):
    torchrun(2, tmp_path, __file__, *CHECKS)


def test_averaging_needs_ranks():
    with pytest.raises(Error, match="torchrun"):
        average_gradients([parameter(3)])


def main(*names):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=PATIENCE))
    for name in names:
        CHECKS[name]()
        print(name)
        dist.barrier()
    os._exit(0)  # without an end of the group's threads


if __name__ == "__main__":
    main(*sys.argv[1:])
