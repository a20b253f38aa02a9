"""Checkpoints as ordinary scripts write them."""

import copy
import io
import os
import signal
import stat
from contextlib import suppress

import pytest
import torch
import torch.distributed.checkpoint as dcp
from hotrow.contract.errors import Error
from hotrow.torch import Checkpoint, HotEmbeddingBagCollection, TableConfig, TrainPipeline, convert
from hotrow.torch.collection.contents import TableContents
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

IDS = torch.randint(0, 50, (6, 16, 3), generator=torch.Generator().manual_seed(0))


class Run:
    """A converted model, its tables, and the optimizer of the rest."""

    def __init__(self, mode, optimizer="adagrad"):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.EmbeddingBag(50, 8, mode="sum"), nn.Linear(8, 1))
        card = {} if mode == "resident" else {"device": "model", "preset": "tiny"}
        self.tables = convert(self.model, mode=mode, optimizer=optimizer, lr=0.1, **card)
        self.dense = torch.optim.Adagrad(self.model.parameters(), 0.1)

    def train(self, batches):
        for ids in batches:
            self.dense.zero_grad()
            self.model(ids).square().mean().backward()
            self.dense.step()
            self.tables.optimizer.step()

    def saved(self):
        return copy.deepcopy({"model": self.model.state_dict(), "dense": self.dense.state_dict(),
                              "rows": self.tables.optimizer.state_dict()})

    def load(self, saved):
        self.model.load_state_dict(saved["model"])
        self.dense.load_state_dict(saved["dense"])
        self.tables.optimizer.load_state_dict(saved["rows"])


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "rowwise_adagrad", "adam"])
@pytest.mark.parametrize("mode", ["resident", "scratchpipe"])
def test_model_and_optimizer_resume_a_run(mode, optimizer):
    """The model's state dict has the keys of the plain model, whatever the optimizer."""
    first, second = Run(mode, optimizer), Run(mode, optimizer)
    first.train(IDS[:3])
    saved = first.saved()
    assert list(saved["model"]) == ["0.weight", "1.weight", "1.bias"]
    first.train(IDS[3:])
    second.load(saved)
    second.train(IDS[3:])
    for run in (first, second):
        run.tables.flush()
    assert first.tables.sha256() == second.tables.sha256()
    first.tables.close()
    second.tables.close()


def test_further_buffers_and_hooks_of_a_module_of_tables():
    run = Run("resident")
    bags, seen = [run.model[0], run.tables], []
    for bag in bags:
        bag.register_buffer("scale", torch.ones(2))
        bag.register_load_state_dict_pre_hook(lambda *_: seen.append("load"))
        saved = {key: each.clone() + 1 for key, each in bag.state_dict().items()}
        bag.load_state_dict(saved)
        assert seen.pop() == "load"
        assert torch.equal(bag.scale, torch.full((2,), 2.0))
        assert torch.equal(run.model[0].weight, next(
            each for key, each in saved.items() if key.endswith("weight")))
        del saved["scale"]
        with pytest.raises(RuntimeError, match=r"Missing.*scale"):
            bag.load_state_dict(saved)


def test_unknown_keys_do_not_load():
    run = Run("resident")
    for key in ("0.scale", "0.weight_g", "0.state"):
        with pytest.raises(RuntimeError, match=key):
            run.model.load_state_dict({**run.model.state_dict(), key: torch.ones(1)})


@pytest.mark.parametrize("mode", ["resident", "scratchpipe"])
@pytest.mark.parametrize("optimizer, dim", [("sgd", 8), ("adam", 8), ("adagrad", 8), ("sgd", 5)])
def test_saved_tensors_are_contiguous_and_of_one_table(mode, optimizer, dim):
    card = {} if mode == "resident" else {"device": "model", "preset": "tiny"}
    model = nn.ModuleList([nn.EmbeddingBag(10, dim), nn.EmbeddingBag(9000, dim)])
    with convert(model, mode=mode, optimizer=optimizer, **card) as tables:
        states = tables.optimizer.state_dict()["state"].get(0, {})
        for tensor in (*model.state_dict().values(), *states.values()):
            tensor.view(-1)
        for small in (model[0].state_dict(), copy.deepcopy(model[0].weight)):
            file = io.BytesIO()
            torch.save(small, file)
            assert file.tell() < 10_000


