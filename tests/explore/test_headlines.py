"""`hotrow bench end-to-end --published`: settings of published results, beside their ratios."""

import json
from argparse import Namespace

import pytest
from hotrow.command.cli import main
from hotrow.command.terminal import Steps
from hotrow_explore import constants, headlines, validate
from hotrow_explore.constants import read

COMMAND = ["bench", "end-to-end", "--transport", "model"]


def named(*names):
    return Namespace(preset="alveo-u55c", published=names)


@pytest.mark.slow
def test_every_system_with_a_card_is_compared_and_settings_run_once():
    ran = []

    def run(mode, question):
        ran.append((mode, question.workload, question.system.name, question.hot_rows))
        assert question.hot_rows <= 2**20, "no more rows than the card's directory has slots"
        return {"step_ms": 2.0, "over_explore": 1.1 if mode == "hotline" else None}

    records = {each["result"]: each for each in headlines.compare(named("all"), run, Steps())}
    entries = {name: each for name, each in read("published").items() if each["ours"] != "fae"}
    assert set(records) == set(entries) and len(set(ran)) == len(ran)
    assert {mode for mode, *_ in ran} == {"hotline", "scratchpipe", "freqcache"}
    for name, each in records.items():
        assert each["published"] == entries[name]["value"] and each["settings"] > 0
    assert records["hotline-hybrid"]["over_explorer_most"] == 1.1
    assert records["scratchpipe-max"]["settings_beyond_the_slots"] == 4
    assert records["scratchpipe-max"]["end_to_end"] > records["scratchpipe-mean"]["end_to_end"]


def test_the_explorer_in_place_of_the_schedule_gives_the_explorer_ratios():
    """The settings and baselines are those of `hotrow explore --validate`."""
    from hotrow_explore.placements import PLACEMENTS

    known = constants.load()
    entry = read("published")["hotline-hugectr"]
    ours = [PLACEMENTS["hotline"](question).seconds for question, _ in validate.cases(entry, known)]
    steps = iter(ours)
    found, = headlines.compare(named("hotline-hugectr"), lambda mode, question: {
        "step_ms": 1e3 * next(steps), "over_explore": 1.0}, Steps())
    assert found["end_to_end"] == pytest.approx(found["explorer_ideal_card"])
    assert found["end_to_end"] == pytest.approx(entry["value"], rel=0.01)  # fitted


@pytest.mark.slow
def test_a_result_from_end_to_end(capsys, monkeypatch):
    """One small setting through the card's model."""
    entry = dict(read("published")["hotline-hybrid"], workloads=["avazu"], systems=["v100"])
    monkeypatch.setattr(headlines, "read", lambda name: {"hotline-hybrid": entry})
    assert main([*COMMAND, "--published", "hotline-hybrid", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    record, = result["results"]
    assert result["figures"] == "cycles by formula, projected clock"
    assert record["settings"] == 1 and record["end_to_end"] > 1
    assert 0.8 < record["over_explorer_least"] <= record["over_explorer_most"] < 1.2

    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(headlines, "compare", lambda options, run, steps: [record])
    assert main([*COMMAND, "--published", "hotline-hybrid"]) == 0
    shown, err = capsys.readouterr()
    assert "hotline-hybrid" in shown and max(map(len, shown.splitlines())) <= 80
    assert err == "cycles by formula, projected clock\n"


@pytest.mark.parametrize("arguments, message", [
    (["--published", "fae-xdl-cpu"], "not fae-xdl-cpu"),
    (["--published", "all", "--dim", "8"], "leave out --dim"),
    (["--published", "all", "--workload", "m1"], "leave out --workload"),
    (["--published", "all", "--trainer", "v100", "--modes", "hotline"],
     "leave out --modes, --trainer"),
    (["--published", "all", "--preset", "tiny"], "unknown card 'tiny'"),
])
def test_errors_teach(capsys, arguments, message):
    assert main([*COMMAND, *arguments]) == 2
    out, err = capsys.readouterr()
    assert not out and message in err and err.count("\n") == 1
