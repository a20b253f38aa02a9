"""Cards take their rates from benchmark results, and have none without them."""

import json

import pytest
from hotrow_explore import cards, constants, systems, workloads
from hotrow_explore.placements import Question
from hotrow_explore.sweeps import answers, recommend


def write(folder, name, bench, **fields):
    result = {"preset": name, "lookups_per_cycle": 8.0} | fields
    (folder / f"{name}-{bench}.json").write_text(json.dumps(result))


def test_a_card_has_the_rates_of_its_results(tmp_path):
    write(tmp_path, "alveo-u55c", "observe", lookups_per_cycle=16.0)
    write(tmp_path, "alveo-u55c", "split", lookups_per_cycle=8.0)
    card = cards.find("alveo-u55c", tmp_path)
    assert card.slots == 2**20
    assert card.lookup_seconds(1600) == pytest.approx(200 / 250e6)  # one pass


def test_a_card_without_results_has_no_rates(tmp_path):
    with pytest.raises(cards.NoResult, match=r"no benchmark result for card ecp5-85f.*observe"):
        cards.find("ecp5-85f", tmp_path)
    with pytest.raises(systems.ExploreError, match="unknown card 'u9'"):
        cards.find("u9", tmp_path)


@pytest.mark.parametrize("fields", [{"preset": "tiny"}, {"lookups_per_cycle": 0},
                                    {"lookups_per_cycle": "fast"}])
def test_a_wrong_result_is_refused(tmp_path, fields):
    write(tmp_path, "ecp5-85f", "observe", **fields)
    with pytest.raises(systems.ExploreError, match=r"ecp5-85f-observe\.json"):
        cards.find("ecp5-85f", tmp_path)


def question(work, system, **values):
    return Question(workloads.find(work), systems.find(system), constants.load(), **values)


def test_a_model_that_fits_one_gpu_needs_no_card():
    verdict = recommend(question("criteo-kaggle", "h200", card=cards.PublishedAccelerator()))
    assert not verdict["card"] and verdict["verdict"].startswith("no card")


def test_a_model_that_fits_no_gpu_gains_from_a_card():
    verdict = recommend(question("scratchpipe", "v100", card=cards.PublishedAccelerator()))
    assert verdict["card"] and "times faster" in verdict["verdict"]


def test_without_a_rate_the_answer_is_no_card_or_undecided():
    assert recommend(question("criteo-kaggle", "v100"))["verdict"].startswith("no card")
    assert recommend(question("scratchpipe", "v100"))["verdict"].startswith("undecided")
    reasons = {each.placement: each.reason for each in answers(
        question("criteo-kaggle", "v100", why_no_card="no benchmark result for card x"))}
    assert reasons["hotline"] == "no benchmark result for card x"


def test_tables_larger_than_every_memory_fit_nowhere():
    assert recommend(question("criteo-1tb", "desktop"))["verdict"].startswith("does not fit")


def test_a_slow_card_is_slower():
    class Slow(cards.PublishedAccelerator):
        def lookup_seconds(self, lookups):
            return lookups * 1e-6

    fast = recommend(question("scratchpipe", "v100", card=cards.PublishedAccelerator()))
    slow = recommend(question("scratchpipe", "v100", card=Slow()))
    assert fast["card"] and not slow["card"]


def test_without_a_card_the_whole_gpu_may_cache():
    """A small hot budget alone does not make a card look good."""
    small = question("criteo-1tb", "v100", card=cards.PublishedAccelerator(), hot_bytes=2**20)
    assert recommend(small)["verdict"].startswith("no card")
