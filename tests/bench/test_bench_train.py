"""`hotrow bench train`: the same bits in every mode, figures that add up."""

import json
import sys

import numpy as np
import pytest
from hotrow.command.cli import main
from hotrow.torch.memory.tables import EmbeddingTables
from hotrow.torch.training.trainer import flat_rows
from hotrow.traces import open_trace

from benchmarks.train_baselines import count, filled, ranked_rows

SMALL = ["--preset", "tiny", "--trace", "zipf:1.05", "--tables", "3", "--rows", "900",
         "--batch", "48", "--learning", "3", "--warm-up", "1", "--steps", "4", "--rounds", "1"]
FIELDS = {"name", "kind", "steps_per_s", "slots", "hit_rate", "popular_fraction", "rows_moved",
          "link_bytes", "slot_bytes",
          "metadata_bits_per_slot", "loss", "table_sha256", "table_hash_equal"}
DIM, ROW = 16, 64


@pytest.fixture
def bench(capsys):
    """Run the benchmark: (exit code, its JSON object, standard error)."""
    def run(*arguments):
        code = main(["bench", "train", *map(str, arguments), "--json"])
        out, err = capsys.readouterr()
        return code, json.loads(out) if not code else out, err
    return run


def by_name(records):
    return {record["name"]: record for record in records}


@pytest.mark.slow
def test_modes_train_the_same_tables(bench):
    code, result, _ = bench(
        *SMALL, "--modes", "resident,scratchpipe,freqcache,hotline,hotline:5,hotline:40")
    found = by_name(result["contenders"])
    assert code == 0 and set(found) == {"resident", "scratchpipe", "freqcache", "hotline",
                                        "hotline:5", "hotline:40"}
    assert all(record.keys() >= FIELDS for record in found.values())
    for name in ("resident", "scratchpipe", "freqcache"):
        assert found[name]["table_hash_equal"] and found[name]["loss"] == found["resident"]["loss"]
    assert found["hotline"]["loss"] == pytest.approx(found["resident"]["loss"], rel=1e-6)
    assert found["scratchpipe"]["simulation_ms"] > 0
    assert found["resident"]["rows_moved"] == 0 < found["scratchpipe"]["rows_moved"]
    assert result["table_bytes"] == 3 * 900 * ROW
    for name in ("scratchpipe", "freqcache", "hotline"):
        record = found[name]
        assert record["slots"] == 256 and record["slot_bytes"] == 256 * ROW
        assert record["link_bytes"] > ROW * record["rows_moved"]
        assert record["metadata_bits_per_slot"] > 32  # which row it holds
    # Where hot rows were given, the card finds of them what counting finds.
    static = {each["hot_rows"]: each for each in result["counted"]
              if each["name"] == "static top-K"}
    given = found["hotline:5"]
    for name in ("hit_rate", "popular_fraction", "rows_moved"):
        assert given[name] == static[given["warmed_rows"]][name]
    assert given["slots"] == 256 and given["warmed_rows"] == int(0.05 * 2700)
    assert found["hotline:40"]["slots"] == 2048  # the next power of two
    assert found["hotline:40"]["warmed_rows"] <= int(0.4 * 2700) in static


def test_peers_train_alike_or_are_said_to_be_absent(bench, monkeypatch):
    monkeypatch.setitem(sys.modules, "torchrec", None)
    code, result, _ = bench(*SMALL, "--modes", "resident", "--peers")
    found = by_name(result["contenders"])
    assert code == 0 and {"torch", "torch merged"} <= set(found)
    for record in found.values():
        assert record["simulation_ms"] == 0 < record["steps_per_s_without_simulation"]
        assert record["embedding_ms"] + result["model_ms"] == pytest.approx(
            1e3 / record["steps_per_s_without_simulation"])
        assert record["loss"] == pytest.approx(found["resident"]["loss"], rel=1e-5), record["name"]
    absent = by_name(result["absent"])
    assert "torchrec" in absent["torchrec"]["why"]
    assert ("fbgemm" in found) != ("fbgemm" in absent)


def test_rows_that_are_hot_beforehand():
    trace = open_trace("zipf:1.05", tables=3, table_rows=400, seed=2)
    tables = EmbeddingTables(trace.cardinalities, DIM)
    batches = [trace.batch(number, 32) for number in range(3)]
    hot = ranked_rows(tables, batches, 50)
    rows = np.concatenate([flat_rows(tables, each).numpy() for each in batches])
    lookups = {int(row): int((rows == row).sum()) for row in np.unique(rows)}
    assert len(hot) == 50 == len(set(hot.tolist()))
    assert sum(lookups[row] for row in hot.tolist()) == sum(sorted(lookups.values())[-50:])
    more = filled(tables, hot, 700)
    assert more[:50].tolist() == hot.tolist() and len(set(more.tolist())) == 700
    found, wanted = count(tables, hot, batches), set(hot.tolist())
    per_sample = [[row in wanted for row in sample] for each in batches
                  for sample in flat_rows(tables, each).numpy().reshape(len(each), -1).tolist()]
    assert (found.samples, found.lookups) == (96, 288)
    assert found.hits == sum(map(sum, per_sample))
    assert found.popular == sum(map(all, per_sample))
    assert found.popular_lookups == 3 * found.popular


@pytest.mark.parametrize(("arguments", "said"), [
    (["--modes", "resident,fast"], "not 'fast'"),
    (["--modes", "hotline:0,hotline:x,hotline:101"], "not 'hotline:0,hotline:101,hotline:x'"),
    (["--dim", "6"], "a multiple of 4, not 6"),
    (["--slots", "100", "--modes", "scratchpipe"], "cannot have 100 slots"),
    (["--transport", "udp:host", "--modes", "scratchpipe"], "one of the transports model, sim"),
])
def test_errors_teach(bench, arguments, said):
    code, _, error = bench(*SMALL, *arguments)
    assert code == 2 and said in " ".join(error.split())


@pytest.mark.long
@pytest.mark.nightly
def test_tables_of_criteo_kaggles_size(bench):
    """33.8 million rows with slots for 1.5 % of them, and for 24 %: 5 GB of memory."""
    code, result, _ = bench(
        "--preset", "alveo-u55c", "--trace", "criteo-shape:1.05", "--slots", 1 << 19,
        "--learning", 120, "--steps", 3, "--warm-up", 2, "--rounds", 1, "--threads", 1,
        "--modes", "resident,scratchpipe,freqcache,hotline,hotline:24")
    found = by_name(result["contenders"])
    assert code == 0 and result["rows"] == 33_762_577
    for name in ("scratchpipe", "freqcache", "hotline", "hotline:24"):
        assert found[name]["slots"] == 1 << (23 if name == "hotline:24" else 19)
        assert found[name]["metadata_bits_per_slot"] <= 72, found[name]
    assert found["hotline:24"]["warmed_rows"] > 0.97 * 0.24 * result["rows"]
    for name in ("scratchpipe", "freqcache"):
        assert found[name]["table_hash_equal"]
    assert found["hotline"]["warmed_rows"] > 0.9 * (1 << 19)


def test_a_log_with_a_label(bench):
    code, result, _ = bench("--preset", "tiny", "--trace", "sample", "--ids", "item,user",
                            "--label", "clicked", "--dense", "price", "--batch-size", 30,
                            "--learning", 2, "--warm-up", 1, "--steps", 2, "--rounds", 1, "--modes",
                            "resident,scratchpipe")
    assert code == 0 and by_name(result["contenders"])["scratchpipe"]["table_hash_equal"]
