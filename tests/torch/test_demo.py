"""`hotrow demo`, the first command of a newcomer."""

import json

import pytest
from hotrow.command.cli import main

QUICK = ["--trace", "zipf:1.3:2000", "--batches", "4", "--batch-size", "128", "--mlp-scale", "0.1",
         "--slots", "4096"]


def demo(capsys, *arguments):
    code = main(["demo", *arguments])
    return code, *capsys.readouterr()


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """The demo writes its timeline into the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


def test_demo_shows_the_overlap(capsys, tmp_path):
    code, shown, err = demo(capsys, "--transport", "model", *QUICK)
    assert code == 0
    for text in ("SYNTHETIC", "check held", "modelled cycles", "lookups that hit", "AUC",
                 "Projected, not measured", "mode hotline", "mode scratchpipe", "with the card",
                 "What the card hides", "cycles by formula, projected clock",
                 "timeline of mode hotline: hotrow-demo.json"):
        assert text in " ".join(shown.split()), text
    assert max(map(len, shown.splitlines())) <= 80 and err == ""
    trace = json.loads((tmp_path / "hotrow-demo.json").read_text())
    assert {"SPLIT", "GATHER", "SCATTER"} <= {each["name"] for each in trace["traceEvents"]}


def test_json_is_one_object_and_nothing_else(capsys):
    code, out, _ = demo(capsys, "--transport", "model", "--json", *QUICK)
    result = json.loads(out)
    assert code == 0 and result["synthetic"] is True and result["check_held"] is True
    assert result["transport"] == "model" and result["trace"] == "zipf:1.3:2000"
    assert result["scratchpipe"]["table_hash_equal"] is True
    steps = {each["mode"]: each["step_ms"] for each in result["end_to_end"]["modes"]}
    assert set(steps) == {"hotline", "scratchpipe", "resident-host"} and min(steps.values()) > 0


def test_one_mode(capsys):
    code, out, _ = demo(capsys, "--transport", "model", "--json", "--mode", "scratchpipe", *QUICK)
    result = json.loads(out)
    assert code == 0 and result["mode"] == "scratchpipe" and "hotline" not in result


@pytest.mark.slow
def test_demo_on_the_hardware_is_the_model_to_the_bit(capsys):
    _, out, _ = demo(capsys, "--transport", "model", "--json", *QUICK)
    modelled = json.loads(out)
    code, out, _ = demo(capsys, "--json", *QUICK)
    result = json.loads(out)
    assert code == 0 and result["transport"] == "sim"
    for name in ("table_sha256", "hit_rate", "popular_fraction", "rows_moved", "loss", "auc",
                 "max_row_difference"):
        assert result[name] == modelled[name], name
    code, shown, _ = demo(capsys, *QUICK)
    assert code == 0 and "the hardware's own counters" in shown


@pytest.mark.slow
def test_whole_demo_learns(capsys):
    """All 33.8 million rows, with the model instead of the hardware."""
    code, out, _ = demo(capsys, "--transport", "model", "--mode", "hotline", "--json")
    result = json.loads(out)
    assert code == 0 and result["check_held"] and result["rows"] == 33_762_577
    assert result["auc"] > 0.65 and result["auc_reference"] > 0.65
    # Near the papers: about three quarters of the samples, and nearly all lookups, are of hot rows.
    assert 0.55 < result["popular_fraction"] < 0.9 and 0.97 < result["hit_rate"] < 1