@pytest.mark.parametrize("mode", ["resident", "scratchpipe"])
def test_fewer_rows_load_on_request(mode):
    """A larger table takes its first rows, with their state, from a checkpoint."""
    card = {} if mode == "resident" else {"device": "model", "preset": "tiny"}
    old, new = (HotEmbeddingBagCollection([TableConfig("a", rows, 8)], mode=mode, lr=0.1,
                                          optimizer="adagrad",
                                          seed=rows, **card) for rows in (50, 70))
    old(IDS[0][:, :1]).square().sum().backward()
    old.optimizer.step()
    saved, rest = old.state_dict(), new.embeddings["a"].weight.detach()[50:].clone()
    with pytest.raises(RuntimeError, match="allow_fewer_rows"):
        new.load_state_dict(saved)
    new.allow_fewer_rows = True
    new.load_state_dict(saved)
    new.optimizer.load_state_dict(old.optimizer.state_dict())
    new.allow_fewer_rows = False
    with pytest.raises(Error, match=r"'a' has shape \[50, 8\]"):
        new.optimizer.load_state_dict(old.optimizer.state_dict())
    for here, there in zip(new.contents.table("a"), old.contents.table("a"), strict=True):
        assert torch.equal(here[:50], there)
    assert torch.equal(new.contents.table("a")[0][50:], rest)
    assert not new.embeddings["a"].state[50:].any()
    with pytest.raises(RuntimeError, match=r"shape \[70, 8\], and the table \[50, 8\]$"):
        old.load_state_dict(new.state_dict())
    old.close()
    new.close()


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
@pytest.mark.parametrize("mode", ["resident", "scratchpipe"])
def test_generic_code_reads_the_rows_optimizer(mode, optimizer):
    run = Run(mode, optimizer)
    run.train(IDS[:2])
    weights = run.model[0].weight.clone()
    state = run.tables.optimizer.state_dict()
    assert {"state", "param_groups"} <= set(state)
    assert state["param_groups"] == [{"lr": 0.1, "weight_decay": 0.0, "params": [0]}]
    assert torch.equal(run.model[0].weight, weights)
    run.tables.close()


def test_to_resume_beyond_the_loaders_end_is_refused():
    tables = HotEmbeddingBagCollection([TableConfig("a", 50, 8)], mode="resident")
    pipeline = TrainPipeline(list(IDS[:2, :, :1]), tables, lambda ids: ids)
    for _ in pipeline:
        pass
    state = {**pipeline.state_dict(), "batch": 5, "random": torch.get_rng_state()}
    pipeline.load_state_dict(state)
    with pytest.raises(Error, match="the loader has 2"):
        next(iter(pipeline))


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
@pytest.mark.parametrize("mode, optimizer", [("resident", "adagrad"), ("freqcache", "adam")])
def test_distributed_checkpoints_resume_exactly(tmp_path, mode, optimizer, kind):
    """They take the dense optimizer, and the dict of the rows' optimizer beside it."""
    runs = [Run(mode, optimizer) for _ in range(2)]
    for run, batches in zip(runs, (2, 1), strict=True):
        run.dense = kind(run.model[1].parameters(), 0.1)
        run.train(IDS[:batches])
    runs[0].tables.optimizer.param_groups[0]["lr"] = 0.05

    def state(run):
        return {"both": get_state_dict(run.model, run.dense),
                "rows": run.tables.optimizer.state_dict()}

    dcp.save(state(runs[0]), checkpoint_id=tmp_path, no_dist=True)
    loaded = state(runs[1])
    dcp.load(loaded, checkpoint_id=tmp_path, no_dist=True)
    model, dense = loaded["both"]
    set_state_dict(runs[1].model, runs[1].dense, model_state_dict=model, optim_state_dict=dense)
    runs[1].tables.optimizer.load_state_dict(loaded["rows"])
    for run in runs:
        run.train(IDS[2:])
        run.tables.flush()
    assert runs[0].tables.sha256() == runs[1].tables.sha256()
    assert torch.equal(runs[0].model[1].weight, runs[1].model[1].weight)
    for run in runs:
        run.tables.close()


