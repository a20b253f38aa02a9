"""`hotrow bench cpu`: every variant against loops over Python's integers, and what is reported."""

import json
import re

import numpy as np
import pytest
import torch
from hotrow import RowList
from hotrow.command.cli import main
from hotrow.traces import Samples

from benchmarks import cpu, cpu_numpy, cpu_torch
from benchmarks.cpu_work import STEPS, prepare

SMALL = ["--preset", "tiny", "--tables", "3", "--rows", "1000", "--batch", "64",
         "--lookups", "2000"]
MODEL = ["--transport", "model"]
SIZES = (50, 7, 300)  # rows of three tables
FIRST = np.r_[0, np.cumsum(SIZES)]


@pytest.fixture
def bench(capsys):
    """Run the benchmark: (exit code, its JSON object or the text, standard error)."""
    def run(*arguments):
        code = main(["bench", "cpu", *map(str, arguments)])
        out, err = capsys.readouterr()
        return code, json.loads(out) if "--json" in arguments and not code else out, err
    return run


def samples(jagged, count, rng):
    """Random samples; of bags, some empty, and some samples without any lookup."""
    if not jagged:
        ids = np.stack([rng.integers(0, size, count) // rng.integers(1, 9, count)
                        for size in SIZES], axis=1).astype(np.uint32)
        return Samples(ids, None, np.empty((count, 0)), None)
    lengths = rng.integers(0, 4, (count, len(SIZES))).astype(np.uint16)
    lengths[rng.random(count) < 0.2] = 0
    ids = rng.integers(0, np.repeat(np.tile(SIZES, count), lengths.ravel())).astype(np.uint32)
    return Samples(ids, lengths, np.empty((count, 0)), None)


def bags(batch):
    """The rows of each sample, numbered over all tables, as lists."""
    lengths = batch.bag_lengths.reshape(len(batch), -1)
    rows = iter(batch.ids.ravel().tolist())
    return [[int(FIRST[table]) + next(rows) for table in range(len(SIZES))
             for _ in range(of_sample[table])] for of_sample in lengths.tolist()]


def hot_rows(share, rng):
    table = np.repeat(np.arange(len(SIZES)), SIZES)
    row = np.concatenate([np.arange(size) for size in SIZES])
    chosen = rng.permutation(np.flatnonzero(rng.random(len(row)) < share))
    return RowList(table[chosen].astype(np.uint32), row[chosen].astype(np.uint32))


def library(name, work):
    """Its variants, the batches that they take, and their results as arrays."""
    if name == "numpy":
        return cpu_numpy.variants(work), work.cuts
    return cpu_torch.variants(cpu_torch.tensors(work)), cpu_torch.tensors(work).cuts


@pytest.mark.parametrize("name", ["numpy", "torch"])
@pytest.mark.parametrize("jagged", [False, True])
@pytest.mark.parametrize("share", [0, 0.3, 0.9, 1])
def test_every_variant_equals_brute_force(name, jagged, share):
    rng = np.random.default_rng([jagged, int(10 * share)])
    taken = [samples(jagged, count, rng) for count in (40, 1, 33)]
    hot = hot_rows(share, rng)
    work = prepare(SIZES, hot, taken)
    slot = {row: at for at, row in enumerate(sorted(FIRST[hot.table] + hot.row))}
    variants, cuts = library(name, work)
    assert variants.keys() == set(STEPS)
    counts = np.zeros(FIRST[-1], int)
    for batch, cut in zip(taken, cuts, strict=True):
        rows = bags(batch)
        flat = [row for of_sample in rows for row in of_sample]
        np.add.at(counts, np.array(flat, int), 1)
        missed = [row for row in flat if row not in slot]
        popular = [all(row in slot for row in of_sample) for of_sample in rows]
        for variant, count in variants["count"].items():
            assert np.array_equal(np.asarray(count(cut)), counts), variant
        for variant, classify in variants["classify"].items():
            assert classify(cut).tolist() == [slot.get(row, -1) for row in flat], variant
        for variant, partition in variants["partition"].items():
            parts = [part.tolist() for part in partition(cut)]
            assert parts == [[at for at, each in enumerate(popular) if each == wanted]
                             for wanted in (True, False)], variant
        for variant, misses in variants["misses"].items():
            listed, which = misses(cut)
            assert sorted(listed.tolist()) == sorted(set(missed)), variant
            assert listed[which].tolist() == missed, variant


