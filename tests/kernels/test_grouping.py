import numpy as np
import pytest
import torch
from hotrow.contract.errors import Error
from hotrow.kernels.grouping import Grouper
from hotrow.operands.integers import numbered


def in_order(slots):
    """Numbers, distinct slots and counts, by a dict."""
    seen, counts = {}, []
    numbers = [seen.setdefault(slot, len(seen)) for slot in slots.reshape(-1).tolist()]
    for number in numbers:
        counts[number:number + 1] = [counts[number] + 1] if number < len(counts) else [1]
    return numbers, list(seen), counts


def check(groups, slots):
    assert [each.tolist() for each in (groups.numbers, groups.distinct, groups.counts)] == [
        *in_order(slots)]
    assert groups.distinct.dtype == slots.dtype


@pytest.mark.parametrize("integers", [torch.int32, torch.int64])
def test_numbers_in_order_of_first_appearance(integers):
    grouper = Grouper(300)
    for seed, count in enumerate((0, 1, 7, 1000, 1000, 40)):
        generator = torch.Generator().manual_seed(seed)
        slots = (torch.rand(count, generator=generator) ** 2 * 300).to(integers)
        check(grouper.group(slots), slots)


def test_a_batch_by_samples_counts_feature_after_feature():
    ids = torch.randint(0, 50, (40, 7), dtype=torch.int32)
    check(Grouper(50).group(ids.T), ids.T)
    check(Grouper(50).group(ids[::2, 1:5].T), ids[::2, 1:5].T)


@pytest.mark.parametrize("wrong", [-1, 50, 1 << 31, -(1 << 40)])
def test_a_slot_out_of_range_is_named(wrong):
    slots = torch.arange(40)
    slots[33] = wrong
    with pytest.raises(Error, match=f"lookup 33 has slot {wrong}: expected 0 to 49"):
        Grouper(50).group(slots)


def test_only_integers():
    with pytest.raises(Error, match="expected int32 or int64"):
        Grouper(50).group(torch.zeros(3))


@pytest.mark.parametrize("count", [0, 1, 255, 1000])
def test_keys_are_numbered_by_first_appearance(count):
    rng = np.random.default_rng(count)
    keys = rng.integers(0, 1 << 63, count, np.uint64)
    keys[count // 2:] = rng.permutation(keys)[:count - count // 2]
    first, numbers = numbered(keys)
    assert (keys[first][numbers] == keys).all() and (np.diff(first) > 0).all()
    assert len(first) == len(np.unique(keys))
    assert all(first[number] <= at for at, number in enumerate(numbers))


@pytest.mark.parametrize("integers", [torch.int32, torch.int64])
def test_bags_of_each_slot(integers):
    """Slot after slot in order of first appearance, in lookup order; empty bags among them."""
    slots = torch.tensor([7, 3, 7, 7, 0, 3])
    groups, lengths = Grouper(8).group(slots), torch.tensor([2, 0, 3, 1, 0], dtype=integers)
    assert groups.bags(lengths, 5).tolist() == [0, 2, 2, 0, 3, 2]
    assert groups.bags(None, 6).tolist() == [0, 2, 3, 1, 5, 4]


@pytest.mark.parametrize("lengths", [[2, 3], [2, 5], [8, -2], [2, 2, 2]])
def test_lengths_that_are_not_those_of_the_lookups(lengths):
    groups = Grouper(8).group(torch.tensor([7, 3, 7, 7, 0, 3]))
    with pytest.raises(Error, match=r"lengths of 2 bags must be .* add up to the 6 lookups"):
        groups.bags(torch.tensor(lengths), 2)
