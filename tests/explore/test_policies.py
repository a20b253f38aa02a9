"""The study of replacement policies, and its bounds."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from hotrow.command.cli import main
from hotrow_rtl.config import preset
from hotrow_sim.golden.training_pipeline import StageOffsets

from benchmarks.policies.bounds import belady, least_recent
from benchmarks.policies.study import sized, study

TINY = preset("tiny")


def most_hits(batches, slots):
    """Most hits of all choices of victims."""
    rows, states = list(itertools.chain(*batches)), {frozenset(): 0}
    for row in rows:
        after = {}
        for held, hits in states.items():
            if row in held:
                reached = [(held, hits + 1)]
            elif len(held) < slots:
                reached = [(held | {row}, hits)]
            else:
                reached = [(held - {victim} | {row}, hits) for victim in held]
            for state, hits_ in reached:
                after[state] = max(after.get(state, 0), hits_)
        states = after
    return max(states.values())


def test_belady_is_optimal():
    for seed in range(30):
        rng = np.random.default_rng(seed)
        batches = [rng.permutation(8)[:rng.integers(1, 5)].tolist() for _ in range(9)]
        for slots in (1, 2, 4, 5):
            assert sum(belady(batches, slots)) == most_hits(batches, slots), (seed, slots)
            assert sum(least_recent(batches, slots)) <= sum(belady(batches, slots))


def test_lru_of_one_set():
    assert least_recent([[1, 2, 3], [1, 2], [4, 3]], 3) == [0, 2, 0]
    assert least_recent([[1, 2, 3], [1, 2], [4, 3]], 4) == [0, 2, 1]


def test_every_row_of_a_batch_is_a_hit_a_fill_or_a_bypass():
    rng = np.random.default_rng(0)
    batches = [(rng.integers(0, 4, 200), (400 * rng.random(200) ** 3).astype(np.int64))
               for _ in range(40)]
    begun = []
    found = study(TINY, batches, StageOffsets(), lambda what, total=None: begun.append(what) or (
        lambda: None))
    assert [each["policy"] for each in found["policies"]] == begun
    assert (found["window_batches"], found["slots"]) == (6, TINY.slots)
    best = found["policies"][-1]
    assert best["policy"] == "offline optimum"
    for each in found["policies"]:
        assert round(each["hit_rate"] * found["unique"]) + each["filled"] + each["bypassed"] \
            == found["unique"]
        assert each["hit_rate"] <= best["hit_rate"]
        assert each["filled"] - TINY.slots <= (each["written_back"] or each["filled"])


def test_counts_outlive_a_row_and_beat_recency_on_a_scan():
    """Sixteen rows in every fourth batch, and rows in the others that never recur."""
    config = replace(TINY, name="small", directory_sets=16, directory_partitions=2)  # 64 slots
    hot, batches = np.arange(16), []
    for number in range(60):
        rows = 1000 + 64 * number + np.arange(40) if number % 4 else hot
        batches.append((np.zeros(len(rows), np.int64), rows))
    found = study(config, batches, StageOffsets(1, 1, 1), lambda what, total=None: lambda: None)
    rates = {each["policy"]: each["hit_rate"] for each in found["policies"]}
    assert rates["lfu"] > rates["lru, one set"] == 0


def test_known_frequencies_beat_recency():
    """Cyclic rows, one more than slots: LRU always evicts the next row."""
    config = replace(TINY, name="small", directory_choices=1, directory_sets=16,
                     directory_partitions=2)  # 32 slots
    batches = [(np.zeros(4, np.int64), 4 * (number % 12) + np.arange(4)) for number in range(240)]
    rates = {}
    for known in (1, 12):
        found = study(config, batches, StageOffsets(1, 1, 1), lambda what, total=None: lambda: None,
                      ("lru", "next"), known=known)
        rates[known] = {each["policy"]: each["hit_rate"] for each in found["policies"]}
    assert rates[12]["lru"] < 0.5 * rates[12]["next"]
    assert rates[1]["next"] < rates[12]["next"] <= rates[12]["offline optimum"]


def test_warm_up_gives_slots_by_rank():
    """Learned rows that recur after a scan."""
    rng = np.random.default_rng(3)
    batches = [(np.zeros(64, np.int64), (1000 * rng.random(64) ** 3).astype(np.int64))
               for _ in range(50)]
    rates = {}
    for share in (0.5, 1.0):
        found = study(TINY, batches, StageOffsets(1, 1, 1), lambda what, total=None: lambda: None,
                      ("freq, admission", "freq, warm-up"), warm_share=share)
        rates[share] = {each["policy"]: each["later_hit_rate"] for each in found["policies"]}
    assert rates[1.0]["freq, warm-up"] <= rates[1.0]["offline optimum"]
    assert rates[0.5]["freq, warm-up"] > rates[0.5]["lru, one set"], rates


def test_sized():
    assert sized(TINY, 1024).slots == 1024
    assert sized(TINY, 64).directory_partitions == 2
    with pytest.raises(ValueError, match="slots must be a power of two of at least 32, not 1000"):
        sized(TINY, 1000)


def test_command(capsys):
    arguments = ["bench", "policies", "--preset", "tiny", "--rows", "500", "--tables", "4",
                 "--batch", "16", "--lookups", "2000", "--json"]
    assert main(arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["benchmark"] == "policies" and found["lookups"] == 2048
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out) == found
    assert main([*arguments, "--slots", "100"]) == 2
    assert "power of two" in capsys.readouterr().err
    assert main([*arguments, "--only", "next; lru"]) == 0
    names = [each["policy"] for each in json.loads(capsys.readouterr().out)["policies"]]
    assert names == ["next", "lru", "lru, one set", "offline optimum"]
    assert main([*arguments, "--only", "mru"]) == 2
    assert "expected some of lru; rrip" in capsys.readouterr().err
    assert main([*arguments, "--stages", "3,1,4"]) == 2
    assert "1,3,4" in capsys.readouterr().err
