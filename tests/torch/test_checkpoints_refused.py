"""What cannot be saved or loaded again is refused, and leaves what was there."""

import copy
from collections import OrderedDict, defaultdict, deque
from pathlib import Path

import numpy as np
import pytest
import torch
from hotrow.contract.errors import Error
from hotrow.torch import Checkpoint, HotEmbeddingBagCollection, TableConfig, TrainPipeline

IDS = torch.randint(0, 30, (4, 16, 2), generator=torch.Generator().manual_seed(0))


class Unknown:
    """Of a class that the reader of files does not make."""


def card_of(mode):
    return {} if mode == "resident" else {"device": "model", "preset": "tiny"}


def collection_of(mode="resident", seed=1, optimizer="adagrad", folder=None):
    tables = [TableConfig(name, 30, dim, path=folder)
              for name, dim in (("a", 8), ("b", 4))]
    return HotEmbeddingBagCollection(tables, mode=mode, optimizer=optimizer, lr=0.1,
                                     seed=seed, **card_of(mode))


def train(collection, batches=IDS):
    for ids in batches:
        collection(ids).square().sum().backward()
        collection.optimizer.step()


def contents(collection):
    """Copies of all rows and of all state."""
    return {name: each.clone() for name, each in (
        *collection.state_dict().items(), *collection.saved.row_states().items())}


def same(collection, before):
    return all(torch.equal(each, before[name]) for name, each in contents(collection).items())


@pytest.mark.parametrize("value", [
    np.float64(1.5), np.int64(3), np.zeros(3), defaultdict(int), Path("a"), deque([1]), Unknown(),
    {"deep": [1, np.float32(2)]}, lambda: 0, (each for each in ())],
    ids=lambda value: type(value).__name__)
def test_a_part_that_would_not_load_is_named_and_the_checkpoint_stays(tmp_path, value):
    checkpoint = Checkpoint(tmp_path / "run.pt")
    checkpoint.save(batch=1)
    with pytest.raises(Error, match=r"run.pt was not saved, and is as before: its part 'best' "
                                    r"could not be loaded again \(.*\). Give "):
        checkpoint.save(batch=2, rows=torch.ones(3), best=value)
    assert checkpoint.load() == {"batch": 1}
    assert [each.name for each in tmp_path.iterdir()] == ["run.pt"]


def test_a_part_that_would_not_load_makes_no_checkpoint(tmp_path):
    with pytest.raises(Error, match="part 'best'"):
        Checkpoint(tmp_path / "run.pt").save(best=np.float64(1.5))
    assert not list(tmp_path.iterdir())


def test_parts_that_fail_together_only(tmp_path, monkeypatch):
    """Whatever the reader refuses, the previous checkpoint stays."""
    checkpoint, load = Checkpoint(tmp_path / "run.pt"), torch.load
    checkpoint.save(batch=1)

    def failing(file, **options):
        if ".run.pt." in str(file):
            raise ValueError("planted")
        return load(file, **options)

    monkeypatch.setattr(torch, "load", failing)
    with pytest.raises(Error, match=r"as before: it could not be loaded again \(planted\)"):
        checkpoint.save(batch=2)
    monkeypatch.undo()
    assert checkpoint.load() == {"batch": 1}
    assert [each.name for each in tmp_path.iterdir()] == ["run.pt"]


def test_a_part_named_format_is_refused(tmp_path):
    with pytest.raises(Error, match="own part 'format': give yours another name"):
        Checkpoint(tmp_path / "run.pt").save(format="x")
    assert not list(tmp_path.iterdir())


def test_what_a_run_has_is_saved(tmp_path):
    """Also beside float() of a number of NumPy, as the error advises."""
    collection = collection_of()
    pipeline = TrainPipeline(list(IDS), collection, lambda ids: ids)
    train(collection)
    parts = {"rows": collection.state_dict(), "optimizer": collection.optimizer.state_dict(),
             "pipeline": pipeline.state_dict(), "best": float(np.float64(1.5)), "name": "run",
             "nothing": None, "all": [1, (2, 3), OrderedDict(a=torch.Size([1]))]}
    checkpoint = Checkpoint(tmp_path / "run.pt")
    checkpoint.save(**parts)
    found = checkpoint.load()
    assert list(found) == list(parts) and found["all"] == parts["all"] and found["best"] == 1.5
    other = collection_of(seed=2)
    other.load_state_dict(found["rows"])
    other.optimizer.load_state_dict(found["optimizer"])
    assert other.sha256() == collection.sha256()


UNFIT = {
    "sparse": (lambda each: each.to_sparse(), "layout torch.sparse_coo.*to_dense"),
    "csr": (lambda each: each.to_sparse_csr(), "layout torch.sparse_csr"),
    "quantized": (lambda each: torch.quantize_per_tensor(each, 0.1, 0, torch.qint8),
                  r"a quantized one, torch.qint8: give its dequantize"),
    "nested": (lambda each: torch.nested.nested_tensor(list(each)), "a nested tensor"),
    "numpy": (lambda each: each.numpy(), "is no dense tensor with contents, but ndarray"),
    "list": (lambda each: each.tolist(), "is no dense tensor with contents, but list"),
    "none": (lambda _: None, "is no dense tensor with contents, but NoneType"),
    "meta": (lambda each: each.to("meta"), "is no dense tensor with contents, but one on 'meta'")}


