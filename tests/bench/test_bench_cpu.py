"""`hotrow bench cpu`: its cells, and that every contender trains on the same batches."""

import json
from types import SimpleNamespace

import pytest
import torch
from hotrow.command.cli import main

from benchmarks import cpu

CELLS = ["--batches", "32", "--dims", "4", "--tables", "3", "--rows", "50", "--rounds", "2"]


def test_cells_and_their_figures(tmp_path, capsys):
    code = main(["bench", "cpu", *CELLS, "--bags", "1,3", "--optimizers", "sgd", "--json",
                 "-o", str(tmp_path / "plot")])
    result = json.loads(capsys.readouterr().out)
    assert code == 0 and result["rounds"] == 2
    assert [(cell["bag"], cell["caches"]) for cell in result["cells"]] == [
        (bag, caches) for bag in (1, 3) for caches in cpu.CACHES]
    for cell in result["cells"]:
        assert cell["resident_over_embedding_bag"] == pytest.approx(
            cell["resident_ms"] / cell["embedding_bag_ms"])
        for name in cell["least_ms"]:
            assert 0 < cell["least_ms"][name] <= cell[f"{name}_ms"] <= cell["most_ms"][name]
    assert (tmp_path / "plot" / "cpu.svg").read_text().startswith("<?xml")


def test_contenders_train_alike(monkeypatch):
    """A batch that comes again has moved by the same, whatever a contender's rows began with."""
    pooled: dict[str, list] = {}
    monkeypatch.setattr(cpu.cpu_peers, "backward", lambda bags: (
        pooled[name].append(bags.detach().reshape(32, -1).clone()), bags.sum().backward()))
    trace = cpu.open_trace("zipf:1.05", seed=1, tables=3, table_rows=50)
    contenders = cpu._contenders(
        trace.cardinalities, 4, cpu.OPTIMIZERS["sgd"](0.125),
        SimpleNamespace(modes=("resident", "scratchpipe"), seed=0))
    batches = [cpu._bags(trace, number % 3, 32, 2) for number in range(6)]
    for name, contender in contenders.items():
        pooled[name] = []
        for number in range(4):
            contender.step(batches, number)
        contender.end()
        contender.close()
    moved = {name: found[3] - found[0] for name, found in pooled.items()}
    assert moved.keys() >= {"resident", "scratchpipe", "embedding_bag"}
    assert (moved["resident"] < -0.1).all(), "every bag has a row that trained"
    assert torch.equal(moved["resident"], moved["scratchpipe"])
    ours = moved["resident"].reshape(32, 3, 4)
    for name, found in moved.items():
        # The merged bags are feature after feature.
        theirs = found.reshape(3, 32, 4).transpose(0, 1) if name == "embedding_bag" else found
        torch.testing.assert_close(theirs.reshape(32, 3, 4), ours, msg=name)
