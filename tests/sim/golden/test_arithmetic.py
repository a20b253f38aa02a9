"""Golden pooling and updates against scalar loops in fp64, exact for these numbers."""

import math

import numpy as np
import pytest
from hotrow_sim.golden.arithmetic.optimizer import rowwise_adagrad, sgd
from hotrow_sim.golden.arithmetic.pooling import (
    bag_sum,
    bag_sums,
    pairwise_sum,
    partial_count,
    pool,
)
from hotrow_sim.golden.float import narrow, widen

from tests.support.row_sums import summed as summed_rows
from tests.support.row_sums import with_special_numbers

F32 = np.float32


def numbers(shape, rng, bits=24):
    """Numbers near 1 with `bits` significant bits: products of 24 and 8 bits, plus an addend, fit
    fp64."""
    whole = rng.integers(1 << bits - 1, 1 << bits, shape) * rng.choice([-1, 1], shape)
    return np.ldexp(whole.astype(np.float64), rng.integers(-3, 3, shape) - bits).astype(F32)


def bits(values):
    return np.ascontiguousarray(values, F32).view(np.uint32)


def tree(values):
    """One scalar per partial sum."""
    while len(values) > 1:
        joined = [F32(float(values[at]) + float(values[at + 1]))
                  for at in range(0, len(values) - 1, 2)]
        values = joined + values[len(joined) * 2:]
    return values[0]


def summed(rows, weights, partials):
    """A bag, element by element."""
    result = []
    for column in rows.T:
        sums = [F32(0)] * min(partials, len(column))
        for row, (value, weight) in enumerate(zip(column, weights, strict=True)):
            sums[row % partials] = F32(
                float(weight) * float(value) + float(sums[row % partials]))
        result.append(tree(sums) if sums else F32(0))
    return result


@pytest.mark.parametrize("row_bytes, partials", [
    (16, 16), (64, 16), (112, 16), (128, 8), (144, 8), (240, 8), (256, 4), (496, 4), (512, 2),
    (1008, 2), (1024, 1), (4096, 1), (8192, 1)])
def test_partial_sums_by_row(row_bytes, partials):
    assert partial_count(row_bytes // 4) == partials


@pytest.mark.parametrize("elements", [4, 36, 100, 256])
@pytest.mark.parametrize("mean", [False, True])
def test_pool_in_its_order(elements, mean):
    rng = np.random.default_rng(elements)
    lengths = [0, 1, 2, 3, 5, 15, 16, 17, 20, 33, 0]
    rows, weights = numbers((sum(lengths), elements), rng), numbers(sum(lengths), rng, 8)
    ends = np.cumsum(lengths)
    expected = np.zeros((len(lengths), elements), F32)
    for bag, (end, length) in enumerate(zip(ends, lengths, strict=True)):
        chosen = slice(end - length, end)
        expected[bag] = summed(rows[chosen], weights[chosen], partial_count(elements))
        if mean and length > 1:
            expected[bag] /= F32(length)
    pooled = pool(bits(rows), lengths, weights=bits(weights), mean=mean)
    assert (pooled == bits(expected)).all()


@pytest.mark.parametrize("kind", ["fp16", "bf16"])
def test_other_types_are_summed_in_fp32_and_rounded_once(kind):
    rng = np.random.default_rng(7)
    rows = narrow(bits(numbers((40, 16), rng)), kind)
    sums = pool(widen(rows, kind), [40])
    assert (pool(rows, [40], kind) == narrow(sums, kind)).all()


def test_a_sum_begins_at_plus_zero():
    minus = np.full((1, 4), 0x80000000, np.uint32)
    assert (bag_sum(minus) == 0).all() and (bag_sum(minus[:0]) == 0).all()
    signalling = np.full((1, 4), 0x7F800001, np.uint32)
    assert (bag_sum(signalling) == 0x7FC00000).all()


def test_pairwise_sum_keeps_an_unpaired_row():
    for count in range(1, 20):
        values = numbers(count, np.random.default_rng(count))
        assert pairwise_sum(bits(values)) == bits(tree(list(values)))
    assert pairwise_sum(np.array([0x80000000], np.uint32)) == 0x80000000


@pytest.mark.parametrize("elements", [4, 32, 64, 128, 256])
def test_many_rows_are_summed_as_in_numpy(elements):
    rng = np.random.default_rng(elements)
    counts = [1, 2, 3, 4, 17, 100, 2000]
    rows = with_special_numbers(numbers((sum(counts), elements), rng), rng)
    expected = np.stack([summed_rows(each) for each in np.split(rows, np.cumsum(counts)[:-1])])
    found = bag_sums(bits(rows), counts).view(F32)
    np.testing.assert_array_equal(found, expected)
    assert (np.signbit(found) == np.signbit(expected))[~np.isnan(expected)].all()


def test_updates_round_each_operation():
    rng = np.random.default_rng(4)
    rows, gradients = numbers((30, 12), rng), numbers((30, 12), rng)
    lr, eps, states = F32(2.0 ** -5 * 0.75), F32(1e-8), np.abs(numbers(30, rng))
    expected = F32(rows.astype(np.float64) - float(lr) * gradients.astype(np.float64))
    assert (sgd(bits(rows), bits(gradients), bits(lr)) == bits(expected)).all()

    got, got_states = rowwise_adagrad(
        bits(rows), bits(gradients), bits(states), bits(lr), bits(eps))
    for row in range(30):
        mean = tree(list(gradients[row] * gradients[row])) / F32(12)
        state = states[row] + mean
        factor = lr / (F32(math.sqrt(state)) + eps)
        assert got_states[row] == bits(state)
        # A fused step rounds once, by at most half a unit.
        exact = rows[row].astype(np.float64) - float(factor) * gradients[row].astype(np.float64)
        near = got[row].view(F32)
        assert (np.abs(near - exact) <= np.spacing(np.abs(near)) * 0.5000001).all()
