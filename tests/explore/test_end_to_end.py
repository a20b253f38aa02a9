"""`hotrow bench end-to-end`: the schedule's arithmetic, and figures that add up."""

import json
import random
from itertools import pairwise

import pytest
from hotrow.command.cli import main
from hotrow_explore.end_to_end import LABELS
from hotrow_explore.virtual_clock import BatchTimes, Schedule

MOVES = {"plan": 1.0, "gather": 2.0, "write_back": 2.5, "down": 1.5, "up": 0.5}
QUICK = ["--transport", "model", "--preset", "tiny", "--trace", "zipf:2:400", "--batch-size",
         "64", "--batches", "9", "--learning", "4"]


def times(**changes):
    return BatchTimes(**{**MOVES, "popular": 0.0, "train": 1.0, **changes})


def of(hotline, count=60, shared=False, **changes):
    return Schedule([times(**changes)] * count, hotline, shared)


@pytest.mark.parametrize("hotline, shared, changes, seconds", [
    (True, False, {"popular": 50.0}, 51.0),  # popular samples hide everything
    (True, False, {"popular": 3.0}, 7.5),  # the loop of rows: fetched, trained, written back
    (True, False, {"popular": 6.0}, 7.5),
    (True, False, {"popular": 7.0}, 8.0),
    (False, False, {"train": 20.0}, 20.0),
    (False, False, {}, 4.5),  # the card's move queue serves both directions
    (False, False, {"plan": 6.0}, 6.0),
    (False, False, {"down": 7.0}, 7.0),
    (False, False, {"drive": 7.0}, 7.0),  # the driver serves one batch at a time
    (True, False, {"popular": 3.0, "drive": 9.0}, 9.0),
    (False, True, {}, 5.5),  # cores plan as well
])
def test_the_slowest_part_gives_the_step(hotline, shared, changes, seconds):
    assert of(hotline, shared=shared, **changes).step_seconds == pytest.approx(
        seconds, rel=0.02)


@pytest.mark.parametrize("count", range(1, 12))
def test_few_batches(count):
    assert of(True, count).step_seconds > 0 and sum(of(False, count).stalls().values()) >= 0


def test_shares_that_are_hidden():
    assert of(True, popular=50.0).hidden("gather", "down", "write_back") == pytest.approx(1)
    assert of(True).hidden("gather") == pytest.approx(0, abs=1e-9)
    assert of(False, train=20.0).hidden("plan") == pytest.approx(1)
    assert of(False, gather=0.0).hidden("gather") is None


@pytest.mark.parametrize("seed", range(20))
def test_invariants_of_random_schedules(seed):
    """The trainer works or waits; stages keep their order and resources serve one batch at once."""
    rng = random.Random(seed)
    batches = [times(popular=rng.expovariate(1), train=rng.expovariate(0.5), wait_for=max(
        -1, number - rng.randrange(4, 9)), **{name: rng.expovariate(1) for name in MOVES})
        for number in range(40)]
    hotline = bool(seed % 2)
    schedule = Schedule(batches, hotline)
    timed = batches[7:36]
    busy = sum(each.popular + each.train for each in timed) / len(timed)
    assert 1e-3 * sum(schedule.stalls().values()) + busy == pytest.approx(schedule.step_seconds)
    spans = schedule.spans
    for number in range(1, 40):
        assert spans["gather"][number][0] >= spans["plan"][number][1]
        assert spans["train"][number][0] >= spans["down"][number][1]
        if hotline:
            assert spans["gather"][number][0] >= spans["write_back"][number - 1][1]
        if number >= 4:
            assert spans["plan"][number][0] >= spans["train"][number - 4][1]
    moves = sorted(spans["gather"] + spans["write_back"])
    assert all(after[0] >= before[1] - 1e-9 for before, after in pairwise(moves))


def overlap(path, one, other):
    """Seconds in which slices of two names run at the same time: Perfetto's span join."""
    events = [each for each in json.loads(path.read_text())["traceEvents"] if each["ph"] == "X"]
    return 1e-6 * sum(max(0.0, min(a["ts"] + a["dur"], b["ts"] + b["dur"]) - max(a["ts"], b["ts"]))
                      for a in events if a["name"] == one for b in events if b["name"] == other)


