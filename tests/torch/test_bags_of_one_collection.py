"""Bags over the tables of a collection that the caller made, and copies of such a collection."""

import copy
import io

import pytest
import torch
from hotrow import BatchError
from hotrow.contract.errors import Error
from hotrow.torch import (
    HotEmbedding,
    HotEmbeddingBag,
    HotEmbeddingBagCollection,
    TableConfig,
)

IDS = torch.tensor([[1], [3]])


def collection(**options):
    return HotEmbeddingBagCollection([TableConfig("a", 20, 4), TableConfig("b", 20, 4)], lr=0.1,
                                     seed=0, **options)


@pytest.mark.parametrize("make, message", [
    (lambda c: HotEmbeddingBag(20, 4, "mean", collection=c, name="a"), r"\(20, 4, 'sum'\)"),
    (lambda c: HotEmbeddingBag(80, 4, "sum", collection=c, name="a"), r"\(80, 4, 'sum'\), as the"),
    (lambda c: HotEmbedding(20, 9, collection=c, name="b"), r"\(20, 9, 'sum'\), as the bag has"),
    (lambda c: HotEmbedding(20, 4, collection=c, name="c"), "no table 'c': expected one of a, b"),
    (lambda c: HotEmbedding(20, 4, collection=c, name="a", lr=1.0), "lr of a bag would have no "),
    (lambda c: HotEmbeddingBag(20, 4, "sum", collection=c, name="a", foo=3), "foo of a bag would")])
def test_a_bag_is_of_the_shape_of_its_table(make, message):
    with collection(mode="resident") as tables, pytest.raises(Error, match=message):
        make(tables)


def test_a_bag_of_a_table_without_pooling():
    tables = HotEmbeddingBagCollection([TableConfig("a", 20, 4, "none")], mode="resident")
    with pytest.raises(Error, match="'none'"):
        HotEmbeddingBag(20, 4, "sum", collection=tables, name="a")


@pytest.mark.parametrize("cache", ["resident", "scratchpipe", "hotline"])
def test_the_row_of_padding_begins_with_zeros(cache):
    for bag in (HotEmbedding(10, 4, padding_idx=3, cache=cache),
                HotEmbeddingBag(10, 4, padding_idx=-7, cache=cache)):
        with bag.collection:
            assert (bag.weight[3] == 0).all() and (bag.weight[:3] != 0).all()
            assert (bag(torch.tensor([[3]])) == 0).all()


@pytest.mark.parametrize("more", [{"offsets": torch.tensor([0])}, {
    "per_sample_weights": torch.tensor([5.0])}], ids=list)
def test_what_belongs_into_the_pairs_is_refused_beside_them(more):
    pairs = [(torch.tensor([1]), torch.tensor([0]))] * 2
    with collection(mode="resident") as tables:
        for call in tables, tables.prefetch:
            with pytest.raises(BatchError, match="offsets and weights belong to ids in one tensor"):
                call(pairs, **more)
        assert tables(pairs).shape == (1, 8)


def ten_times(module, arguments, output):
    return 10 * output


@pytest.mark.parametrize("copied", ["deepcopy", "file"])
def test_a_copy_has_hooks_buffers_and_settings(copied):
    with collection() as tables:
        plain = tables.eval()(IDS.expand(-1, 2))
        tables.register_forward_hook(ten_times)
        tables.register_buffer("mask", torch.ones(3))
        tables.optimizer.param_groups[0]["initial_lr"] = 0.5
        tables.allow_fewer_rows = True
        if copied == "deepcopy":
            found = copy.deepcopy(tables)
        else:
            file = io.BytesIO()
            torch.save(tables, file)
            file.seek(0)
            found = torch.load(file, weights_only=False)
        assert torch.equal(found(IDS.expand(-1, 2)), 10 * plain)
        assert found.state_dict().keys() == tables.state_dict().keys() and found.allow_fewer_rows
        assert found.optimizer.param_groups[0]["initial_lr"] == 0.5
        found.mask[:] = 0
        assert (tables.mask == 1).all()


class Scaled(HotEmbeddingBagCollection):
    """A subclass, of which a copy would lose the methods."""

    def forward(self, *arguments):
        return 3 * super().forward(*arguments)


def test_a_copy_of_a_subclass_is_refused():
    with Scaled([TableConfig("a", 20, 4)]) as tables:
        with pytest.raises(Error, match="a Scaled, a subclass, cannot be copied"):
            copy.deepcopy(tables)
        assert tables(IDS).shape == (2, 4)
