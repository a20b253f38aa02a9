"""`hotrow demo`, the first command of a newcomer."""

import json

import pytest
from hotrow.cli import main

QUICK = ["--trace", "zipf:1.3:2000", "--batches", "4", "--batch-size", "128", "--mlp-scale", "0.1",
         "--slots", "2000"]


def demo(capsys, *arguments):
    code = main(["demo", *arguments])
    return code, *capsys.readouterr()


def test_demo_says_that_its_input_is_synthetic(capsys):
    code, shown, _ = demo(capsys, "--transport", "model", *QUICK)
    assert code == 0
    for text in ("SYNTHETIC", "check held", "modelled cycles", "lookups that hit", "AUC",
                 "Projected, not measured"):
        assert text in shown, text


def test_json_is_one_object_and_nothing_else(capsys):
    code, out, _ = demo(capsys, "--transport", "model", "--json", *QUICK)
    result = json.loads(out)
    assert code == 0 and result["synthetic"] is True and result["check_held"] is True
    assert result["transport"] == "model" and result["trace"] == "zipf:1.3:2000"


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
    code, out, _ = demo(capsys, "--transport", "model", "--json")
    result = json.loads(out)
    assert code == 0 and result["check_held"] and result["rows"] == 33_762_577
    assert result["auc"] > 0.65 and result["auc_reference"] > 0.65
    assert 0 < result["popular_fraction"] < result["hit_rate"] < 1