def test_the_least_time_of_each_call_counts(monkeypatch):
    """Three calls, each slow in all rounds but one."""
    clock, calls = [0.0], []

    def work(which):
        calls.append(which)
        clock[0] += 1.0 if (len(calls) - 1) // 3 == which else 100.0

    monkeypatch.setattr(cpu.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(cpu, "ROUNDS", 3)
    rounds = []
    assert cpu.best_seconds([(work, [0, 1, 2])], lambda: rounds.append(1)).tolist() == [3.0]
    assert calls == [0, 1, 2] * 3 and len(rounds) == 3


@pytest.mark.parametrize("trace", ["uniform", "zipf:1.05", "single"])
def test_figures_add_up(bench, trace):
    code, result, _ = bench("--trace", trace, *SMALL, *MODEL, "--threads", 1, "--clock-mhz", 200,
                            "--json")
    assert code == 0 and result["agrees"] and result["threads"] == 1
    assert result["lookups"] == 3 * 64 * result["batches"] >= 2000
    assert [(each["step"], each["library"]) for each in result["steps"]] == [
        (step, library) for step in STEPS for library in ("numpy", "torch")]
    for each in result["steps"]:
        assert each["lookups_per_s"] == each["lookups_per_s_core"] == max(each["tried"].values())
        assert each["tried"][each["variant"]] == each["lookups_per_s"]
    fastest = {step: max(each["lookups_per_s"] for each in result["steps"] if each["step"] == step)
               for step in STEPS}
    cpu_rates = {"observe": fastest["count"],
                 "split": 1 / sum(1 / fastest[step] for step in STEPS[1:])}
    card = result["card"]
    assert card["clock_mhz"] == 200 and card["clock_is"] == "given"
    for name, rate in cpu_rates.items():
        assert result["cpu"][name] == pytest.approx({"core": rate, "machine": rate})
        assert card[name]["lookups_per_cycle"] == pytest.approx(
            result["lookups"] / card[name]["cycles"])
        projected = card[name]["lookups_per_cycle"] * 200e6
        assert card[name]["lookups_per_s_projected"] == pytest.approx(projected)
        assert result["ratio"][name]["core"] == pytest.approx(projected / rate)


def test_the_card_as_the_other_benchmarks_measure_it(bench, capsys):
    _, result, _ = bench(*SMALL, *MODEL, "--threads", 1, "--hot-rows", 60, "--json")
    assert result["hot_rows"] == 60 and result["card"]["clock_is"] == "assumed"
    for name, more in (("observe", []), ("split", ["--hot-rows", "60"])):
        assert main(["bench", name, *SMALL, *MODEL, *more, "--json"]) == 0
        alone = json.loads(capsys.readouterr().out)
        assert result["card"][name]["cycles"] == alone["cycles"], name


def test_more_threads_are_no_slower_than_one(bench):
    _, result, _ = bench(*SMALL, *MODEL, "--threads", 2, "--json")
    assert all(each["lookups_per_s"] >= each["lookups_per_s_core"] for each in result["steps"])


def test_threads_of_pytorch_are_put_back(bench):
    before = torch.get_num_threads()
    bench(*SMALL, *MODEL, "--threads", before + 1, "--json")
    assert torch.get_num_threads() == before


def test_exit_code_where_card_and_cpu_differ(bench, monkeypatch):
    monkeypatch.setattr(cpu, "_found", lambda work: (0, 0))
    assert bench(*SMALL, *MODEL, "--threads", 1, "--json")[0] == 1


def test_table_for_people(bench):
    code, shown, err = bench(*SMALL, *MODEL, "--threads", 1)
    assert code == 0 and "last seen" in shown and "projected" in shown and "by formula" in err


@pytest.mark.parametrize("arguments, message", [
    (["--trace", "uniform:200000000"], "600000000 rows: the CPU's arrays take at most"),
    (["--hot-rows", "100000"], "slots"),
    (["--preset", "huge"], "unknown preset"),
])
def test_errors_teach(bench, arguments, message):
    code, out, err = bench(*SMALL, *MODEL, *arguments)
    assert code == 2 and not out and re.search(message, err), err


@pytest.mark.parametrize("arguments", [["--threads", "0"], ["--k", "5"], ["--clock-mhz", "fast"]])
def test_bad_options_end_with_2(bench, arguments):
    code, out, err = bench(*arguments)
    assert code == 2 and not out and arguments[0] in err


@pytest.mark.slow
def test_beside_the_hardware(bench):
    code, result, _ = bench("--lookups", 2**18, "--json")
    assert code == 0 and result["agrees"] and result["transport"] == "sim"
    observed = result["card"]["observe"]
    assert observed["lookups_per_cycle"] > 0.95 * observed["lanes"]
