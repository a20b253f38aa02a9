"""`hotrow bench hotset` against a count of every row in plain Python."""

import json
import re
from collections import Counter

import hotrow
import numpy as np
import pytest
from hotrow.command.cli import main
from hotrow.contract.errors import Error
from hotrow.traces import open_trace
from hotrow_rtl.config import preset

from benchmarks.hotset import Learned, Score, variant

SMALL = ["--preset", "tiny", "--tables", "3", "--rows", "500", "--batch", "64",
         "--lookups", "6000"]
MODEL = ["--transport", "model"]
FIELDS = {"k", "coverage", "coverage_exact", "coverage_ratio", "recall", "counter_entries",
          "cycles", "harvest_cycles"}
SHARED = {"preset", "trace", "transport", "lookups_learned", "lookups_scored", "entries_per_k",
          "table_rows", "batch", "seed"}
GOLDEN = ("k", "coverage", "coverage_exact", "recall", "counter_entries")


@pytest.fixture
def bench(capsys):
    """Run the benchmark: (exit code, its JSON object or the text, standard error)."""
    def run(*arguments):
        code = main(["bench", "hotset", *map(str, arguments)])
        out, err = capsys.readouterr()
        return code, json.loads(out) if "--json" in arguments and not code else out, err
    return run


def brute_force(spec, k, seed, tables=3, rows=500, batch=64, lookups=6000):
    """The figures of SMALL, by dictionaries."""
    trace = open_trace(spec, seed=seed, tables=tables, table_rows=rows)
    count = -(-lookups // (batch * len(trace.cardinalities)))
    batches = [trace.batch(number, batch).ids for number in range(count)]
    learned = Counter(), batches[:count // 5]
    scored = Counter(), batches[count // 5:]
    for counter, part in (learned, scored):
        for ids in part:
            for sample in ids.tolist():
                counter.update(enumerate(sample))
    with hotrow.open("model", config=variant(preset("tiny"), k, 4)) as device:
        for number, size in enumerate(trace.cardinalities):
            device.register_table(np.zeros((size, 4), np.float32), str(number))
        for ids in learned[1]:
            device.observe(ids)
        hot = device.harvest(k)
    found = list(zip(hot.table.tolist(), hot.row.tolist(), strict=True))
    exact = [row for row, _ in sorted(
        learned[0].items(), key=lambda entry: (-entry[1], entry[0]))][:k]
    alike = Counter(learned[0][row] for row in found) & Counter(learned[0][row] for row in exact)
    total = scored[0].total()
    coverage, possible = (sum(scored[0][row] for row in rows) / total for rows in (found, exact))
    return {"k": k, "coverage": coverage, "coverage_exact": possible,
            "coverage_ratio": coverage / possible,
            "recall": alike.total() / len(exact),
            "lookups_learned": learned[0].total(), "lookups_scored": total}


@pytest.mark.parametrize("trace", ["zipf:1.05", "zipf:0.8", "uniform:40"])
@pytest.mark.parametrize("k, seed", [(16, 0), (16, 5), (64, 1)])
def test_equals_brute_force(bench, trace, k, seed):
    code, result, _ = bench("--trace", trace, "--k", k, "--seed", seed, *SMALL, *MODEL, "--json")
    assert code == 0 and result.keys() >= FIELDS | SHARED
    expected = brute_force(trace, k, seed)
    assert {name: result[name] for name in expected} == pytest.approx(expected, rel=1e-12)
    assert result["counter_entries"] == 4 * k and result["cycles"] > 0


def test_several_k_give_what_each_gives(bench):
    code, result, _ = bench("--k", "16,64", *SMALL, *MODEL, "--json")
    assert code == 0 and result.keys() >= SHARED and [r["k"] for r in result["results"]] == [16, 64]
    for record in result["results"]:
        alone = bench("--k", record["k"], *SMALL, *MODEL, "--json")[1]
        assert record.keys() == FIELDS and record == {name: alone[name] for name in FIELDS}


def test_every_row_found_covers_what_is_possible(bench):
    """One row per table, looked up over and over."""
    _, result, _ = bench("--trace", "single", "--k", 16, *SMALL, *MODEL, "--json")
    assert result["coverage"] == result["coverage_exact"] == result["recall"] == 1


def test_fewer_counters_find_less(bench):
    found = [bench("--k", 128, "--entries-per-k", entries, "--trace", "zipf:0.8", *SMALL, *MODEL,
                   "--json")[1] for entries in (1, 4)]
    assert [each["counter_entries"] for each in found] == [128, 512]
    assert found[0]["recall"] < found[1]["recall"]
    assert found[0]["coverage_exact"] == found[1]["coverage_exact"]


def test_bags_of_a_log(bench, tmp_path):
    """All of a log's bags, the shorter last batch among those that are scored."""
    path = tmp_path / "log.tsv"
    rows = (f"{i % 5}\t{i % 31}\t{i // 3}" for i in range(400))
    path.write_text("\n".join(("user\titem\tvisit", *rows)) + "\n")
    code, result, _ = bench("--trace", path, "--ids", "user,item", "--bag", "visit", "--preset",
                            "tiny", "--batch", 8, "--k", 16, *MODEL, "--json")
    assert code == 0
    assert result["lookups_learned"] + result["lookups_scored"] == 800
    assert result["lookups_learned"] == 3 * 8 * 6 and result["table_rows"] == 36


def test_rows_by_default(bench):
    _, result, _ = bench("--preset", "tiny", "--tables", 4, "--batch", 16, "--lookups", 700,
                         "--k", 16, *MODEL, "--json")
    assert result["table_rows"] == 10_000_000


def test_table_for_people(bench):
    code, shown, err = bench("--k", "16,32", *SMALL, *MODEL)
    assert code == 0 and "recall" in shown and "by formula" in err


@pytest.mark.parametrize("arguments, message", [
    (["--k", "24"], "96 counters for k = 24.*power of two"),
    (["--k", "16", "--entries-per-k", "1"], "counter_sets must be 16 to"),
    (["--lookups", "10"], "at least one batch to learn on and one to score on"),
    (["--preset", "huge"], "unknown preset"),
    (["--tables", "99", "--lookups", "30000"], "99 tables: this card holds at most"),
])
def test_errors_teach(bench, arguments, message):
    code, out, err = bench(*SMALL, *MODEL, "--k", "64", *arguments)
    assert code == 2 and not out and "Traceback" not in err
    assert re.search(message, err), err


@pytest.mark.parametrize("arguments", [["--k", "0"], ["--k", "16,"], ["--slots", "5"]])
def test_bad_options_end_with_2(bench, arguments):
    code, out, err = bench(*arguments)
    assert code == 2 and not out and ("hotrow bench hotset" in err or "--slots" in err)


@pytest.mark.parametrize("name", ["tiny", "ecp5", "alveo-u55c"])
@pytest.mark.parametrize("k, entries_per_k", [(256, 4), (1024, 2), (4096, 1), (1 << 16, 4)])
def test_geometry_of_a_variant(name, k, entries_per_k):
    card = preset(name)
    config = variant(card, k, entries_per_k)
    assert config.counter_entries == entries_per_k * k and config.slots >= k
    assert config.counter_ways == card.counter_ways
    assert config.slots == card.slots or config.slots // 2 < k  # no larger than it must be
    assert (config == card) == (config.name == card.name)


def test_a_preset_that_fits_is_used_as_it_is():
    assert variant(preset("ecp5"), 2048, 4) is preset("ecp5")
    with pytest.raises(Error, match="power of two"):
        variant(preset("ecp5"), 3000, 4)


def test_ties_at_the_last_place_count_as_found():
    learned = Learned(np.repeat(np.arange(6, dtype=np.uint64), [9, 5, 5, 5, 2, 1]))
    assert learned.top(2).tolist() == [0, 1]
    assert learned.recall(np.array([0, 3], np.uint64), 2) == 1
    assert learned.recall(np.array([2, 3], np.uint64), 2) == 0.5  # the 9 is missing
    assert learned.recall(np.array([2, 3, 0], np.uint64), 3) == 1
    assert learned.recall(np.array([0, 4], np.uint64), 2) == 0.5
    assert learned.recall(np.array([0, 99], np.uint64), 2) == 0.5
    assert learned.recall(np.arange(6, dtype=np.uint64), 8) == 1  # there are but six


def test_coverage_counts_only_what_was_added():
    score = Score(np.array([7, 3, 3], np.uint64))
    score.add(np.array([1, 3, 3, 9], np.uint64))
    score.add(np.array([7, 8], np.uint64))
    assert score.lookups == 6
    assert score.coverage(np.array([3], np.uint64)) == pytest.approx(2 / 6)
    assert score.coverage(np.array([7, 3], np.uint64)) == pytest.approx(3 / 6)


@pytest.mark.slow
def test_model_finds_what_the_hardware_finds(bench):
    counters = preset("tiny").counter_entries
    hardware, model = (bench(*SMALL, "--k", counters // 4, "--transport", transport, "--json")[1]
                       for transport in ("sim", "model"))
    assert [hardware[name] for name in GOLDEN] == [model[name] for name in GOLDEN]


@pytest.mark.long
@pytest.mark.parametrize("trace, least", [
    ("zipf:1.05", 0.995), pytest.param("zipf:0.8", 0.985, marks=pytest.mark.nightly)])
def test_the_hot_set_is_as_good_as_an_exact_one(bench, trace, least):
    """10 M rows, 50 M lookups, counters for four times as many rows as are wanted: the preset's."""
    counters = preset("ecp5").counter_entries
    code, result, _ = bench("--trace", trace, "--k", counters // 4, "--json")
    assert code == 0 and result["lookups_scored"] > 39_000_000
    assert result["counter_entries"] == counters
    assert result["coverage_ratio"] >= least, result
