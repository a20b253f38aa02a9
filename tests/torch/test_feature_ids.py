"""Ids of columns and of n-grams, against plain Python."""

import copy
import pickle
import random
import re
import sys

import numpy as np
import pytest
import torch
from hotrow.contract.errors import BatchError, Error
from hotrow.torch import (
    Adam,
    HotEmbeddingBagCollection,
    NgramIds,
    RowwiseAdagrad,
    TableConfig,
    ids_of,
)

from tests.support.ids_model import BITS, mix

STRINGS = ["", "a", "b", "ab", "ba", "\0", "milk", "Käse", "牛乳", "x" * 300, "milk", "\ud800",
           "-1", "a\0"]


def fnv(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & BITS
    return mix(value)


def unsigned(ids):
    assert ids.dtype == torch.int64
    return [value & BITS for value in ids.tolist()]


def test_the_id_of_a_string_is_the_stated_hash():
    expected = [fnv(each.encode("utf-8", "surrogatepass")) for each in STRINGS]
    assert unsigned(ids_of(STRINGS)) == unsigned(ids_of(np.array(STRINGS, object))) == expected
    assert len(set(expected)) == len(set(STRINGS))
    assert unsigned(ids_of([each.encode("utf-8", "surrogatepass") for each in STRINGS])) == expected
    assert unsigned(ids_of(["", "", None])) == [fnv(b"")] * 3
    assert unsigned(ids_of(np.array(["a", "bc"])))[1] == fnv(b"bc")
    for value in range(300):  # every length, alone and beside others
        assert unsigned(ids_of(["y" * value]))[0] == fnv(b"y" * value)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_series_of_data_frames(library):
    series = pytest.importorskip(library).Series
    words = ["milk", "bread", None, "milk"]
    assert unsigned(ids_of(series(words))) == [fnv((word or "").encode()) for word in words]
    assert ids_of(series([3, -1, 1 << 62])).tolist() == [3, -1, 1 << 62]
    whole = series([1, None, 1 << 62], dtype=(
        "Int64" if library == "pandas" else sys.modules["polars"].Int64))
    assert unsigned(ids_of(whole)) == [1, fnv(b""), 1 << 62]
    with pytest.raises(BatchError, match=r"value 0 .* 1\.0, of type float: .* unless they are Int"):
        ids_of(series([1.0, None]))
    table = sys.modules[library].DataFrame({"a": [1, 2], "b": [3, 4]})
    with pytest.raises(BatchError, match=r"DataFrame of shape \[2, 2\]: give one column"):
        ids_of(table)


def test_a_null_among_integers_is_that_among_strings():
    empty = fnv(b"")
    for column in ([3, None], [3, float("nan")], np.array([3, None], object),
                   np.ma.array([3, 4], mask=[False, True])):
        assert unsigned(ids_of(column)) == [3, empty]
    assert unsigned(ids_of([None, np.float32("nan")])) == [empty] * 2
    assert unsigned(ids_of(each for each in ("a", None))) == [fnv(b"a"), empty]


@pytest.mark.parametrize("column", [
    np.array([3, 200], np.uint8), np.array([3, 200], np.int16), torch.tensor([3, 200]), [3, 200],
    np.array([3, 200], object), np.array([0, 3, 0, 200], np.uint64)[1::2]])
def test_an_integer_is_its_own_id(column):
    assert ids_of(column).tolist() == [3, 200]


def test_the_largest_integers_wrap():
    assert ids_of(np.array([BITS, 1 << 63], np.uint64)).tolist() == [-1, -(1 << 63)]
    assert ids_of([BITS, 1 << 63]).tolist() == [-1, -(1 << 63)]
    assert ids_of([]).tolist() == []


@pytest.mark.parametrize("column, message", [
    ([1.5], "value 0 .* of type float"), ([True], "value 0 .* of type bool"),
    ([["a"], ["b"]], "value 0 .* of type list"), ([b"a", 3.5], "value 1 .* of type float"),
    ("milk", "got str"), ([{}, "a"], "value 0 .* of type dict"), ([1, "a"], "value 1 .* type str"),
    ([1 << 70, "a", None, 2.5], "value 1 .* of type str"), ({"a"}, "got set"), (7, "got int"),
    ([None, 1 << 64], "value 1 .* more than 64 bits"), ([-1 - (1 << 63)], "more than 64 bits"),
    (np.array([[1, 2]]), r"got ndarray of shape \[1, 2\]")], ids=str)
def test_what_is_no_column_of_ids_is_refused(column, message):
    with pytest.raises(BatchError, match=message):
        ids_of(column)


def plain(tokens, made):
    """Ids by the formula, one n-gram at a time."""
    multipliers = made.multipliers.tolist()
    result = []
    for sample in tokens:
        result.append([])
        for place in range(len(sample)):
            row = []
            for number, prime in enumerate(made.tables):
                mixed = 0
                for back in range(made.orders[number // made.heads]):
                    token = sample[place - back] if place >= back else made.pad
                    mixed ^= token * multipliers[back] & BITS
                mixed -= (mixed >> 63) << 64  # a wrapped int64
                row.append(mixed % prime)
            result[-1].append(row)
    return result


@pytest.mark.parametrize("seed", range(6))
def test_ngrams_follow_the_formula(seed):
    draw = random.Random(seed)
    vocabulary = draw.choice([2, 300, 1 << 20])
    made = NgramIds(draw.sample(range(1, 6), draw.randint(1, 4)), draw.randint(1, 3),
                    draw.randint(1, 5000), seed, draw.randrange(vocabulary), vocabulary)
    tokens = [[draw.randrange(vocabulary) for _ in range(9)] for _ in range(4)]
    expected = plain(tokens, made)
    for dtype in (torch.int32, torch.int64):
        assert made(torch.tensor(tokens, dtype=dtype)).tolist() == expected, seed
    assert all(value % 2 for value in made.multipliers.tolist())
    assert list(made.tables) == sorted(set(made.tables)) and all(
        prime > 1 and all(prime % divisor for divisor in range(2, prime)) for prime in made.tables)


def test_ngrams_are_known_from_the_tokens_before():
    made = NgramIds((2, 3), 2, 1000, seed=1)
    tokens = torch.randint(0, 500, (3, 20), generator=torch.Generator().manual_seed(0))
    whole = made(tokens)
    assert torch.equal(made(tokens[:, :7]), whole[:, :7])
    assert torch.equal(made(tokens[:, 5:])[:, 2:], whole[:, 7:])
    assert torch.equal(NgramIds((2, 3), 2, 1000, seed=1)(tokens), whole)
    assert not torch.equal(NgramIds((2, 3), 2, 1000, seed=2)(tokens), whole)
    assert made(tokens[:, :0]).shape == (3, 0, 4)

@pytest.mark.parametrize("make", [
    lambda made: made.to("meta").to_empty(device="cpu"), lambda made: made.to_empty(device="cpu"),
    lambda made: made.half(), copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made)),
    lambda made: torch.nn.Sequential(made).to(torch.float16)[0]])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_no_way_to_make_a_module_changes_the_rows_of_ngrams(make, device):
    tokens = torch.randint(0, 500, (3, 20), generator=torch.Generator().manual_seed(0))
    expected = NgramIds((2, 3), 2, 1000, seed=1)
    with torch.device(device):
        made = NgramIds((2, 3), 2, 1000, seed=1)
    kept = [torch.full((3,), 12345) for _ in range(200)]  # what memory holds that nobody clears
    del kept
    made = make(made)
    assert torch.equal(made(tokens), expected(tokens))
    assert torch.equal(made.multipliers, expected.multipliers)


@pytest.mark.parametrize("other, named", [
    (dict(seed=2), "multipliers"), (dict(orders=(3, 2)), "orders"), (dict(heads=1), "tables"),
    (dict(rows=1010), "tables"), (dict(pad=5), "pad"), (dict(vocabulary=1 << 30), "multipliers")])
def test_a_state_whose_ngrams_have_other_rows_is_refused(other, named):
    settings = dict(orders=(2, 3), heads=2, rows=1000, seed=1)
    state = torch.nn.Sequential(NgramIds(**settings)).state_dict()
    same, changed = (torch.nn.Sequential(NgramIds(**settings | each)) for each in ({}, other))
    same.load_state_dict(state)
    with pytest.raises(Error, match=f"this NgramIds has {named}"):
        changed.load_state_dict(state)
    with pytest.raises(RuntimeError, match="Missing key"):
        same.load_state_dict({})


@pytest.mark.parametrize("dtype, rule, expected", [
    (torch.bfloat16, RowwiseAdagrad(0.1, rounding_seed=1), 2.25), (torch.float32, Adam(0.1), 12)])
def test_bytes_of_a_parameter_and_its_state(dtype, rule, expected):
    rows = NgramIds((2, 3), 2, 1000, seed=1).tables
    with HotEmbeddingBagCollection([TableConfig(f"{each}", each, 16, "none", dtype)
                                    for each in rows], None, "resident", rule) as embeddings:
        parts = [part.untyped_storage() for each in rows
                 for part in embeddings.contents.table(f"{each}")]
        spans = sorted((part.data_ptr(), part.data_ptr() + part.nbytes()) for part in parts)
        end = memory = 0
        for first, last in spans:  # rows and the state that follows each overlap
            memory, end = memory + max(0, last - max(first, end)), max(end, last)
    assert 0.99 < memory / (expected * 16 * sum(rows)) < 1.01


@pytest.mark.parametrize("tokens", [torch.zeros(2, 3), torch.zeros(3, dtype=torch.int64),
                                    torch.tensor([[0, -1]]), torch.tensor([[0, 10]])])
def test_what_are_no_tokens_is_refused(tokens):
    with pytest.raises(BatchError):
        NgramIds((2,), 1, 10, 0, vocabulary=10)(tokens)


@pytest.mark.parametrize("arguments", [
    ((), 1, 9), ((0,), 1, 9), ((2,), 0, 9), ((2,), 1, 0), ((2.5,), 1, 9), ((2,), 1.5, 9),
    ((2,), 1, 9.5), ((2,), True, 9)])
def test_settings_without_sense_are_refused(arguments):
    with pytest.raises(Error):
        NgramIds(*arguments, seed=0)
    with pytest.raises(Error, match="pad"):
        NgramIds((2,), 1, 9, 0, pad=300, vocabulary=300)
    with pytest.raises(Error, match="in another order would share rows"):
        NgramIds((2,), 1, 9, 0, vocabulary=1 << 47)


@pytest.mark.parametrize("seed", [None, -1, 0.5, True, "1", [1]])
def test_a_seed_is_a_whole_number(seed):
    """NumPy draws another seed each time for None."""
    with pytest.raises(Error, match="the seed"):
        NgramIds((2,), 1, 9, seed)


TIMES = [np.array(["2020-01-01"], f"datetime64[{unit}]") for unit in ("ns", "us", "s", "D")]


@pytest.mark.parametrize("column", [
    *TIMES, *(each - each for each in TIMES), np.ma.array(TIMES[0], mask=[True]), TIMES[0][:0]],
    ids=lambda each: str(each.dtype))
def test_times_are_no_ids(column):
    with pytest.raises(BatchError, match=re.escape(f"got times of {column.dtype}: choose")):
        ids_of(column)


@pytest.mark.parametrize("column", [
    [np.timedelta64(5, "ns")], [3, np.timedelta64(5, "ns")], [np.datetime64(5, "ns")],
    np.array([np.timedelta64(5, "ns")], object)], ids=str)
def test_times_in_lists_are_no_ids(column):
    with pytest.raises(BatchError, match=r"of type (timedelta|datetime)64"):
        ids_of(column)


def test_times_of_polars_are_no_ids():
    series = pytest.importorskip("polars").Series(TIMES[0])
    with pytest.raises(BatchError, match=r"got times of datetime64\[ns\]"):
        ids_of(series)
    assert ids_of(np.asarray(series).astype("M8[s]").astype("int64")).tolist() == [1577836800]


NOT_DENSE = {
    "one of layout torch.sparse_coo": lambda each: each.to_sparse(),
    "a quantized one, torch.qint8":
        lambda each: torch.quantize_per_tensor(each, 0.1, 0, torch.qint8),
    "a nested tensor": lambda each: torch.nested.nested_tensor([each]),
    "one on 'meta'": lambda each: each.to("meta")}


@pytest.mark.filterwarnings("ignore:.*(nested tensors|quantized tensor).*")
@pytest.mark.parametrize("what, make", NOT_DENSE.items())
def test_a_tensor_that_is_not_dense_is_no_column(what, make):
    with pytest.raises(BatchError, match=f"dense tensor in memory, got {what}"):
        ids_of(make(torch.ones(3)))
