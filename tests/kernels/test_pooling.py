import pytest
import torch
from hotrow.contract.errors import Error
from hotrow.kernels.copying import copy_rows
from hotrow.kernels.grouping import Grouper
from hotrow.kernels.pooling import BagLayout, merge_sums, pool_bags, sum_blocks, sum_gradients
from hotrow.kernels.updating import update_rows
from hotrow.torch.optim.arithmetic import pool, sum_duplicates
from hotrow.torch.optim.rules import SGD, Adagrad

from tests.kernels.draws import DTYPES, draw_bags, draw_rows, same_bits

FEATURES, SAMPLES, SLOTS = 5, 30, 70
DIMS = (1, 4, 13, 16, 24, 32, 64, 100, 128)
MEAN = torch.tensor([False, True, True, False, True])


def pooled_as(layout, rows, slots, weights):
    """Pooled bags by the trainer's arithmetic."""
    lengths = layout.lengths.long()
    pooled = pool(rows, slots.long(), lengths, weights)
    if layout.mean is not None:
        pooled = pooled / divisor(layout)
    return pooled.view(FEATURES, SAMPLES, -1).transpose(0, 1).reshape(SAMPLES, -1)


def divisor(layout):
    lengths = layout.lengths.long().view(FEATURES, SAMPLES).clamp(min=1)
    return torch.where(layout.mean[:, None], lengths, 1).float().view(-1, 1)


