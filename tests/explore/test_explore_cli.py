"""`hotrow explore` from end to end: its files, its answers, its errors."""

import csv
import gzip
import json
import re

import numpy as np
import pytest
from hotrow.command import cli
from hotrow_explore import sweeps


def explore(*arguments):
    return cli.main(["explore", *map(str, arguments)])


@pytest.mark.long
def test_report_of_a_named_workload(tmp_path, capsys):
    assert explore("--workload", "criteo-kaggle", "--system", "v100", "--card", "none",
                   "-o", tmp_path, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["projected"] and result["verdict"].startswith("no card")
    assert 0 < result["locality"]["popular"] < 1
    page = (tmp_path / "report.html").read_text()
    assert "projected" in page and "gpu-tables" in page
    assert page.count("<svg") == 10 and page.count("<tr class=best>") >= 1
    assert not re.search(r'(?:src|href)="?(?!#)[^"#]', page.replace("xlink:href=\"#", "")), \
        "the page needs no other file"
    with open(tmp_path / "sweeps.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["knob"] for row in rows} == {"dense", "sparse", "batch", "hash", "mlp", "pooling",
                                             "hot", "card", "link"}
    off = [row for row in rows if row["knob"] == "hash" and row["placement"] == "gpu-tables"
           and not row["seconds"]]
    assert off and all("does not fit" in row["reason"] for row in off)


def keep_sweep(monkeypatch, knob):
    monkeypatch.setattr(sweeps, "SWEEPS", {knob: sweeps.SWEEPS[knob]})


@pytest.mark.slow
def test_report_of_a_trace(tmp_path, capsys, monkeypatch):
    keep_sweep(monkeypatch, "batch")
    ids = np.random.default_rng(1).integers(50, size=(3000, 2))
    lines = ["click\tuser\titem", *(f"{u % 2}\t{u}\t{i}" for u, i in ids)]
    path = tmp_path / "log.tsv.gz"
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    assert explore("--trace", path, "--ids", "user,item", "--label", "click", "--batch-size", 100,
                   "--hot-budget", "50%", "-o", tmp_path / "out", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["tables"], result["rows"], result["batch"]) == (2, 100, 100)
    assert 0.4 < result["locality"]["hit_rate"] < 0.9
    assert result["hot_mb"] == pytest.approx(50 * 64 / 2**20)
    assert (tmp_path / "out" / "report.html").read_text().count("<svg") == 2


@pytest.mark.parametrize("arguments, message", [
    (["--system", "abacus"], "unknown system 'abacus'"),
    (["--workload", "m9"], "unknown workload 'm9'"),
    (["--card", "u9"], "unknown card 'u9'"),
    (["--batch-size", "-4"], "expected an integer of at least 1, not '-4'"),
    (["--dim", "0"], "expected an integer of at least 1"),
    (["--mlp", "512x3"], "expected width^layers such as 512^3"),
    (["--ids", "a"], "there is none"),
    (["--trace", "nowhere.tsv"], "no trace file nowhere.tsv"),
    (["--trace", "single", "--workload", "m1"], "not both"),
    (["--system", "cpu-server", "--gpus", "2"], "has no GPU"),
    (["--check-resident"], "needs --calibrate"),
    (["--calibrate", "--free-cores", 4096], "--free-cores 4096 with --calibrate: this host has"),
    (["-o", __file__], "test_explore_cli.py is a file; name another folder"),
    (["--map", "--workload", "m1"], "--map does not read --workload: leave one of them out"),
    (["--map", "--free-cores", "2"], "--map does not read --free-cores"),
    (["--validate", "--gpus", "2"], "--validate does not read --gpus"),
    (["--validate", "--map"], "not allowed with argument"),
])
def test_errors_are_one_line(arguments, message, capsys):
    assert explore(*arguments) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


@pytest.mark.slow
def test_a_system_without_enough_memory_is_an_answer(tmp_path, capsys, monkeypatch):
    keep_sweep(monkeypatch, "dense")
    assert explore("--workload", "dlrm-v4", "--system", "cloud-small", "-o", tmp_path) == 0
    assert capsys.readouterr().out.startswith("does not fit")
    assert "does not fit host memory: needs 600.2 GB" in (tmp_path / "report.html").read_text()