@pytest.mark.filterwarnings("ignore:.*(Sparse CSR|nested tensors|quantized tensor).*")
@pytest.mark.parametrize("what", UNFIT)
@pytest.mark.parametrize("mode", ["resident", "scratchpipe"])
def test_what_cannot_be_copied_into_a_table_leaves_all(mode, what):
    make, words = UNFIT[what]
    with collection_of(mode) as collection, collection_of(seed=2) as other:
        train(collection)
        before = contents(collection)
        rows = {name: each.clone() for name, each in other.state_dict().items()}
        rows["embedding_bags.b.weight"] = make(rows["embedding_bags.b.weight"])
        with pytest.raises(RuntimeError, match=f"embedding_bags.b.weight .*{words}"):
            collection.load_state_dict(rows)
        assert same(collection, before) and not collection.staging.broken
        state = copy.deepcopy(other.optimizer.state_dict())
        state["state"][0]["b"] = make(state["state"][0]["b"].clone())
        with pytest.raises(Error, match=f"^the state of table 'b' .*{words}") as found:
            collection.optimizer.load_state_dict(state)
        assert type(found.value) is Error
        assert same(collection, before) and not collection.staging.broken


@pytest.mark.parametrize("broken, words", [
    (None, "got NoneType"), ([], "got list"), ({}, "param_groups are no list of one dict"),
    ({"state": None}, "state is no dict"), ({"state": []}, "state is no dict"),
    ({"state": {0: None}}, "state is no dict"), ({"state": {0: [1]}}, "state is no dict"),
    ({"state": {0: {}}}, r"expected the state of tables \['a', 'b'\], got \[\]"),
    ({"state": {0: {1: 2, "a": 3}}}, r"got \[1, 'a'\]"),
    ({"state": {}}, r"got \[\]"), ({"param_groups": None}, "no list of one dict"),
    ({"param_groups": [{}, {}]}, "no list of one dict"),
    ({"param_groups": [None]}, "no list of one dict"),
    ({"optimizer": "adam"}, "this is the state of 'adam'"),
    ({"access_counts": torch.zeros(2, 4, dtype=torch.int64)}, r"int64\[3, n\].*\[2, 4\]"),
    ({"access_counts": torch.ones(3, 4)}, r"int64\[3, n\].*torch.float32"),
    ({"access_counts": -torch.ones(3, 4, dtype=torch.int64)}, "from 0 to 4294967295, got -1"),
    ({"access_counts": [1]}, "access_counts is no dense tensor with contents, but list"),
    ({"access_counts": (["a"], None)}, "is no dense tensor with contents, but NoneType"),
    ({"access_counts": torch.zeros(3, 4).to_sparse()}, "contents, but one of layout"),
], ids=str)
def test_what_is_no_state_of_this_optimizer_loads_nothing(broken, words):
    with collection_of("freqcache") as collection, collection_of(seed=2) as other:
        train(collection)
        train(other)
        other.optimizer.param_groups[0]["lr"] = 0.5
        before, counts = contents(collection), collection.optimizer.state_dict()["access_counts"][1]
        state = other.optimizer.state_dict()
        with pytest.raises(Error, match=words) as found:
            collection.optimizer.load_state_dict(
                {**state, **broken} if broken else broken)
        assert type(found.value) is Error
        assert same(collection, before) and collection.optimizer.param_groups[0]["lr"] == 0.1
        assert torch.equal(collection.optimizer.state_dict()["access_counts"][1], counts)
        collection.optimizer.load_state_dict(state)
        assert collection.optimizer.param_groups[0]["lr"] == 0.5


@pytest.mark.parametrize("mode", ["resident", "scratchpipe", "freqcache", "hotline"])
def test_a_closed_collection_saves_and_loads(mode):
    with collection_of(mode) as collection:
        train(collection)
    state = copy.deepcopy(collection.optimizer.state_dict())
    assert not state["access_counts"][1].numel()
    with collection_of(mode, seed=2) as other:
        other.load_state_dict(collection.state_dict())
        other.optimizer.load_state_dict(state)
        assert other.sha256() == collection.sha256()
        train(other)
        state, digest = copy.deepcopy(other.optimizer.state_dict()), other.sha256()
        saved = {name: each.clone() for name, each in other.state_dict().items()}
    assert bool(state["access_counts"][1].numel()) == (mode in ("freqcache", "hotline"))
    collection.load_state_dict(saved)
    collection.optimizer.load_state_dict(state)
    assert collection.sha256() == digest


@pytest.mark.parametrize("what", ["rows", "state"])
def test_a_load_into_closed_tables_says_that_nothing_was_loaded(tmp_path, what):
    with collection_of(folder=tmp_path / "t") as collection:
        train(collection)
    with collection_of(seed=2) as other:
        rows, state = other.state_dict(), other.optimizer.state_dict()
    before = collection.sha256()
    with pytest.raises(Error, match=r"^the collection is closed") as found:
        if what == "rows":
            collection.load_state_dict(rows)
        else:
            collection.optimizer.load_state_dict(state)
    assert type(found.value) is Error
    assert collection.sha256() == before and not collection.staging.broken