@pytest.mark.parametrize("kind", ["sum", "mean", "weighted"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", DIMS)
def test_pools_as_the_trainer_does(dim, dtype, kind):
    generator = torch.Generator().manual_seed(dim)
    rows = draw_rows(generator, SLOTS, dim + 3, dtype)[:, :dim]
    integers = torch.int32 if dim % 3 else torch.int64
    slots, lengths = draw_bags(generator, FEATURES, SAMPLES, SLOTS, integers)
    weights = torch.randn(len(slots), generator=generator) if kind == "weighted" else None
    layout = BagLayout(FEATURES, SAMPLES, dim, lengths, MEAN if kind == "mean" else None)
    assert same_bits(pool_bags(rows, slots, layout, weights),
                     pooled_as(layout, rows, slots, weights))


@pytest.mark.parametrize("kind", ["sum", "mean", "weighted"])
@pytest.mark.parametrize("dim", DIMS)
def test_sums_gradients_as_the_trainer_does(dim, kind):
    generator = torch.Generator().manual_seed(dim)
    slots, lengths = draw_bags(generator, FEATURES, SAMPLES, SLOTS)
    weights = torch.randn(len(slots), generator=generator) if kind == "weighted" else None
    layout = BagLayout(FEATURES, SAMPLES, dim, lengths, MEAN if kind == "mean" else None)
    gradients = draw_rows(generator, SAMPLES, FEATURES * dim)
    groups = Grouper(SLOTS).group(slots)
    sums, finite = sum_gradients(gradients, groups, layout, weights)
    by_bag = gradients.view(SAMPLES, FEATURES, dim).transpose(0, 1).reshape(-1, dim)
    if kind == "mean":
        by_bag = by_bag / divisor(layout)
    bags = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
    unique, expected = sum_duplicates(slots, bags, by_bag, weights)
    assert finite
    assert torch.equal(groups.distinct.sort().values, unique)
    assert same_bits(sums[groups.distinct.argsort()], expected)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dim", (*DIMS, 48, 200, 256))
def test_many_gradients_of_a_row(dim, weighted):
    generator = torch.Generator().manual_seed(dim)
    counts = torch.tensor([1, 2, 3, 4, 5, 8, 9, 15, 16, 17, 100, 2000])
    slots = torch.arange(len(counts)).repeat_interleave(counts)
    slots = slots[torch.randperm(len(slots), generator=generator)]
    weights = torch.randn(len(slots), generator=generator) if weighted else None
    gradients = draw_rows(generator, len(slots), dim)
    gradients[torch.rand(gradients.shape, generator=generator) < 0.2] = -0.0
    groups, layout = Grouper(len(counts)).group(slots), BagLayout(1, len(slots), dim)
    sums, finite = sum_gradients(gradients, groups, layout, weights)
    _, expected = sum_duplicates(slots, torch.arange(len(slots)), gradients, weights)
    assert finite and same_bits(sums[groups.distinct.argsort()], expected), f"seed {dim}"


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_no_bit(threads, monkeypatch):
    monkeypatch.setattr("hotrow.kernels.pooling.threads_for", lambda _: threads)
    for kind in ("sum", "mean", "weighted"):
        test_pools_as_the_trainer_does(16, torch.float32, kind)
        test_sums_gradients_as_the_trainer_does(16, kind)


def test_dense_batches_take_slots_with_any_strides():
    generator = torch.Generator().manual_seed(1)
    rows, ids = draw_rows(generator, SLOTS, 16), torch.randint(0, SLOTS, (SAMPLES, FEATURES))
    layout = BagLayout(FEATURES, SAMPLES, 16)
    expected = rows[ids].view(SAMPLES, -1) + 0.0
    assert same_bits(pool_bags(rows, ids.T, layout), expected)
    assert same_bits(pool_bags(rows, ids.T.reshape(-1), layout), expected)
    assert same_bits(pool_bags(rows, ids.T.int(), layout), expected)


def test_sums_lie_at_the_columns():
    generator = torch.Generator().manual_seed(2)
    rows, slots = draw_rows(generator, SLOTS, 4), torch.randint(0, SLOTS, (2, SAMPLES))
    layout = BagLayout(2, SAMPLES, 4, columns=torch.tensor([9, 1]), width=14)
    wide = torch.full((SAMPLES, 20), 7.0)
    pool_bags(rows, slots, layout, out=wide[:, :14])
    expected = torch.full((SAMPLES, 20), 7.0)
    expected[:, 9:13], expected[:, 1:5] = rows[slots[0]] + 0.0, rows[slots[1]] + 0.0
    assert same_bits(wide, expected)
    groups = Grouper(SLOTS).group(slots)
    sums, _ = sum_gradients(wide[:, :14], groups, layout)
    plain, _ = sum_gradients(torch.cat((wide[:, 9:13], wide[:, 1:5]), dim=1), groups,
                             BagLayout(2, SAMPLES, 4))
    assert same_bits(sums, plain)


@pytest.mark.parametrize("columns, stride, apart", [
    ((16, 0), 32, True), ((0, 15), 32, False), ((0, 17), 32, False), ((0, 32), 16, True),
    ((0, 31), 16, False), ((0, 48), 32, True), ((0, 33), 32, False), ((0, 16), 15, False)])
def test_sums_share_no_memory(columns, stride, apart):
    """Features of 16 elements in one row for each sample, or one after the other."""
    layout = BagLayout(2, 2, 16, columns=torch.tensor(columns), width=64)
    memory, rows = torch.full((128,), torch.nan), torch.ones(3, 16)
    out = memory.as_strided((2, 64), (stride, 1))
    if apart:
        pool_bags(rows, torch.tensor([0, 1, 2, 0]), layout, out=out)
        assert int((memory == 1).sum()) == 64 == int((~memory.isnan()).sum())
    else:
        with pytest.raises(Error, match="share none with each other"):
            pool_bags(rows, torch.tensor([0, 1, 2, 0]), layout, out=out)


TWO = torch.tensor([0, 1])


@pytest.mark.parametrize("call", [
    lambda to, given: pool_bags(given, TWO, BagLayout(1, 2, 16), out=to),
    lambda to, given: sum_gradients(given, Grouper(2).group(TWO), BagLayout(1, 2, 16), out=to),
    copy_rows,
    lambda to, given: update_rows(to, TWO, given, SGD(0.1)),
    lambda to, given: update_rows(torch.ones(2, 16), TWO, given, Adagrad(0.1), to),
    lambda to, given: update_rows(to, TWO, torch.ones(2, 16), Adagrad(0.1), given),
], ids=["pool", "sum", "copy", "update", "state beside gradients", "state beside rows"])
def test_what_is_written_is_not_read(call):
    memory = torch.ones(64)
    given = memory[:32].view(2, 16)
    for first in (0, 1, 31):
        with pytest.raises(Error, match=r"shares? no|share none|not in"):
            call(memory[first:first + 32].view(2, 16), given)
    assert torch.equal(memory, torch.ones(64))
    call(memory[32:].view(2, 16), given)


def test_given_memory_is_used():
    layout, slots = BagLayout(1, 6, 4), torch.tensor([2, 2, 1, 2, 0, 1])
    memory = torch.full((9, 4), torch.nan)
    sums, finite = sum_gradients(torch.ones(6, 4), Grouper(3).group(slots), layout, out=memory)
    assert finite and sums.data_ptr() == memory.data_ptr()
    assert sums.tolist() == [[3.0] * 4, [2.0] * 4, [1.0] * 4]


@pytest.mark.parametrize("dim", [3, 16, 24])
@pytest.mark.parametrize("wrong", [torch.nan, torch.inf, -torch.inf])
def test_a_gradient_that_is_not_finite(dim, wrong):
    slots = torch.randint(0, SLOTS, (200,))
    for sample, element in ((0, 0), (199, dim - 1), (77, dim // 2)):
        gradients = torch.full((200, dim), 1e38)
        groups = Grouper(SLOTS).group(slots)
        gradients /= 200
        assert sum_gradients(gradients, groups, BagLayout(1, 200, dim))[1]
        gradients[sample, element] = wrong
        assert not sum_gradients(gradients, groups, BagLayout(1, 200, dim))[1]


def test_a_sum_that_overflows_is_not_finite():
    groups = Grouper(2).group(torch.tensor([1, 1]))
    assert not sum_gradients(torch.full((2, 4), 3e38), groups, BagLayout(1, 2, 4))[1]


def test_nothing_to_look_up():
    nothing = torch.empty(0, dtype=torch.int64)
    layout = BagLayout(2, 3, 4, torch.zeros(6, dtype=torch.int64))
    assert torch.equal(pool_bags(torch.ones(4, 4), nothing, layout), torch.zeros(3, 8))
    sums, finite = sum_gradients(torch.ones(3, 8), Grouper(4).group(nothing), layout)
    assert finite and sums.shape == (0, 4)
    assert pool_bags(torch.ones(4, 4), nothing, BagLayout(2, 0, 4)).shape == (0, 8)


def test_what_does_not_fit_is_refused():
    rows, slots = torch.ones(10, 4), torch.arange(6)
    with pytest.raises(Error, match="lookup 5 has slot 10: expected 0 to 9"):
        pool_bags(rows, torch.tensor([0, 1, 2, 3, 4, 10]), BagLayout(2, 3, 4))
    with pytest.raises(Error, match="lookup 1 has slot -1"):
        pool_bags(rows, torch.tensor([0, -1, 2, 3, 4, 9]), BagLayout(2, 3, 4))
    for lengths in ([1, 1, 1, 1, 1, 2], [1, 1, 1, 1, 1, 0], [3, -1, 1, 1, 1, 1],
                    [1 << 40, 1, 1, 1, 1, 1]):
        layout = BagLayout(2, 3, 4, torch.tensor(lengths))
        with pytest.raises(Error, match="lengths of 6 bags"):
            pool_bags(rows, slots, layout)
        with pytest.raises(Error, match="lengths of 6 bags"):
            sum_gradients(torch.ones(3, 8), Grouper(10).group(slots), layout)
    with pytest.raises(Error, match=r"expected float32\[3, 8\]"):
        pool_bags(rows, slots, BagLayout(2, 3, 4), out=torch.ones(3, 9))
    with pytest.raises(Error, match="a lookup for each of 4 bags"):
        pool_bags(rows, slots, BagLayout(2, 2, 4))
    with pytest.raises(Error, match="a weight for each of 6 lookups"):
        pool_bags(rows, slots, BagLayout(2, 3, 4), torch.ones(5))
    with pytest.raises(Error, match="expected 2 columns"):
        pool_bags(rows, slots, BagLayout(2, 3, 4, columns=torch.tensor([0, 5])))
    with pytest.raises(Error, match="expected contiguous lengths"):
        pool_bags(rows, slots, BagLayout(2, 3, 4, torch.ones(1, dtype=torch.int64).expand(6)))


def test_sums_of_batches_are_added():
    grouper, first, second = Grouper(9), torch.tensor([5, 2, 8]), torch.tensor([2, 1])
    sums, more = torch.randn(3, 20), torch.randn(2, 20)
    rows, total, finite = merge_sums(grouper, first, sums, second, more)
    assert rows.tolist() == [5, 2, 8, 1] and finite
    assert same_bits(total, torch.stack((sums[0], sums[1] + more[0], sums[2], more[1])))
    assert not merge_sums(grouper, first, sums, second, more / 0)[2]


@pytest.mark.parametrize("dim", [3, 16])
def test_gradients_in_blocks(dim):
    torch.manual_seed(dim)
    blocks = [torch.randn(7, dim), torch.randn(dim, 7).T, torch.randn(7, 2 * dim)[:, dim:]]
    slots = torch.randint(0, 9, (21,), dtype=torch.int32)
    groups, layout = Grouper(9).group(slots), BagLayout(3, 7, dim)
    expected, _ = sum_gradients(torch.cat(blocks, dim=1), groups, layout)
    assert torch.equal(sum_blocks(blocks, groups, layout), expected)
    with pytest.raises(Error, match="expected gradients"):
        sum_blocks([blocks[0], blocks[0][:6], blocks[0]], groups, layout)
