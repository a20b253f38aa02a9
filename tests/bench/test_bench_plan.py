"""`hotrow bench plan`: the planner of this machine against dictionaries, and what is reported."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from hotrow.command.cli import main

from benchmarks import plan_native
from benchmarks.plan_check import Planned, check, retired_by, steps_of

SMALL = ["--preset", "tiny", "--tables", "3", "--rows", "1000", "--batch", "64",
         "--lookups", "2000"]
MODEL = ["--transport", "model"]
ROWS, SLOTS, PAST, FUTURE = 300, 128, 2, 1


@pytest.fixture
def bench(capsys):
    """Run the benchmark: (exit code, its JSON object or the text, standard error)."""
    def run(*arguments):
        code = main(["bench", "plan", *map(str, arguments)])
        out, err = capsys.readouterr()
        return code, json.loads(out) if "--json" in arguments and not code else out, err
    return run


def drawn(seed, count=30):
    rng = np.random.default_rng(seed)
    return [(ROWS * rng.random(int(rng.integers(1, 200))) ** 2).astype(np.int64)
            for _ in range(count)]


def planned(batches):
    planner, found = plan_native.NativePlanner(plan_native.load(), ROWS, SLOTS, 200), []
    for step, batch in steps_of(len(batches), FUTURE):
        if step == "mark":
            planner.mark(batches[batch], batch)
        else:
            plan = planner.plan(batches[batch], batch, retired_by(batch, PAST))
            found.append(Planned(plan.slots.copy(), plan.fills.copy(), plan.evicted.copy()))
    return found


def least_recent(batches):
    """Rows that hit, by a dictionary in order of last use; none leaves that is held."""
    used, needed, hits = {}, {}, []
    for step, batch in steps_of(len(batches), FUTURE):
        rows = list(dict.fromkeys(batches[batch].tolist()))
        if step == "mark":
            needed |= {row: max(batch, needed[row]) for row in rows if row in used}
            continue
        hits.append(sum(row in used for row in rows))
        for row in (row for row in rows if row in used):
            used[row], needed[row] = batch, max(batch, needed[row])
        room = SLOTS - len(used)
        fills = [row for row in rows if row not in used]
        loose = sorted((row for row in used if needed[row] < batch - PAST), key=used.get)
        for row in loose[:max(0, len(fills) - room)]:
            del used[row], needed[row]
        for row in fills[:SLOTS - len(used)]:
            used[row] = needed[row] = batch
    return sum(hits)


@pytest.mark.parametrize("seed", range(3))
def test_the_planner_of_this_machine_is_sound(seed):
    batches = drawn(seed)
    plans = planned(batches)
    sound, counts = check(batches, plans, SLOTS, PAST, FUTURE, ROWS)
    assert sound and counts["held_evictions"] == 0
    assert counts["unique"] == sum(len(np.unique(rows)) for rows in batches)
    assert counts["unique"] == counts["hits"] + counts["fills"]
    assert counts["evictions"] and counts["bypasses"]
    # Among rows of one batch any may leave, so hits differ a little.
    assert counts["hits"] == pytest.approx(least_recent(batches), rel=0.05)


@pytest.mark.parametrize("spoil", [
    lambda plan, before: replace(plan, slots=np.r_[plan.slots[1:], plan.slots[:1]]),
    lambda plan, before: replace(plan, fills=plan.fills[1:]),
    lambda plan, before: replace(plan, evicted=before.fills[:1]),
    lambda plan, before: replace(plan, slots=np.zeros_like(plan.slots)),
], ids=["another's slot", "a row not fetched", "a held row evicted", "one slot for all"])
def test_a_wrong_plan_is_told(spoil):
    batches = drawn(5)
    plans = planned(batches)
    plans[7] = spoil(plans[7], plans[6])
    sound, counts = check(batches, plans, SLOTS, PAST, FUTURE, ROWS)
    assert not sound or counts["held_evictions"]


@pytest.mark.parametrize("policy", ["lru", "rrip", "lfu", "freq"])
def test_figures_add_up(bench, policy):
    code, result, _ = bench(*SMALL, *MODEL, "--policy", policy, "--json")
    assert code == 0 and result["agrees"] and result["held_evictions"] == 0
    assert result["lookups"] == 2 * 3 * 64 * result["batches"], "marked and planned"
    assert result["lookups_per_cycle"] == pytest.approx(result["lookups"] / result["cycles"])
    assert result["fraction_of_lanes"] == pytest.approx(
        result["lookups_per_cycle"] / (result["lanes"] / 2))
    assert result["unique"] == result["hits"] + result["fills"]
    assert result["fills"] > result["bypasses"] and result["evictions"]
    assert result["link_bytes"] == 64 * (
        result["fills"] + result["evictions"] + result["bypasses"])
    assert result["baseline"]["unique"] == result["unique"]


@pytest.mark.parametrize("threads", [1, 2])
def test_the_machines_cores_claim_no_cycles(bench, threads):
    model = bench(*SMALL, *MODEL, "--json")[1]
    code, result, _ = bench(*SMALL, "--transport", "cpu", "--threads", threads, "--json")
    assert code == 0 and result["agrees"] and result["threads"] == threads
    for figure in ("lookups", "unique", "hits", "fills", "evictions", "bypasses", "waits",
                   "lookup_hits", "bytes_written"):
        assert result[figure] == model[figure], figure
    assert result["lookups_per_s"] == pytest.approx(result["lookups"] / result["seconds"])
    assert result["lookups_per_s_core"] == pytest.approx(result["lookups_per_s"] / threads)
    seconds = sum(result["lookups"] / 2 / result[f"{kind}_lookups_per_s"]
                  for kind in ("mark", "plan"))
    assert seconds == pytest.approx(result["seconds"])
    assert result["over_cpp"] == pytest.approx(
        result["lookups_per_s"] / result["cpu_lookups_per_s"])
    assert not [name for name in result if "cycle" in name or "projected" in name]


def test_enough_slots_bypass_nothing(bench):
    code, result, _ = bench(*SMALL, *MODEL, "--slots", 4096, "--window", "1,0", "--json")
    assert code == 0 and result["slots"] == 4096
    assert result["bypasses"] == result["evictions"] == result["waits"] == 0


@pytest.mark.parametrize("room", [
    pytest.param(2, marks=pytest.mark.long), pytest.param(1.25, marks=pytest.mark.long), 0.25])
def test_room_for_the_rows_of_a_window(bench, room):
    """The largest batch that leaves so much, and the next larger one does not."""
    code, result, _ = bench(*SMALL, *MODEL, "--batch", 512, "--room", room, "--json")
    assert code == 0 and result["room"] >= room and result["held_evictions"] == 0
    assert result["room"] == pytest.approx(result["slots"] / result["window_rows"])
    if result["batch"] < 512:
        _, larger, _ = bench(*SMALL, *MODEL, "--batch", result["batch"] + 1, "--json")
        assert larger["room"] < room
    assert result["bypassed_share"] > 0.3 if room < 1 else result["bypassed_share"] < 0.1


def test_a_card_of_other_sizes(bench):
    code, result, _ = bench("--preset", "ecp5", "--slots", 1024, "--counters", 512,
                            *SMALL[2:], *MODEL, "--json")
    assert code == 0 and result["slots"] == 1024
    links = result["link_lookups_per_s_projected"]
    assert links["pcie gen4 x16"] == pytest.approx(2 * links["pcie gen3 x16"])


@pytest.mark.parametrize("arguments, message", [
    (["--window", "40,30"], "both together may be up to 62"),
    (["--window", "3"], "expected PAST,FUTURE"),
    (["--slots", "100"], "--slots 100: "),
    (["--policy", "mru"], "invalid choice"),
    (["--counters", "100"], "--counters 100: "),
    (["--room", "0"], "expected a number above 0"),
    (["--room", "1e9"], "--room 1000000000.0: not even batches of one sample"),
])
def test_errors_teach(bench, arguments, message):
    code, out, err = bench(*SMALL, *MODEL, *arguments)
    assert code == 2 and not out and re.search(message, err), err


@pytest.mark.slow
def test_model_counts_what_the_hardware_counts(bench):
    results = [bench(*SMALL, "--transport", transport, "--json")[1]
               for transport in ("sim", "model")]
    for figure in ("lookups", "unique", "hits", "fills", "evictions", "bypasses", "waits"):
        assert results[0][figure] == results[1][figure], figure
