"""Checkpoints as ordinary scripts write them."""

import copy

import pytest
import torch
import torch.distributed.checkpoint as dcp
from hotrow.contract.errors import Error
from hotrow.torch import HotEmbeddingBagCollection, TableConfig, TrainPipeline, convert
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_state_dict,
)

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
        return copy.deepcopy({"model": self.model.state_dict(), "dense": self.dense.state_dict()})

    def load(self, saved):
        self.model.load_state_dict(saved["model"])
        self.dense.load_state_dict(saved["dense"])


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "rowwise_adagrad", "adam"])
@pytest.mark.parametrize("mode", ["resident", "scratchpipe"])
def test_model_and_optimizer_resume_a_run(mode, optimizer):
    """They include the state of the rows' optimizer, where it has any."""
    first, second = Run(mode, optimizer), Run(mode, optimizer)
    first.train(IDS[:3])
    saved = first.saved()
    assert ("0.state" in saved["model"]) == (optimizer != "sgd")
    first.train(IDS[3:])
    second.load(saved)
    second.train(IDS[3:])
    for run in (first, second):
        run.tables.flush()
    assert first.tables.sha256() == second.tables.sha256()
    first.tables.close()
    second.tables.close()


def test_a_state_dict_without_state_loads_and_unknown_keys_do_not():
    run = Run("resident")
    plain = {key: value for key, value in run.model.state_dict().items() if "state" not in key}
    run.model.load_state_dict(plain)
    for key in ("0.scale", "0.weight_g"):
        with pytest.raises(RuntimeError, match=key):
            run.model.load_state_dict({**plain, key: torch.ones(1)})
    with pytest.raises(RuntimeError, match=r"0\.state has shape \[3\]"):
        run.model.load_state_dict({**plain, "0.state": torch.ones(3)})
    with pytest.raises(RuntimeError, match=r"0\.state"):
        Run("resident", "sgd").model.load_state_dict(run.model.state_dict())


@pytest.mark.parametrize("mode", ["resident", "scratchpipe"])
def test_fewer_rows_load_on_request(mode):
    """A table that has grown takes its first rows, with their state, from an older checkpoint."""
    card = {} if mode == "resident" else {"device": "model", "preset": "tiny"}
    old, new = (HotEmbeddingBagCollection([TableConfig("a", rows, 8)], mode=mode, lr=0.1, seed=rows,
                                          optimizer="adagrad", **card) for rows in (50, 70))
    old(IDS[0][:, :1]).square().sum().backward()
    old.optimizer.step()
    saved, rest = old.state_dict(), new.table("a")[0][50:].clone()
    with pytest.raises(RuntimeError, match="allow_fewer_rows"):
        new.load_state_dict(saved)
    new.allow_fewer_rows = True
    with pytest.raises(RuntimeError, match="different numbers of rows"):
        new.load_state_dict({**saved, "embedding_bags.a.state": torch.ones(60, 8)})
    new.load_state_dict(saved)
    new.optimizer.load_state_dict(old.optimizer.state_dict())
    new.allow_fewer_rows = False
    with pytest.raises(Error, match=r"'a' has shape \[50, 8\]"):
        new.optimizer.load_state_dict(old.optimizer.state_dict())
    for here, there in zip(new.table("a"), old.table("a"), strict=True):
        assert torch.equal(here[:50], there)
    assert torch.equal(new.table("a")[0][50:], rest) and not new.table("a")[1][50:].any()
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
    _, found = get_state_dict(run.model, [run.dense, run.tables.optimizer])
    assert [group["params"] for group in found["param_groups"]] == [
        ["0.rows", "1.weight", "1.bias"], ["0.rows"]]
    assert "weight_decay" in found["param_groups"][1]["collection"]
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


@pytest.mark.parametrize("optimizer, parts", [("adagrad", ["weight", "state"]),
                                              ("adam", ["weight", "state", "step"])])
def test_generic_code_reads_a_collection(optimizer, parts):
    tables = HotEmbeddingBagCollection([TableConfig("a", 50, 8)], mode="resident",
                                       optimizer=optimizer)
    model, _ = get_state_dict(nn.Sequential(tables), [tables.optimizer])
    assert list(model) == [f"0.embedding_bags.a.{part}" for part in parts]


@pytest.mark.parametrize("kind", [torch.optim.Adagrad, torch.optim.Adam])
@pytest.mark.parametrize("mode, optimizer, through", [
    ("resident", "adagrad", "objects"), ("scratchpipe", "adam", "objects"),
    ("freqcache", "sgd", "files"), ("freqcache", "adam", "flat"), ("resident", "adam", "alone")])
def test_distributed_checkpoints_resume_exactly(tmp_path, mode, optimizer, through, kind):
    """Model, dense optimizer and the optimizer of the rows."""
    options = StateDictOptions(flatten_optimizer_state_dict=through == "flat")
    runs = [Run(mode, optimizer) for _ in range(2)]
    for run in runs:
        run.dense = kind(run.model.parameters(), 0.1)
        run.train(IDS[:2])
    runs[0].tables.optimizer.param_groups[0]["lr"] = 0.05
    runs[1].train(IDS[:1])

    def state(run):
        calls = [[run.dense], [run.tables.optimizer]] if through == "alone" else [
            [run.dense, run.tables.optimizer]]
        return [(get_state_dict(run.model, each, options=options), each) for each in calls]

    saved = [given for given, _ in state(runs[0])]
    if through == "files":
        dcp.save(dict(zip("mo", saved[0], strict=True)), checkpoint_id=tmp_path, no_dist=True)
        loaded = dict(zip("mo", state(runs[1])[0][0], strict=True))
        dcp.load(loaded, checkpoint_id=tmp_path, no_dist=True)
        saved = [(loaded["m"], loaded["o"])]
    saved = copy.deepcopy(saved)
    for (model, optimizers), (_, each) in zip(saved, state(runs[1]), strict=True):
        set_state_dict(runs[1].model, each, model_state_dict=model, optim_state_dict=optimizers,
                       options=options)
    for run in runs:
        run.train(IDS[2:])
        run.tables.flush()
    assert runs[0].tables.sha256() == runs[1].tables.sha256()
    assert torch.equal(runs[0].model[1].weight, runs[1].model[1].weight)
    counts = [run.tables.access_counts() for run in runs]
    assert counts[0] is None or torch.equal(*counts)
    for run in runs:
        assert run.dense.param_groups[0]["lr"] == 0.1
        run.tables.close()


def test_distributed_checkpoints_that_would_mix_optimizers_are_refused():
    run = Run("resident")
    with pytest.raises(Error, match="after the other"):
        get_state_dict(run.model, [run.tables.optimizer, run.dense])
    full = StateDictOptions(full_state_dict=True)
    with pytest.raises(Error, match="full_state_dict"):
        get_state_dict(run.model, [run.dense, run.tables.optimizer], options=full)
    model, dense = get_state_dict(run.model, [run.dense], options=full)
    set_state_dict(run.model, [run.dense], model_state_dict=model, optim_state_dict=dense,
                   options=full)
    with pytest.raises(Error, match="no options of the collection"):
        set_state_dict(run.model, [run.dense, run.tables.optimizer], model_state_dict={},
                       optim_state_dict=get_state_dict(run.model, [run.dense])[1])