def test_the_optimizer_of_rows_is_refused_by_get_state_dict():
    run = Run("resident")
    for _ in range(2):
        with pytest.raises(Error, match=r"state_dict\(\) of collection\.optimizer beside"):
            get_state_dict(run.model, [run.dense, run.tables.optimizer])
        for group in run.tables.optimizer.param_groups:
            group["lr"] = 0.1
        run.train(IDS[:1])


def test_hooks_of_the_rows_optimizer_run_once():
    optimizer, seen = Run("resident").tables.optimizer, []
    for name in ("state_dict_pre", "state_dict_post", "load_state_dict_pre",
                 "load_state_dict_post"):
        getattr(optimizer, f"register_{name}_hook")(lambda *_, name=name: seen.append(name))
    optimizer.load_state_dict(optimizer.state_dict())
    assert seen == ["state_dict_pre", "state_dict_post", "load_state_dict_pre",
                    "load_state_dict_post"]


TABLES = [TableConfig("a", 50, 8), TableConfig("b", 40, 8), TableConfig("c", 30, 4)]


def collection_of(mode, seed):
    card = {} if mode == "resident" else {"device": "model", "preset": "tiny"}
    return HotEmbeddingBagCollection(TABLES, mode=mode, optimizer="adagrad",
                                     seed=seed, **card)


def copied(collection):
    return {name: each.clone() for name, each in collection.state_dict().items()}


@pytest.mark.parametrize("wrong, words", [
    (torch.zeros(31, 4), r"c.weight has shape \[31, 4\], and the table \[30, 4\]"),
    (torch.zeros(30, 4, device="meta"), "c.weight is no dense tensor with contents"),
    ([1.0], "c.weight is no dense tensor with contents, but list")])
@pytest.mark.parametrize("mode", ["resident", "scratchpipe"])
def test_a_wrong_table_leaves_all_as_they_were(mode, wrong, words):
    with collection_of(mode, 1) as collection, collection_of("resident", 2) as other:
        before, saved = copied(collection), copied(other)
        saved["embedding_bags.c.weight"] = wrong
        with pytest.raises(RuntimeError, match=words):
            collection.load_state_dict(saved)
        for name, values in before.items():
            assert torch.equal(collection.state_dict()[name], values), name


def test_a_wrong_table_of_a_converted_model_leaves_the_later_ones():
    """As in PyTorch, modules before it are loaded."""
    model = nn.ModuleList([nn.EmbeddingBag(10, 8), nn.EmbeddingBag(9, 8), nn.EmbeddingBag(8, 8)])
    saved = copy.deepcopy(model.state_dict())
    saved["1.weight"] = torch.zeros(1, 8)
    for each in model:
        nn.init.zeros_(each.weight)
    with convert(model, mode="resident"):
        with pytest.raises(RuntimeError, match="weight has shape"):
            model.load_state_dict(saved)
        assert [bool(each.weight.any()) for each in model] == [True, False, False]


@pytest.mark.parametrize("what", ["rows", "state"])
@pytest.mark.parametrize("mode", ["resident", "scratchpipe"])
def test_after_a_load_that_fails_nothing_trains_until_one_ends(monkeypatch, mode, what):
    with collection_of(mode, 1) as collection, collection_of("resident", 2) as other:
        saved, states, assign = copied(other), other.optimizer.state_dict(), TableContents.assign

        def load(what):
            if what == "rows":
                collection.load_state_dict(saved)
            else:
                collection.optimizer.load_state_dict(states)

        def failing(self, name, *given, **named):
            if name == "b":
                raise OSError("damaged")
            assign(self, name, *given, **named)

        with monkeypatch.context() as patched:
            patched.setattr(TableContents, "assign", failing)
            with pytest.raises(OSError, match="damaged"):
                load(what)
        for call in (lambda: collection(IDS[0] % 30), lambda: collection.prefetch(IDS[0] % 30),
                     collection.optimizer.step):
            with pytest.raises(Error, match=rf"load of {what} failed .damaged.*Load a checkpoint"):
                call()
        assert not collection.eval()(IDS[0] % 30).isnan().any()
        collection.train()
        if what == "rows":
            load("state")  # which does not set rows right
            with pytest.raises(Error, match="a load of rows failed"):
                collection(IDS[0] % 30)
        load(what)
        for each in (collection, other):
            each.load_state_dict(saved)
            each.optimizer.load_state_dict(states)
            each(IDS[0] % 30).sum().backward()
            each.optimizer.step()
        assert collection.sha256() == other.sha256()


