"""`hotrow compare`: one definition of hits for every scheme."""

import csv
import json

import numpy as np
import pytest
import torch
from hotrow.command.cli import main
from hotrow.torch import HotEmbeddingBagCollection, Options, TableConfig
from hotrow_explore.caches import Belady, Lfu, Lru, simulate

RUN = ["compare", "--trace", "zipf:1.2:4000", "--batch-size", "32", "--batches", "8",
       "--warm-up", "3", "--slots", "1024"]


def compare(capsys, *arguments):
    code = main([*RUN, *map(str, arguments)])
    return code, *capsys.readouterr()


@pytest.mark.parametrize("mode", ["scratchpipe", "freqcache", "hotline"])
@pytest.mark.parametrize("order", ["aaaabbbb", "abcabc"])
def test_a_row_that_its_batch_fetches_is_no_hit(mode, order):
    """Whatever the order of equal ids."""
    rows = torch.arange(64)
    ids = rows.repeat_interleave(4) if order == "aaaabbbb" else rows.repeat(4)
    config = TableConfig("t", 1000, 4)
    with HotEmbeddingBagCollection([config], mode=mode, options=Options(preset="tiny")) as rows_of:
        for hits in (0, 0 if mode == "hotline" else 256):
            rows_of(ids[:, None]).sum().backward()
            rows_of.optimizer.step()
            assert rows_of.statistics["hits"] == hits
        more = torch.cat((ids[:100], 500 + torch.arange(56).repeat_interleave(3)))[:, None]
        rows_of(more).sum().backward()
        rows_of.optimizer.step()
        assert rows_of.statistics["hits"] == hits + (0 if mode == "hotline" else 100)


def test_figures_of_every_scheme(capsys, tmp_path):
    code, out, _ = compare(capsys, "--json", "--modes", "resident,scratchpipe,hotline,near_memory",
                           "-o", tmp_path)
    assert code == 0
    records = {each["scheme"]: each for each in json.loads(out)["schemes"]}
    assert list(records) == ["resident", "scratchpipe", "hotline", "near_memory", "lru", "lfu",
                             "Belady's bound"]
    for name in ("resident", "near_memory"):
        assert records[name]["hit_rate"] is records[name]["distinct_hit_rate"] is None
    assert records["near_memory"]["bytes_per_batch"] > 0
    assert records["resident"]["bytes_per_batch"] == 0
    for name in ("scratchpipe", "hotline", "lru", "lfu"):
        assert 0 < records[name]["distinct_hit_rate"] < 1 and records[name]["bytes_per_batch"] > 0
    bound = records["Belady's bound"]["distinct_hit_rate"]
    assert max(records[name]["distinct_hit_rate"] for name in ("lru", "lfu")) <= bound
    aucs = {records[name]["auc"] for name in ("resident", "scratchpipe")}
    assert len(aucs) == 1 and None not in aucs
    with open(tmp_path / "compare.csv") as file:
        rows = list(csv.DictReader(file))
    assert [row["scheme"] for row in rows] == list(records)
    assert float(rows[1]["hit_rate"]) == records["scratchpipe"]["hit_rate"]
    assert (tmp_path / "compare.png").read_bytes()[:4] == b"\x89PNG"


def test_a_policy_of_ones_own(capsys, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "class First:\n    def __init__(self, slots):\n        assert slots == 1024\n"
        "    def used(self, row, batch): pass\n    def rank(self, row): return row\n")
    monkeypatch.chdir(tmp_path)
    code, out, _ = compare(capsys, "--policy", "mine:First", "--modes", "resident", "--json")
    assert code == 0
    assert [each["scheme"] for each in json.loads(out)["schemes"]][-2:] == [
        "mine:First", "Belady's bound"]


def brute(policy, slots, batches):
    """Distinct hits of a cache that evicts one row at a time, found by hand."""
    held, hits = set(), 0
    for number, rows in enumerate(batches):
        hits += sum(row in held for row in rows)
        for row in rows:
            policy.used(row, number)
        for row in [each for each in rows if each not in held]:
            if len(held) == slots:
                leaving = [each for each in held if each not in rows]
                if not leaving:
                    continue
                held.remove(min(leaving, key=policy.rank))
            held.add(row)
    return hits


@pytest.mark.parametrize("slots", [3, 8, 40])
def test_caches_by_hand(slots):
    draw = np.random.default_rng(slots)
    batches = [list(dict.fromkeys(row)) for row in (30 * draw.random((50, 6))**3).astype(int)
               .tolist()]
    ones = [[1] * len(rows) for rows in batches]
    found = {}
    for kind in (Lru, Lfu, lambda slots: Belady(slots, batches)):
        done = simulate(kind(slots), slots, batches, ones, 0)
        assert done["hits"] == done["distinct_hits"] == brute(kind(slots), slots, batches)
        assert done["fetched"] == done["distinct"] - done["hits"]
        found[kind] = done["hits"]
    assert found[Lru] <= (bound := list(found.values())[2]) and found[Lfu] <= bound


@pytest.mark.parametrize("arguments, message", [
    (["--modes", "warp"], "not 'warp'"), (["--policies", "mru"], "module:Class of your own"),
    (["--policy", "nowhere:Class"], "must be found from the folder"),
    (["--policy", "json:JSONDecoder"], "has no method used"),
    (["--slots", "1000"], "a power of two of at least 1024"),
    (["--warm-up", "8"], "the run has 8 batches of 32"), (["--dim", "6"], "divisible by 4"),
])
def test_errors_teach(capsys, arguments, message):
    code, out, err = compare(capsys, *arguments)
    assert code == 2 and not out and message in err and err.count("\n") == 1
