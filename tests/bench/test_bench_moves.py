"""`hotrow bench gather` and its kind: figures that add up, the memory that is asked for, errors."""

import json
import re
from itertools import combinations, product

import pytest
from hotrow.command.cli import main
from hotrow.kernels.compiler import find_compiler
from hotrow_rtl.config import PRESETS

from benchmarks import moves
from benchmarks.move_kinds import KINDS

SMALL = ["gather", "--preset", "tiny", "--moved-rows", "3000", "--table-rows", "5000",
         "--ports", "1"]
FIELDS = {"preset", "rows", "row_bytes", "ports", "cycles", "bytes_per_cycle", "bus_bytes", "seed",
          "useful_beat_fraction", "agrees", "rows_per_s_projected", "cpu_rows_per_s", "ratio"}


@pytest.fixture
def bench(capsys):
    """Run a benchmark: (exit code, its JSON object or the text, standard error)."""
    def run(*arguments):
        code = main(["bench", *map(str, arguments)])
        out, err = capsys.readouterr()
        return code, json.loads(out) if "--json" in arguments and not code else out, err
    return run


@pytest.mark.parametrize("row_bytes", [16, 64, 80])
@pytest.mark.parametrize("move", ["gather", "scatter"])
def test_figures_add_up(bench, row_bytes, move):
    code, result, _ = bench(
        move, *SMALL[1:], "--transport", "model", "--row-bytes", row_bytes,
        "--clock-mhz", 10, "--json")
    assert code == 0 and result.keys() >= FIELDS and result["agrees"]
    assert (result["rows"], result["row_bytes"], result["ports"]) == (3000, row_bytes, 1)
    assert result["bytes_per_cycle"] == pytest.approx(3000 * row_bytes / result["cycles"])
    assert result["rows_per_s_projected"] == pytest.approx(3000 / result["cycles"] * 10e6)
    for name, rate in result["cpu_rows_per_s"].items():
        assert result["ratio"][name] == pytest.approx(result["rows_per_s_projected"] / rate)
    assert not {"trace", "memory", "latency"} & result.keys()


@pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("move", ["gather", "scatter", "pool", "update"])
def test_the_machines_cores_claim_no_cycles(bench, monkeypatch, move):
    monkeypatch.setattr(moves, "ROUNDS", 3)
    code, result, _ = bench(move, *SMALL[1:], "--transport", "cpu", "--threads", 2, "--json")
    assert code == 0 and result["agrees"] and result["threads"] == 2
    assert result["rows_per_s"] == pytest.approx(result["rows"] / result["seconds"])
    assert result["rows_per_s_core"] == pytest.approx(result["rows_per_s"] / 2)
    for name, rate in result["cpu_rows_per_s"].items():
        assert result["ratio"][name] == pytest.approx(result["rows_per_s"] / rate)
    assert not {"cycles", "bytes_per_cycle", "ports", "clock_mhz"} & result.keys()


@pytest.mark.parametrize("bag, rows, bags", [(1, 3000, 3000), (20, 3000, 150), (7, 2996, 428),
                                             (4000, 4000, 1)])
@pytest.mark.parametrize("kind", ["pool", "update"])
def test_figures_of_bags(bench, kind, bag, rows, bags):
    code, result, _ = bench(kind, *SMALL[1:], "--transport", "model", "--bag", bag, "--json")
    assert code == 0 and result.keys() >= FIELDS | {"bag"} and result["agrees"]
    read = rows + (bags if kind == "update" else 0)
    assert (result["rows"], result["bag"]) == (rows, bag)
    assert (result["rows_read"], result["rows_written"]) == (read, bags)
    assert result["bytes_per_cycle"] == pytest.approx(read * 64 / result["cycles"])
    assert result["rows_per_cycle"] == pytest.approx(read / result["cycles"])
    libraries = {name.split("_")[0] for name in result["cpu_rows_per_s"]}
    assert libraries - {"memcpy"} == {"numpy", "torch"}


PAIRS = {"--preset": PRESETS, "--row-bytes": (16, 64, 4096), "--bag": (1, 7), "--ports": (1, 8),
         "--bag-units": (1, 8),
         "--outstanding": (1, 1024), "--clock-mhz": (1, 2000), "--moved-rows": (1, 300),
         "--table-rows": (1, 5000), "--memory": ("ddr3", "hbm"), "--latency": (1,),
         "--transport": ("model", "cpu", "sim:9"), "--threads": (2,), "--seed": (5,)}


