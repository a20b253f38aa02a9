"""The model against published results: its requirements, and scores by hand."""

import json
from math import log
from pathlib import Path

import numpy as np
import pytest
from hotrow.command import cli
from hotrow_explore import constants, report, validate

KNOWN = constants.load()
PAGE = Path(__file__).parents[2] / "docs" / "explorer_validation.md"


@pytest.fixture(scope="module")
def result():
    return validate.validation(KNOWN)


@pytest.mark.slow
def test_the_model_beats_a_constant(result):
    assert len(result["published"]) == 10
    assert result["error_over_best_constant"] <= 0.5
    assert result["rank_correlation"] >= 0.8
    assert result["within_30_percent"] >= 6
    assert result["not_fitted_error"] <= 0.5 * result["not_fitted_best_constant_error"]
    assert validate.passed(result)


@pytest.mark.parametrize("number", range(7))
def test_a_finding_of_the_study_is_reproduced(result, number):
    assert len(result["qualitative"]) == 7
    finding = result["qualitative"][number]
    assert finding["reproduced"], f"{finding['name']}: {finding['evidence']}"


def test_no_single_assumption_decides_the_result(result):
    """With any assumed constant halved or doubled the model still beats a constant predictor."""
    assert len(result["sensitivity"]) >= 10
    for turned in result["sensitivity"]:
        assert turned["error_over_best_constant"] < 0.6, turned
        assert turned["rank_correlation"] >= 0.8, turned


def test_the_page_equals_the_output(result):
    assert PAGE.read_text() == report.validation_markdown(result), \
        "regenerate with: hotrow explore --validate > docs/explorer_validation.md"


@pytest.mark.slow
def test_the_command_writes_one_json_object(result, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(validate, "validation", lambda constants: result)
    assert cli.main(["explore", "--validate", "--json", "-o", str(tmp_path)]) == 0
    printed = json.loads(capsys.readouterr().out)
    figures = printed.pop("figures")
    assert printed == json.loads(json.dumps(result))
    assert {"name", "published", "model", "fitted"} <= result["published"][0].keys()
    assert "(validation.svg)" in (tmp_path / "validation.md").read_text()
    assert (tmp_path / "validation.svg").read_text().startswith("<svg")
    page = (PAGE.parent / "images" / "papers.svg").read_text()
    for drawn in (page, (tmp_path / "papers.svg").read_text()):
        assert all(f">{value:.2f}<" in drawn for figure in figures
                   for series in figure["series"] for value in series["values"]), \
            "regenerate with: hotrow explore --validate -o docs/images, and keep papers.svg"
    published = {each["name"]: each for each in result["published"]}
    assert figures[2]["points"]["avazu"] == published["freqcache-avazu"]["published"]
    assert [each["value"] for each in figures[0]["lines"]] == [3.0, 1.8]
    for each, name in ((figures[0], "hotline-hybrid"), (figures[1], "scratchpipe-mean")):
        values = each["series"][0]["values"]
        assert np.exp(np.mean(np.log(values))) == pytest.approx(published[name]["model"])


def ratio(published, model, fitted=False):
    return validate.Ratio("", "", published, model, fitted, "")


def test_scores_by_hand():
    found = [ratio(1, 1.2), ratio(2, 1), ratio(4, 4), ratio(8, 8, True)]
    score = validate.score(found)
    assert score["best_constant"] == pytest.approx(8**0.5)
    assert score["within_30_percent"] == 3
    assert score["most_within_of_a_constant"] == 1
    assert score["error_over_best_constant"] == pytest.approx(
        (log(1.2) + log(2)) / (4 * log(2)))
    assert score["rank_correlation"] == pytest.approx(0.8)
    assert score["not_fitted"] == 3 and score["not_fitted_within_30_percent"] == 2


def test_a_constant_predictor_fails():
    model = [ratio(each.published, 2.0) for each in validate.ratios(KNOWN)]
    score = validate.score(model)
    assert score["rank_correlation"] == 0.0
    assert score["error_over_best_constant"] > 0.99
    assert not validate.passed({**score, "qualitative_reproduced": 7, "qualitative_findings": 7})


def test_ranks_share_ties():
    assert validate.rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert validate.rank_correlation([1, 2, 2, 3], [1, 5, 5, 9]) == pytest.approx(1)
