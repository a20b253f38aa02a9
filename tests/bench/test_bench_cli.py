"""`hotrow bench` as a user meets it: figures that add up, the bars of the hardware, errors."""

import json
import re
import subprocess
import sys

import pytest
from hotrow.command.cli import main
from hotrow.kernels.compiler import find_compiler

SMALL = ["--preset", "tiny", "--tables", "3", "--rows", "1000", "--batch", "64",
         "--lookups", "2000"]
MODEL = ["--transport", "model"]
FIELDS = {"preset", "trace", "lanes", "bus_bytes", "lookups", "cycles", "lookups_per_cycle",
          "fraction_of_lanes", "fraction_of_bus", "bytes_written", "hits", "batches", "seed"}


@pytest.fixture
def bench(capsys):
    """Run a benchmark: (exit code, its JSON object or the text, standard error)."""
    def run(*arguments):
        code = main(["bench", *map(str, arguments)])
        out, err = capsys.readouterr()
        return code, json.loads(out) if "--json" in arguments and not code else out, err
    return run


@pytest.fixture
def log(tmp_path):
    """Bags of none to four items each, in a log of 200 rows."""
    path = tmp_path / "log.tsv"
    rows = (f"{i % 7 == 0:d}\t{i % 5}\t{i % 31}\t{i // 3}" for i in range(200))
    path.write_text("\n".join(("click\tuser\titem\tvisit", *rows)) + "\n")
    return path


@pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("name", ["observe", "split"])
def test_the_machines_cores_claim_no_cycles(bench, name):
    pytest.importorskip("hotrow.transports.cpu")
    model = bench(name, *SMALL, *MODEL, "--json")[1]
    code, result, _ = bench(name, *SMALL, "--transport", "cpu", "--threads", 2, "--json")
    assert code == 0 and result["threads"] == 2
    for figure in ("lookups", "batches", "hits", "bytes_written"):
        assert result[figure] == model[figure], figure
    assert result["lookups_per_s"] == pytest.approx(result["lookups"] / result["seconds"])
    assert result["lookups_per_s_core"] == pytest.approx(result["lookups_per_s"] / 2)
    assert not {"cycles", "lookups_per_cycle", "fraction_of_lanes"} & result.keys()
    code, _, err = bench(name, *SMALL, "--transport", "cpu")
    assert code == 0 and "time of this machine's cores" in err


@pytest.mark.slow
@pytest.mark.parametrize("name", ["observe", "split"])
@pytest.mark.parametrize("trace", ["uniform", "zipf:1.05", "single"])
def test_figures_add_up(bench, name, trace):
    code, result, _ = bench(name, "--trace", trace, *SMALL, *MODEL, "--json")
    assert code == 0 and result.keys() >= FIELDS
    assert 2000 <= result["lookups"] < 2000 + 3 * 64
    assert result["lookups"] == 3 * 64 * result["batches"]
    assert result["lookups_per_cycle"] == pytest.approx(result["lookups"] / result["cycles"])
    assert result["fraction_of_lanes"] == pytest.approx(
        result["lookups_per_cycle"] / result["lanes"])
    if trace == "single" and name == "split":
        assert result["hits"] == result["lookups"] and result["popular_fraction"] == 1


def test_bags_of_a_log(bench, log):
    code, result, _ = bench("observe", "--trace", log, "--ids", "user,item", "--bag", "visit",
                            "--preset", "tiny", "--batch", 16, *MODEL, "--json")
    assert code == 0 and result["batches"] == 5  # 67 visits, the last batch a short one
    assert result["lookups"] == 2 * 200


def test_table_for_people(bench):
    code, shown, err = bench("observe", *SMALL, *MODEL)
    assert code == 0 and "lookups_per_cycle" in shown and "by formula" in err


@pytest.mark.parametrize("arguments, message", [
    (["--trace", "zipf"], r"zipf:S\[:rows\]"),
    (["--tables", "99", "--preset", "tiny", "--batch", "8"], "99 tables: this card holds at most"),
    (["--batch", "100000", "--preset", "tiny"], "preset tiny takes at most 1,024 samples"),
    (["--preset", "huge"], "unknown preset"),
    (["--trace", "missing.tsv", "--ids", "a"], "missing.tsv"),
    (["--hot-rows", "100000", "--preset", "tiny", "--lookups", "100", "--batch", "8"], "slots"),
    (["--latency", "50"], "transport 'model' has none"),
])
def test_errors_teach(bench, arguments, message):
    code, out, err = bench("split", *MODEL, *arguments)
    assert code == 2 and not out and "Traceback" not in err
    assert re.search(message, err), err


@pytest.mark.parametrize("arguments", [["observe", "--batch", "0"], ["sprint"],
                                       ["observe", "--lookups", "many"], [],
                                       ["observe", "--hot-rows", "5"], ["split", "--k", "5"]])
def test_bad_options_end_with_2(bench, arguments):
    """Those of another benchmark included."""
    code, out, err = bench(*arguments)
    assert code == 2 and not out and "hotrow: error" in err


@pytest.mark.long
@pytest.mark.parametrize("trace", ["uniform", "zipf:1.05", "single", "zipf:0.8", "zipf:1.4"])
def test_observe_keeps_the_lanes_busy(bench, trace):
    code, result, _ = bench("observe", "--trace", trace, "--lookups", 2**17, "--json")
    assert code == 0 and result["transport"] == "sim"
    assert result["fraction_of_lanes"] >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize("name", ["observe", "split"])
