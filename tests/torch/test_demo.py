"""`hotrow demo`, the first command of a newcomer."""

import json

import pytest
from hotrow.command.cli import main
from hotrow.kernels.library import library

QUICK = ["--trace", "zipf:1.3:2000", "--batches", "4", "--batch-size", "128", "--mlp-scale", "0.1",
         "--slots", "4096"]


def demo(capsys, *arguments):
    code = main(["demo", *arguments])
    return code, *capsys.readouterr()


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """The demo writes its timeline into the current folder, and says once that it compiles."""
    library()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.slow
def test_demo_tells_one_story(capsys, tmp_path):
    code, shown, err = demo(capsys, "--transport", "model", *QUICK)
    assert code == 0
    text, at = " ".join(shown.split()), -1
    for part in ("1. hotrow's software on this machine", "SYNTHETIC", "lookups that hit",
                 "check held", "2. The same batches, with the card (model)", "modelled cycles",
                 "check held",
                 "equal to the bit", "3. What a card would change", "projected clock",
                 "free cores", "The driver takes",
                 "timeline of the projected steps: hotrow-demo.json"):
        at = text.find(part, at + 1)
        assert at >= 0, part
    assert max(map(len, shown.splitlines())) <= 80 and err == ""
    names = {slice_["name"] for slice_ in
             json.loads((tmp_path / "hotrow-demo.json").read_text())["traceEvents"]}
    assert {"driver", "PLAN", "GATHER", "SCATTER", "step"} <= names


@pytest.mark.parametrize("slip, message", [
    (["--transport", "smi"], "unknown transport 'smi'"), (["--preset", "ecp6"], "unknown preset"),
    (["--timeline", "/nowhere/a.json"], "there is no folder /nowhere")])
def test_a_slip_shows_before_the_software_trains(capsys, monkeypatch, slip, message):
    monkeypatch.setattr("hotrow.torch.training.train.train", None)
    code, _, err = demo(capsys, *QUICK, *slip)
    assert code == 2 and message in err and err.count("\n") == 1


@pytest.mark.slow
def test_json_is_one_object_and_nothing_else(capsys):
    code, out, _ = demo(capsys, "--transport", "model", "--json", *QUICK)
    result = json.loads(out)
    assert code == 0 and result["synthetic"] is True and result["check_held"] is True
    assert result["transport"] == "model" and result["trace"] == "zipf:1.3:2000"
    software = result["software"]
    assert software["transport"] == "cpu" and result["answers_equal"] is True
    for name in ("table_sha256", "hit_rate", "rows_moved", "loss", "auc"):
        assert result[name] == software[name], name
    assert result["end_to_end"]["step_ms"] >= result["end_to_end"]["host_ms"] * (1 - 1e-4) > 0


@pytest.mark.slow
def test_the_software_alone_in_another_mode(capsys):
    code, out, _ = demo(capsys, "--transport", "cpu", "--json", "--mode", "hotline", *QUICK)
    result = json.loads(out)
    assert code == 0 and result["mode"] == "hotline" and result["transport"] == "cpu"
    assert result["software"]["table_sha256"] == result["table_sha256"]


@pytest.mark.slow
def test_different_tables_are_a_failure(capsys, monkeypatch):
    from hotrow.torch.training import train

    plain = train.train
    monkeypatch.setattr(train, "train", lambda options, *given: plain(options, *given) | {
        "table_sha256": options.transport})
    code, shown, _ = demo(capsys, "--transport", "model", *QUICK)
    assert code == 1 and "DIFFERENT" in shown


@pytest.mark.slow
def test_demo_on_the_hardware_is_the_software_to_the_bit(capsys):
    code, out, _ = demo(capsys, "--json", *QUICK, "--preset", "tiny", "--slots", "256")
    result = json.loads(out)
    assert code == 0 and result["transport"] == "sim" and result["answers_equal"] is True
    assert result["hit_rate"] == result["software"]["hit_rate"]


@pytest.mark.long
def test_demo_on_the_hardware_says_whose_figures_they_are(capsys):
    code, shown, _ = demo(capsys, *QUICK)
    assert code == 0 and "the hardware's own counters" in shown


@pytest.mark.long
def test_whole_demo_learns(capsys):
    """All 33.8 million rows, without the hardware."""
    code, out, _ = demo(capsys, "--transport", "cpu", "--json", "--batches", "80")
    result = json.loads(out)
    assert code == 0 and result["check_held"] and result["rows"] == 33_762_577
    assert result["auc"] > 0.65 and result["auc_reference"] > 0.65
    assert 0.97 < result["hit_rate"] < 1
