"""Every input of every module: the same result in each form that holds its values, or a refusal
that names it."""

import hotrow
import numpy as np
import pytest
import torch
from hotrow.torch import (
    HotEmbedding,
    HotEmbeddingBag,
    HotEmbeddingBagCollection,
    Options,
    TableConfig,
)

from tests.support.border import forms, layouts, no_integers, no_rows, refused

TABLES = [TableConfig("a", 40, 8), TableConfig("b", 7, 8), TableConfig("c", 23, 8)]
IDS = np.array([[1, 2, 3], [0, 1, 2], [5, 6, 7], [3, 3, 3]])
VALUES, LENGTHS = np.array([1, 2, 3, 0, 1, 2, 2, 4, 5]), np.array([1, 2, 0, 1, 1, 1, 2, 0, 1])
OFFSETS, INDICES, STARTS = np.r_[0, LENGTHS.cumsum()], np.array([1, 2, 3, 4]), np.array([0, 1, 3])
WEIGHTS = np.array([0.5, 1, 2, 3], np.float32)


class Keyed:
    """The parts of a KeyedJaggedTensor that a collection reads."""

    def __init__(self, values, lengths, weights=None):
        self._values, self._lengths, self._weights = values, lengths, weights

    def keys(self):
        return ["a", "b", "c"]

    def values(self):
        return self._values

    def lengths(self):
        return self._lengths

    def weights_or_none(self):
        return self._weights


@pytest.fixture(scope="module")
def modules():
    made = {"tables": HotEmbeddingBagCollection(TABLES, None, "resident"),
            "weighted": HotEmbeddingBagCollection(TABLES, None, "resident",
                                                  options=Options(is_weighted=True)),
            "bag": HotEmbeddingBag(40, 8, "sum", cache="resident"),
            "padded": HotEmbeddingBag(40, 8, "sum", padding_idx=3, cache="resident"),
            "embedding": HotEmbedding(40, 8, cache="resident")}
    yield made
    for module in made.values():
        getattr(module, "collection", module).close()


# By name: the values, what a refusal says, and a call.
INTEGERS = {
    "ids": (IDS, "ids?", lambda m, given: m["tables"](given)),
    "values": (VALUES, "value|id", lambda m, given: m["tables"](Keyed(given, LENGTHS))),
    "lengths": (LENGTHS, "length", lambda m, given: m["tables"](Keyed(VALUES, given))),
    "indices": (VALUES, "indices|offsets|id", lambda m, given: m["tables"](given, OFFSETS)),
    "offsets": (OFFSETS, "offsets", lambda m, given: m["tables"](VALUES, given)),
    "pair": (INDICES, "indices|offsets|id", lambda m, given: m["tables"](
        [(given, STARTS), (INDICES, STARTS), (INDICES, STARTS)])),
    "starts": (STARTS, "offsets|bags", lambda m, given: m["tables"](
        [(INDICES, given), (INDICES, STARTS), (INDICES, STARTS)])),
    "bag": (INDICES, "input|offsets|indices|id", lambda m, given: m["bag"](given, STARTS)),
    "bag offsets": (STARTS, "offsets", lambda m, given: m["bag"](INDICES, given)),
    "grid of a bag": (IDS, "input|offsets|id", lambda m, given: m["bag"](given)),
    "column of a bag": (IDS[:, :1], "input|offsets|id", lambda m, given: m["bag"](given)),
    "padded bag": (INDICES, "input|offsets|indices|id", lambda m, given: m["padded"](
        given, STARTS)),
    "embedding": (IDS, "input|id", lambda m, given: m["embedding"](given)),
}


def facts(result):
    return [facts(one) for one in result] if isinstance(result, (list, tuple)) else result.tolist()


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_in_every_form(modules, name):
    values, _, call = INTEGERS[name]
    expected = facts(call(modules, torch.from_numpy(values.copy())))
    for form, given in forms(values):
        if form != "list" or name not in ("ids", "indices"):  # a list holds pairs there
            assert facts(call(modules, given)) == expected, form


@pytest.mark.filterwarnings("ignore:.*nested tensors")
@pytest.mark.parametrize("name", INTEGERS)
def test_what_is_no_integer_is_refused(modules, name):
    values, what, call = INTEGERS[name]
    for form, given in [*no_integers(values), *no_rows(values), ("None", None)]:
        if (name, form) == ("embedding", "another dimension"):
            continue
        if name in ("ids", "indices", "offsets") and form in (
                "ragged", "a list with 2**70", "None"):
            with refused("feature|tables|ids|indices|offsets", name, form):
                call(modules, given)
            continue
        with refused(what, name, form):
            call(modules, given)


FLOATS = {
    "per_sample_weights": (WEIGHTS, lambda m, given: m["bag"](INDICES, STARTS, given)),
    "per_sample_weights of rows": (WEIGHTS.reshape(2, 2), lambda m, given: m["bag"](
        INDICES.reshape(2, 2), None, given)),
    "padded": (WEIGHTS, lambda m, given: m["padded"](INDICES, STARTS, given)),
    "weights": (np.ones((4, 3), np.float32) / 3, lambda m, given: m["tables"](IDS, None, given)),
    "flat": (np.arange(9, dtype=np.float32), lambda m, given: m["tables"](VALUES, OFFSETS, given)),
    "keyed": (np.arange(9, dtype=np.float32), lambda m, given: m["weighted"](
        Keyed(VALUES, LENGTHS, given))),
    "pairs": (WEIGHTS, lambda m, given: m["tables"](
        [(INDICES, STARTS, given), *[(INDICES, STARTS, WEIGHTS)] * 2])),
}


@pytest.mark.parametrize("name", FLOATS)
def test_weights_in_every_form_or_refused(modules, name):
    values, call = FLOATS[name]
    tensor = torch.from_numpy(values)
    expected = facts(call(modules, tensor))
    for form, given in [("array", values), ("list", values.tolist()), ("wide", tensor.double()),
                        (">f4", values.astype(">f4")), *layouts(values)]:
        assert facts(call(modules, given)) == expected, form
    assert not np.isfinite(np.array(facts(call(modules, tensor * float("nan"))))).all()
    for trained in (tensor, tensor.double(), torch.stack((tensor, tensor), -1)[..., 0]):
        trained = trained.clone().requires_grad_()
        result = call(modules, trained)
        (sum(result) if isinstance(result, list) else result).sum().backward()
        assert trained.grad.shape == values.shape and trained.grad.any()
    for form, given in [
            *((str(dtype), tensor.to(dtype)) for dtype in (
                torch.int64, torch.bool, torch.complex64)),
            *((str(dtype), values.astype(dtype)) for dtype in (str, object, "M8[s]")),
            ("short", tensor[:-1]), ("another dimension", tensor[None]), ("empty", tensor[:0]),
            ("a number", 1.0), ("text", "x"), ("a dict", {}), ("meta", tensor.to("meta")),
            ("sparse", tensor.to_sparse())]:
        with refused("weight", name, form):
            call(modules, given)


def test_errors_of_inputs_are_those_of_batches(modules):
    for given in (None, "x", {}, torch.ones(2, 3), [1, 2, 3]):
        with pytest.raises(hotrow.BatchError):
            modules["tables"](given)
