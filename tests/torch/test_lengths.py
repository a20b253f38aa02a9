"""Lengths and offsets that do not divide the ids are refused by name, however they add up."""

from types import SimpleNamespace

import pytest
import torch
from hotrow.contract.errors import BatchError
from hotrow.torch import HotEmbeddingBag, HotEmbeddingBagCollection, Options, TableConfig

BIG = 1 << 62  # four of them add up to 0


@pytest.fixture
def collection():
    return HotEmbeddingBagCollection([TableConfig("a", 9, 4), TableConfig("b", 9, 4)], None,
                                     "resident", options=Options(seed=0))


def keyed(lengths, values=4, keys=("a", "b")):
    """The interface of a KeyedJaggedTensor that a collection uses."""
    return SimpleNamespace(keys=lambda: list(keys), values=lambda: torch.arange(values),
                           lengths=lambda: torch.tensor(lengths, dtype=torch.int64))


@pytest.mark.parametrize("lengths", [
    [-2, 6], [-(10**9), 10**9 + 4], [5, -1], [BIG, BIG, BIG, BIG + 4], [0, 0, -1, 5]])
def test_a_length_out_of_range_is_named(collection, lengths):
    with pytest.raises(BatchError, match=r"length -?\d+ of sample \d of key '[ab]'"):
        collection(keyed(lengths))


@pytest.mark.parametrize("lengths", [[1, 2], [4, 4], [2, 1, 1], [], [0, 0]])
def test_lengths_that_do_not_divide_the_values(collection, lengths):
    with pytest.raises(BatchError, match="add up to its 4 values"):
        collection(keyed(lengths))


def test_lengths_without_keys(collection):
    with pytest.raises(BatchError):
        collection(keyed([4], keys=()))


@pytest.mark.parametrize("offsets", [
    [0, 5, 4], [0, -1, 4], [0, 2 * BIG - 1, 4], [0, 2 * BIG - 1, -2 * BIG, -1, 4], [1, 2, 4],
    [0, 2, 5], []])
def test_offsets_out_of_range(collection, offsets):
    offsets = torch.tensor(offsets, dtype=torch.int64)
    with pytest.raises(BatchError, match="the offsets of"):
        collection(torch.arange(4), offsets)
    with pytest.raises(BatchError, match="the offsets of"):
        collection([(torch.arange(4), offsets)] * 2)


def test_lengths_of_every_integer_dtype(collection):
    """KeyedJaggedTensors and offsets give one answer, whatever their integers are."""
    expected = collection(torch.tensor([[0, 2], [1, 3]]))
    for dtype in (torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.uint32,
                  torch.int64, torch.uint64):
        ids, ones, offsets = (torch.tensor(values).to(dtype)
                              for values in ([0, 1, 2, 3], [1, 1, 1, 1], [0, 1, 2, 3, 4]))
        given = SimpleNamespace(keys=lambda: ["a", "b"], values=lambda ids=ids: ids,
                                lengths=lambda ones=ones: ones)
        found = collection(given)  # a KeyedTensor where TorchRec is installed
        found = found if isinstance(found, torch.Tensor) else found.values()
        assert torch.equal(found, expected), dtype
        assert torch.equal(collection(ids, offsets), expected), dtype
        assert torch.equal(collection(ids.numpy(), offsets.numpy()), expected), dtype
        pairs = [(part, offsets[:2]) for part in (ids[:2], ids[2:])]
        assert torch.equal(collection(pairs), expected), dtype


@pytest.mark.parametrize("offsets, ids", [([], 0), ([], 3), ([1], 0), ([0], 3)])
def test_last_offsets_of_one_feature(offsets, ids):
    bag = HotEmbeddingBag(40, 8, cache="resident", include_last_offset=True)
    with pytest.raises(BatchError, match="the offsets of 1 features must"):
        bag(torch.arange(ids), torch.tensor(offsets, dtype=torch.int64))
    assert bag(torch.arange(0), torch.tensor([0])).shape == (0, 8)
