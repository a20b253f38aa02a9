"""Every plot has a title, axes with units, a legend, and marks for placements that do not fit."""

import pytest
from hotrow_explore import constants, plots, systems, workloads
from hotrow_explore.cards import PublishedAccelerator
from hotrow_explore.placements import PLACEMENTS, Question
from hotrow_explore.sweeps import SWEEPS, answers, sweep

QUESTION = Question(workloads.find("criteo-kaggle"), systems.find("v100"), constants.load(),
                    card=PublishedAccelerator())


def labelled(axes):
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert axes.get_title() and len(legend) > 2
    assert "projected" in axes.get_xlabel() + axes.get_ylabel()
    return legend


@pytest.mark.parametrize("knob", ["dense", "hash", "mlp", "link"])
def test_sweeps_are_labelled(knob):
    axes = plots.sweep_figure(sweep(QUESTION, knob), knob, "title").axes[0]
    assert len(labelled(axes)) == len(PLACEMENTS)
    assert axes.get_xlabel() == SWEEPS[knob][0] and "(ms)" in axes.get_ylabel()


def test_a_placement_that_does_not_fit_is_drawn():
    axes = plots.sweep_figure(sweep(QUESTION, "hash"), "hash", "title").axes[0]
    crosses = [line for line in axes.lines if line.get_marker() == "x" and len(line.get_xdata())]
    assert crosses
    assert any("parameter-servers: not possible" in name for name in labelled(axes))


def test_parts_are_labelled():
    figure = plots.parts_figure(answers(QUESTION), "title")
    assert "embedding" in labelled(figure.axes[0])
    assert "(ms)" in figure.axes[0].get_xlabel()


def test_validation_is_labelled():
    result = {"best_constant": 2.0, "published": [
        {"name": "a", "published": 1.0, "model": 1.1, "fitted": True},
        {"name": "b", "published": 2.0, "model": 1.9, "fitted": False}]}
    figure = plots.validation_figure(result)
    assert {"fitted", "not fitted", "best constant"} <= set(labelled(figure.axes[0]))
    assert plots.svg(figure).startswith("<svg") and plots.svg(figure) == plots.svg(figure)
