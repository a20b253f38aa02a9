"""Cards take their rates from benchmark results, and have none without them."""

import json

import pytest
from hotrow.command.cli import main
from hotrow_explore import cards, constants, systems, workloads
from hotrow_explore.constants import read
from hotrow_explore.placements import Question
from hotrow_explore.sweeps import PER_TABLE, answers, per_table, recommend


def write(folder, name, **changes):
    recorded = {"preset": name, "observe": {"lookups_per_cycle": 16.0},
                "split": {"lookups_per_cycle": 8.0}} | changes
    (folder / f"{name}.json").write_text(json.dumps(recorded))


def test_a_card_has_the_rates_of_its_results(tmp_path):
    write(tmp_path, "alveo-u55c")
    card = cards.find("alveo-u55c", tmp_path)
    assert card.slots == 2**20
    assert card.lookup_seconds(1600) == pytest.approx(200 / 250e6)  # one pass


def test_a_card_without_results_has_no_rates(tmp_path):
    with pytest.raises(cards.NoResult, match="no benchmark result for card alveo-u55c: measure"):
        cards.find("alveo-u55c", tmp_path)
    with pytest.raises(systems.ExploreError, match="unknown card 'u9'"):
        cards.find("u9", tmp_path)


@pytest.mark.parametrize("changes", [
    {"preset": "tiny"}, {"split": {"lookups_per_cycle": 0}}, {"observe": {}}, {"observe": None},
    {"split": {"lookups_per_cycle": "fast"}}, {"split": {"lookups_per_cycle": float("nan")}}])
def test_a_wrong_result_is_refused(tmp_path, changes):
    write(tmp_path, "alveo-u55c", **changes)
    with pytest.raises(systems.ExploreError, match=r"alveo-u55c\.json"):
        cards.find("alveo-u55c", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", read("cards"))
@pytest.mark.parametrize("bench", cards.BENCHES)
def test_recorded_rates_are_those_of_the_cycle_model(name, bench, capsys):
    """The model adds the overhead of each command, which the hardware overlaps; a record of other
    hardware is further off."""
    recorded = cards.result(name)[bench]
    assert main(["bench", bench, "--preset", name, "--transport", "model", "--json", "--trace",
                 recorded["trace"], "--batch-size", str(recorded["batch"]), "--lookups",
                 str(4 * 26 * recorded["batch"])]) == 0
    model = json.loads(capsys.readouterr().out)["lookups_per_cycle"]
    assert recorded["lookups_per_cycle"] == pytest.approx(model, rel=0.25)


@pytest.mark.long
@pytest.mark.parametrize("name", read("cards"))
def test_recorded_rates_are_of_this_verilog(name):
    assert cards.result(name)["verilog_sha256"] == cards.digest(name), \
        f"measure again: hotrow explore --measure-card --card {name}"


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


def test_a_disk_serves_tables_larger_than_every_memory():
    assert recommend(question("criteo-1tb", "desktop"))["verdict"].startswith(
        "no card: disk is best")


def test_tables_larger_than_the_disk_fit_nowhere():
    assert recommend(question("dlrm-v4", "cloud-small"))["verdict"].startswith("does not fit")


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


@pytest.mark.slow
@pytest.mark.parametrize("work, system", [("scratchpipe", "v100"), ("avazu", "v100x4-pcie")])
def test_per_table_is_no_slower_than_its_placements_for_all(work, system):
    asked = question(work, system, hot_bytes=2**28, card=cards.find("alveo-u55c"))
    found = per_table(asked)
    assert found["seconds"] <= min(each.seconds for each in answers(asked, PER_TABLE) if each.step)
    assert len(found["tables"]) == asked.workload.tables
    assert {each["place"] for each in found["tables"]} <= {"trainer's memory", found["placement"]}


def test_small_tables_are_held_first():
    found = per_table(question("criteo-1tb", "v100x4-nvlink", hot_bytes=2**28))
    held = [each["rows"] / each["lookups"] for each in found["tables"]
            if each["place"] == "trainer's memory"]
    others = [each["rows"] / each["lookups"] for each in found["tables"]
              if each["place"] != "trainer's memory"]
    assert held and others and max(held) <= min(others)
    whole = sum(each["mb"] for each in found["tables"] if each["place"] == "trainer's memory")
    assert 2**20 * whole <= 32e9


def test_no_placement_per_table_fits_without_memory_for_the_tables():
    assert per_table(question("criteo-1tb", "desktop")) is None