def test_the_timeline_shows_what_overlaps(tmp_path):
    path = tmp_path / "out.json"
    of(False, 30).draw(path, "title")
    assert overlap(path, "PLAN", "GATHER") > 5 and overlap(path, "GATHER", "SCATTER") == 0
    of(True, 30, popular=50.0).draw(path, "title")
    assert overlap(path, "GATHER", "popular samples") == pytest.approx(30 * MOVES["gather"])
    assert overlap(path, "GATHER", "other samples") == pytest.approx(0)


def bench(capsys, *arguments):
    code = main(["bench", "end-to-end", *QUICK, *map(str, arguments)])
    return code, *capsys.readouterr()


@pytest.mark.slow
def test_figures_of_every_mode(capsys, tmp_path):
    code, out, _ = bench(capsys, "--json", "--timeline", tmp_path / "out.json")
    result = json.loads(out)
    assert code == 0 and result["figures"] == LABELS["model"]
    found = {each["mode"]: each for each in result["modes"]}
    assert set(found) == {"hotline", "scratchpipe", "freqcache", "resident-host"}
    for mode in ("hotline", "scratchpipe", "freqcache"):
        each = found[mode]
        assert 0 < each["trainer_ms"] <= each["step_ms"] * (1 + 1e-9)
        assert each["speedup"] == pytest.approx(each["step_ms_without_card"] / each["step_ms"])
        assert 0 <= each["gather_hidden"] <= 1 and 0 <= each["plan_hidden"] <= 1
        assert each["speedup_over_resident_host"] == pytest.approx(
            found["resident-host"]["step_ms"] / each["step_ms"])
        by_cores = {int(cores): step for cores, step in each["step_ms_by_free_cores"].items()}
        assert by_cores[64] == each["step_ms_without_card"] and min(by_cores) == 1
        assert sorted(by_cores.values(), reverse=True) == pytest.approx(list(by_cores.values()))
        enough = {cores for cores, step in by_cores.items() if step <= 1.005 * each["step_ms"]}
        assert each["cores_replaced"] == min(enough, default=None)
        assert each["step_ms"] >= each["host_ms"] * (1 - 1e-4)
        assert each["plan_cycles"] > 64 * 26 / 4 and 0 < each["hit_rate"] < 1
        events = json.loads((tmp_path / f"out-{mode}.json").read_text())["traceEvents"]
        names = {each["name"] for each in events if each["ph"] == "X"}
        assert {"SPLIT" if mode == "hotline" else "PLAN", "GATHER"} <= names
    assert 0 < found["hotline"]["popular_fraction"] < 1


def test_one_mode_is_the_top_level(capsys):
    code, out, _ = bench(capsys, "--modes", "hotline", "--json")
    assert code == 0 and {"step_ms", "gather_hidden", "plan_hidden", "stalls", "speedup"} <= set(
        json.loads(out))


@pytest.mark.slow
def test_a_short_log_repeats(capsys):
    """More batches than the log has, the last of them a shorter one."""
    code = main(["bench", "end-to-end", "--trace", "sample", "--ids", "item,user", "--batch-size",
                 "64", "--transport", "model", "--preset", "tiny", "--json"])
    result = json.loads(capsys.readouterr().out)
    assert code == 0 and all(0 < each.get("hit_rate", 0.5) <= 1 for each in result["modes"])


@pytest.mark.slow
def test_a_slower_link_is_no_faster_and_a_measured_trainer_counts(capsys, tmp_path):
    path = tmp_path / "trainer.json"
    path.write_text(json.dumps({"step_ms": 500.0, "batch": 64}))
    steps = [json.loads(bench(capsys, "--modes", "scratchpipe", "--json", *more)[1])["step_ms"]
             for more in ((), ("--link", "0.001"), ("--trainer", path))]
    assert steps[0] < steps[1] and steps[2] == pytest.approx(500.0, rel=0.01)


@pytest.mark.parametrize("arguments, message", [
    (["--modes", "hotline,warp"], "not 'warp'"), (["--trainer", "abacus"], "unknown system"),
    (["--trainer", "cpu-server"], "has no GPU"), (["--link", "pcie5"], "pcie5x16, or"),
    (["--workload", "m1"], "not both"), (["--batch-size", "4000"], "at most 1,024 samples"),
    (["--timeline", "/nowhere/out.json"], "cannot be written"),
    (["--trainer", "missing.json", "--modes", "hotline"], "missing.json"),
])
def test_errors_teach(capsys, arguments, message):
    code, out, err = bench(capsys, *arguments)
    assert code == 2 and not out and message in err and err.count("\n") == 1
