"""The ends of the ranges of what is built in Python are taken, and what lies beyond is refused."""

import numpy as np
import pytest
from hotrow.contract.errors import Error
from hotrow.torch import (
    SGD,
    Adam,
    HotEmbeddingBag,
    HotEmbeddingBagCollection,
    NgramIds,
    Options,
    TableConfig,
    TrainPipeline,
)
from hotrow.torch.store.placement_policy import share_of
from torch import nn


def cached(depth, look_ahead):
    """A cache with batches under way: tiny follows 64 of them."""
    options = Options(preset="tiny", depth=depth, look_ahead=look_ahead)
    HotEmbeddingBagCollection([TableConfig("a", 50, 8)], "model", "scratchpipe",
                              options=options).close()


def trained(rate):
    HotEmbeddingBagCollection([TableConfig("a", 50, 8)], None, "resident", SGD(rate)).close()


def padded(row):
    HotEmbeddingBag(50, 8, padding_idx=row, cache="resident").collection.close()


def made(*tables, **options):
    tables = tables or [[TableConfig("a", 50, 8)]]
    HotEmbeddingBagCollection(*tables, mode="resident", **options).close()


# A call, arguments that it takes, and arguments that it refuses.
RANGES = {
    "pad": (lambda pad, vocabulary: NgramIds((1,), 1, 1, 0, pad=pad, vocabulary=vocabulary),
            [(0, 1), (299, 300)], [(1, 1), (-1, 300)]),
    "padding_idx": (padded, [(-50,), (49,)], [(-51,), (50,)]),
    "betas": (lambda *betas: Adam(0.1, betas=betas), [(0.0, 0.0), (0, 0.999)],
              [(1.0, 0.9), (0.9, 1.0), (-0.1, 0.9), (0.9,), (0.9, 0.9, 0.9)]),
    "rate": (trained, [(0.0,), (0,)], [(-1e-9,), (float("inf"),), (float("nan"),), ("1",)]),
    "eps": (lambda eps: Adam(0.1, eps=eps), [(0.0,)], [(-1e-9,), (float("inf"),), (False,)]),
    "cache": (lambda wanted: share_of(8, wanted), [(1,), (8,), (100,)], [(0,), (0.9,)]),
    "num_embeddings": (lambda rows: TableConfig("a", rows, 8), [(np.int64(1),), (1 << 40,)],
                       [(1.5,), ("x",), (None,), (True,)]),
    "embedding_dim": (lambda dim: TableConfig("a", 8, dim), [(1,)], [(2.0,), (None,)]),
    "name": (lambda name: TableConfig(name, 8, 8), [("a",)], [(3,), (None,), ("a.b",)]),
    "feature_names": (lambda names: TableConfig("a", 8, 8, feature_names=names),
                      [(["b"],), ((),)], [(None,), ("b",), ([3],)]),
    "TableConfigs": (made, [([TableConfig("a", 8, 8)],)], [(None,), (TableConfig("a", 8, 8),)]),
    "share": (lambda share: made(share=share), [(1,), (8,)], [(0,), (1.5,), ("a",)]),
    "workers": (lambda workers: made(workers=workers), [(0,), (None,)], [(-1,), (1.5,)]),
    "depth": (lambda depth: made(depth=depth), [(1,)], [("a",), (1.5,), (1 << 64,)]),
    "seed": (lambda seed: made(seed=seed), [(-1 << 63,), ((1 << 63) - 1,), (np.int32(3),)],
             [("x",), (1 << 63,), (0.5,)]),
    "ahead": (lambda ahead: TrainPipeline(
        [], nn.Sequential(HotEmbeddingBag(9, 4, cache="resident")), len, ahead=ahead),
        [(0,), (None,), (np.int64(2),)], [(-1,), ("x",), (1.5,)]),
    "until": (lambda until: HotEmbeddingBagCollection(
        [TableConfig("a", 9, 4, ids="any")], mode="resident").id_maps.forget(until),
        [(0,)], [("x",), (0.5,), (None,)]),
    "look_ahead": (cached, [(1, 0), (1, 62), (63, 0)], [(0, 0), (1, -1), (1, 63), (64, 0)]),
}


@pytest.mark.parametrize("name", RANGES)
def test_ends_of_a_range(name):
    call, taken, refused = RANGES[name]
    for given in taken:
        call(*given)
    for given in refused:
        with pytest.raises(Error, match=name):
            call(*given)


@pytest.mark.parametrize("slots, wanted, share", [
    (8, 8, 1), (8, 7, 2), (8, 4, 2), (8, 3, 4), (8, 1, 8), (8, 1.5, 8)])
def test_parts_of_a_directory(slots, wanted, share):
    assert share_of(slots, wanted) == share