@pytest.mark.parametrize("what", ["rows", "state"])
def test_an_interrupt_waits_until_all_are_loaded(monkeypatch, what):
    with collection_of("resident", 1) as collection, collection_of("resident", 2) as other:
        saved, states, assign = copied(other), other.optimizer.state_dict(), TableContents.assign

        def interrupted(self, name, *given, **named):
            if name == "b":
                signal.raise_signal(signal.SIGINT)
            assign(self, name, *given, **named)

        monkeypatch.setattr(TableContents, "assign", interrupted)
        with pytest.raises(KeyboardInterrupt):
            if what == "rows":
                collection.load_state_dict(saved)
            else:
                collection.optimizer.load_state_dict(states)
        assert not collection.staging.broken
        if what == "rows":
            assert collection.state_dict().keys() == saved.keys()
            for name, values in collection.state_dict().items():
                assert torch.equal(values, saved[name]), name


@pytest.mark.parametrize("broken", [
    {"param_groups": []}, {"access_counts": torch.zeros(2, dtype=torch.int64)}], ids=str)
def test_a_damaged_state_of_the_optimizer_changes_nothing(broken):
    with collection_of("freqcache", 1) as collection, collection_of("resident", 2) as other:
        before = {name: each.clone() for name, each in collection.saved.row_states().items()}
        other(IDS[0] % 30).sum().backward()
        other.optimizer.step()
        with pytest.raises(Error, match=r"no list of one dict|expected access_counts int64"):
            collection.optimizer.load_state_dict({**other.optimizer.state_dict(), **broken})
        for name, values in before.items():
            assert torch.equal(collection.saved.row_states()[name], values), name


@pytest.mark.parametrize("owner, name", [
    (torch, "save"), (os, "fsync"), (os, "fchmod"), (os, "replace")],
    ids=lambda each: getattr(each, "__name__", each))
@pytest.mark.parametrize("kind", [OSError, KeyboardInterrupt])
def test_a_save_that_fails_leaves_the_previous_file(tmp_path, monkeypatch, owner, name, kind):
    checkpoint, real = Checkpoint(tmp_path / "saved"), getattr(owner, name)
    checkpoint.save(batch=1)
    for after in (False, True):
        def failing(*given, after=after, **named):
            if after:
                real(*given, **named)
            raise kind("no space on the disk")

        with monkeypatch.context() as patched, suppress(kind):
            patched.setattr(owner, name, failing)
            checkpoint.save(batch=2)
        written = 2 if name == "replace" and after else 1
        assert checkpoint.load() == {"batch": written}
        assert [each.name for each in tmp_path.iterdir()] == ["saved"]


def test_a_distributed_checkpoint_that_does_not_load_leaves_the_model(tmp_path):
    """If it loads into a copy of the state."""
    run = Run("resident")
    dcp.save(run.model.state_dict(), checkpoint_id=tmp_path, no_dist=True)
    run.train(IDS[:2])
    before = run.model[0].weight.clone()
    damaged = next(tmp_path.glob("*.distcp"))
    damaged.write_bytes(damaged.read_bytes()[:1000])
    copies = copy.deepcopy(run.model.state_dict())
    with pytest.raises(dcp.api.CheckpointException):
        dcp.load(copies, checkpoint_id=tmp_path, no_dist=True)
    assert torch.equal(run.model[0].weight, before)


def test_a_checkpoint_follows_the_umask_and_keeps_modes_and_links(tmp_path):
    before = os.umask(0o022)
    try:
        paths = {name: tmp_path / name for name in ("new.pt", "old.pt", "target.pt")}
        paths["old.pt"].touch()
        paths["old.pt"].chmod(0o640)
        link = tmp_path / "link.pt"
        link.symlink_to(paths["target.pt"])
        for path in (paths["new.pt"], paths["old.pt"], link):
            Checkpoint(path).save(a=1)
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(paths[name].stat().st_mode) for name in paths]
    assert modes == [0o644, 0o640, 0o644]
    assert link.is_symlink() and Checkpoint(paths["target.pt"]).load() == {"a": 1}