def test_model_counts_what_the_hardware_counts(bench, name):
    results = [bench(name, *SMALL, "--transport", transport, "--json")[1]
               for transport in ("sim", "model")]
    for figure in ("lookups", "batches", "hits", "bytes_written"):
        assert results[0][figure] == results[1][figure]


OVERLAP = ["overlap", "--preset", "tiny", "--tables", "26", "--rows", "20000", "--batch", "1024",
           "--trace", "zipf:1.4"]


@pytest.mark.slow
def test_overlap_over_the_model(bench):
    code, result, _ = bench(*OVERLAP, "--lookups", "50000", *MODEL, "--json")
    assert code == 0 and result["agrees"] and result["batches"] == 2
    assert 0 < result["rows_gathered"] < result["lookups"]
    larger = max(result["split_cycles"], result["gather_cycles"])
    assert result["of_larger"] == pytest.approx(result["overlapped_cycles"] / larger)


@pytest.mark.long
def test_rows_move_while_the_next_batch_is_split(bench):
    """Near the larger of both, not their sum; a first SPLIT and a last GATHER are alone."""
    code, result, _ = bench(*OVERLAP, "--lookups", "260000", "--latency", 4, "--json")
    split, gather = result["split_cycles"], result["gather_cycles"]
    assert code == 0 and result["agrees"] and result["batches"] == 10
    assert 0.5 < split / gather < 2, "one of them takes so little that nothing is shown"
    assert result["of_larger"] < 1.2 and result["of_sum"] < 0.7
    assert result["in_turn_cycles"] > 0.95 * (split + gather)


@pytest.mark.parametrize("arguments, message", [
    (["--row-bytes", "40"], "multiple of 16 up to 512"),
    (["--trace", "single"], "every lookup hits: lower --hot-rows"),
])
def test_overlaps_that_cannot_be(bench, arguments, message):
    code, out, err = bench(*OVERLAP, "--lookups", "100", *MODEL, *arguments)
    assert code == 2 and not out and re.search(message, err)


TABLE = ["--preset", "tiny", "--tables", "3", "--rows", "900", "--batch", "48"]
MOVED = ["--preset", "tiny", "--moved-rows", "200", "--table-rows", "500"]
SHORT = ["--steps", "2", "--warm-up", "1", "--learning", "1"]
HUMAN = {
    "observe": SMALL, "split": SMALL, "plan": [*TABLE, "--lookups", "900"], "overlap": [
        *OVERLAP[1:], "--lookups", "3500"],
    "hotset": [*SMALL, "--k", "64,128"],
    "train": [*TABLE, *SHORT, "--rounds", "1", "--threads", "1", "--modes", "resident"],
    "host": [*TABLE, *SHORT, "--preset", "alveo-u55c", "--threads", "1"],
    "gather": MOVED, "scatter": MOVED, "pool": MOVED, "update": MOVED,
    "cpu": ["--batches", "16", "--dims", "4", "--bags", "1", "--tables", "2", "--rows", "50"],
    "policies": [*TABLE, "--lookups", "2000"],
    "end-to-end": ["--preset", "tiny", "--trace", "zipf:1.2:400", "--batch-size", "64",
                   "--batches", "3", "--learning", "2"],
}
LABELS = {"train": "not the speed of a card", "host": "of this machine's processor",
          "cpu": "of this machine's processor", "policies": "",
          "end-to-end": "cycles by formula, projected clock"}


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.long if name in ("train", "host", "cpu") else ())
    for name in HUMAN])
def test_output_for_people(bench, monkeypatch, name):
    """Every benchmark prints tables that fit a terminal, and what its figures are."""
    monkeypatch.setenv("COLUMNS", "80")
    model = [] if name in ("policies", "host", "cpu") else MODEL
    code, shown, err = bench(name, *HUMAN[name], *model)
    assert code == 0, err
    assert f"hotrow bench {name}" in shown and max(map(len, shown.splitlines())) <= 80
    assert LABELS.get(name, "by formula, not of the hardware") in err
    assert "━" not in err, "a progress bar where standard error is no terminal"


@pytest.mark.slow
def test_the_parser_loads_no_pytorch():
    code = ("import argparse, sys; from hotrow.bench import cli; "
            "cli.bench(argparse.ArgumentParser().add_subparsers()); print('torch' in sys.modules)")
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


@pytest.mark.parametrize("arguments", [["plan", "--preset", "tiny"], ["area"], ["host", "-h"]])
def test_a_wheel_names_what_a_benchmark_lacks(bench, monkeypatch, tmp_path, arguments):
    monkeypatch.setattr("hotrow.bench.cli.CHECKOUT", tmp_path)
    code, out, err = bench(*arguments)
    assert code == 2 and not out and err.count("\n") == 1, err
    assert f"hotrow bench {arguments[0]} needs a checkout" in err and "pip install -e ." in err


def test_every_benchmark_has_such_a_test():
    import argparse

    from hotrow.bench import cli

    parser = argparse.ArgumentParser()
    cli.bench(parser.add_subparsers())
    group = parser._subparsers._group_actions[0].choices["bench"]._subparsers._group_actions[0]
    assert set(group.choices) - {"area", "clock"} == set(HUMAN), "tested elsewhere"