@pytest.mark.slow
@pytest.mark.parametrize("together", [1, pytest.param(2, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", KINDS)
def test_options_run_or_are_refused_in_one_line(bench, monkeypatch, kind, together):
    monkeypatch.setattr(moves, "_cpu_seconds", lambda *_: {"numpy": 1.0})
    monkeypatch.setattr(moves, "ROUNDS", 2)
    ran = refused = 0
    for names in combinations(PAIRS if KINDS[kind].arithmetic else PAIRS.keys() - {
            "--bag", "--bag-units"}, together):
        for values in product(*map(PAIRS.get, names)):
            given = {"--preset": "tiny", "--transport": "model", "--moved-rows": 30,
                     "--table-rows": 500} | dict(zip(names, values, strict=True))
            code, out, err = bench(kind, *(each for pair in given.items() for each in pair))
            last = err.rpartition("\r")[2].strip().splitlines()
            assert code == 0 or (code == 2 and not out and len(last) == 1
                                 and last[0].startswith("hotrow: error: ")), (given, code, err)
            ran, refused = ran + (code == 0), refused + (code == 2)
    assert ran > 10 and refused > 2


def test_more_rows_than_the_table_has(bench):
    few = ["--transport", "model", "--moved-rows", "100", "--table-rows", "4"]
    code, result, _ = bench("pool", "--preset", "tiny", *few, "--bag", "3", "--json")
    assert code == 0 and result["agrees"] and (result["rows"], result["table_rows"]) == (99, 4)
    code, _, err = bench("update", *few)
    assert code == 2 and "--moved-rows 100 of a table of 4 rows would write a row twice" in err


def test_table_for_people(bench):
    code, shown, err = bench(*SMALL, "--transport", "model")
    assert code == 0 and "useful_beat_fraction" in shown and "by formula" in err


@pytest.mark.parametrize("arguments, message", [
    (["--row-bytes", "40"], "multiple of 16 up to 512"),
    (["--row-bytes", "1024"], "longest row of preset tiny, not 1024"),
    (["--preset", "huge"], "unknown preset"),
    (["--latency", "50"], "transport 'model' has none"),
    (["--memory", "hbm"], "transport 'model' has none"),
])
def test_errors_teach(bench, arguments, message):
    code, out, err = bench(*SMALL, "--transport", "model", *arguments)
    assert code == 2 and not out and "Traceback" not in err
    assert re.search(message, err), err


@pytest.mark.parametrize("arguments", [["--memory", "ddr9"], ["--moved-rows", "0"],
                                       ["--trace", "zipf"]])
def test_bad_options_end_with_2(bench, arguments):
    code, out, err = bench("gather", *arguments)
    assert code == 2 and not out and "hotrow: error" in err


def test_the_card_can_be_changed(bench):
    code, result, _ = bench(*SMALL[:-1], 4, "--outstanding", 8, "--clock-mhz", 75,
                            "--transport", "model", "--json")
    assert code == 0 and result["agrees"]
    assert (result["ports"], result["clock_mhz"], result["clock_is"]) == (4, 75, "given")


@pytest.mark.long  # a card of one row port is built for it
@pytest.mark.parametrize("memory, latency, least, most", [
    ("ideal", 1, 0.97, 1.0), ("ideal", 200, 4 * 4 / 220, 4 * 4 / 200), ("ddr3", 2, 0.2, 0.5),
    ("hbm", 1, 0.4, 1.0)])
def test_hardware(bench, memory, latency, least, most):
    """Four rows of 4 words in flight."""
    code, result, _ = bench(*SMALL, "--memory", memory, "--latency", latency, "--json")
    assert code == 0 and result["agrees"]
    assert (result["memory"], result["latency"]) == (memory, latency)
    assert result["beats"] == 4 * 3000 and result["most_outstanding"] == 4
    assert least <= result["useful_beat_fraction"] <= most
    assert result["useful_beat_fraction"] == pytest.approx(result["beats"] / result["beat_cycles"])
    assert result["cycles"] - 8 * latency - 200 < result["beat_cycles"] < result["cycles"]
    assert ("fraction_of_bare_requests" in result) == (memory != "ideal")
    if memory != "ideal":
        assert 0.5 < result["fraction_of_bare_requests"] <= 1.05


@pytest.mark.long
@pytest.mark.parametrize("move", ["gather", "scatter"])
def test_two_ports_share_the_rows(bench, move):
    """Eight rows of 4 words in flight at 20 cycles, four at each port."""
    code, result, _ = bench(move, *SMALL[1:-1], 2, "--latency", 20, "--json")
    assert code == 0 and result["agrees"] and (result["ports"], result["beats"]) == (2, 12000)
    assert 2 * 16 * 4 / 40 * 0.9 <= result["bytes_per_cycle"] <= 2 * 16
    assert 0.3 <= result["useful_beat_fraction"] <= 1


@pytest.mark.long
@pytest.mark.parametrize("memory", ["ideal", "ddr3"])
@pytest.mark.parametrize("kind", ["pool", "update"])
def test_hardware_computes(bench, kind, memory):
    code, result, _ = bench(kind, *SMALL[1:], "--memory", memory, "--latency", 2, "--json")
    assert code == 0 and result["agrees"]
    assert result["beats"] == 4 * result["rows_read"]
    assert 0.2 <= result["useful_beat_fraction"] <= 1
    assert 0 < result["written_beat_fraction"] <= 1
    assert ("fraction_of_bare_requests" in result) == (memory != "ideal")


@pytest.mark.long
def test_one_seed_one_run(bench):
    runs = [bench(*SMALL[:-1], 2, "--memory", "ddr3", "--seed", seed, "--json")[1]
            for seed in (1, 1, 2)]
    assert runs[0]["cycles"] == runs[1]["cycles"] != runs[2]["cycles"]
