"""`hotrow bench host`: parts of a step, sorts, and what is reported."""

import json

import numpy as np
import pytest
import torch
from hotrow.command.cli import main

from benchmarks.host_clock import DEVICE, PartClock, SortCounter

SMALL = ["--preset", "tiny", "--tables", "2", "--rows", "100", "--batch", "8", "--dim", "4",
         "--warm-up", "1", "--steps", "2", "--learning", "1", "--threads", "1"]


@pytest.fixture
def bench(capsys):
    """Run the benchmark: (exit code, its JSON object or the text, standard error)."""
    def run(*arguments):
        code = main(["bench", "host", *SMALL, *arguments])
        out, err = capsys.readouterr()
        return code, json.loads(out) if "--json" in arguments and not code else out, err
    return run


class Clock:
    """A clock that a test sets."""

    def __init__(self):
        self.now = 0

    def __call__(self):
        return self.now


def test_parts_get_their_own_time():
    clock = Clock()
    parts = PartClock(clock)
    clock.now = 5
    with parts.running("forward"):
        clock.now += 1
        with parts.running("plan"):
            clock.now += 10
            parts.switch("insert")
            clock.now += 100
            with parts.running(DEVICE):
                clock.now += 1000
                assert parts.part == DEVICE
        clock.now += 2
    clock.now += 7
    parts.switch("plan")
    assert parts.part is None
    assert parts.seconds == {"forward": 3, "plan": 10, "insert": 100, DEVICE: 1000}


def test_wrapped_methods_get_a_part():
    class Owner:
        def work(self, by):
            clock.now += by
            return by

    clock, owner = Clock(), Owner()
    parts = PartClock(clock)
    parts.wrap(owner, ("work", "absent"), "plan")
    assert owner.work(by=3) == 3
    assert parts.seconds == {"plan": 3}
    assert not hasattr(owner, "absent")


def test_sorts_are_counted():
    before = np.sort, torch.sort, torch.Tensor.sort, torch.Tensor.argsort
    parts = PartClock(Clock())
    with SortCounter(parts) as sorts:
        tensor, array = torch.tensor([3, 1, 2]), np.array([3, 1, 2])
        for sort in (lambda: torch.sort(tensor, stable=True), tensor.argsort, tensor.sort,
                     lambda: torch.unique(tensor, return_inverse=True), lambda: np.sort(array),
                     lambda: np.unique(array), lambda: np.isin(array, array),
                     lambda: np.argsort(array)):
            counted = sorts.count
            sort()
            assert sorts.count == counted + 1
        with parts.running(DEVICE):
            np.sort(array)
        assert sorts.count == counted + 1
    assert before == (np.sort, torch.sort, torch.Tensor.sort, torch.Tensor.argsort)
    np.sort(array)
    assert sorts.count == counted + 1


FIELDS = {"host_ms", "card_side_ms", "trainer_ms", "fbgemm_ms", "embedding_bag_ms",
          "host_over_fbgemm", "card_side_us_per_1000_lookups", "sorts"}


@pytest.mark.parametrize("mode, optimizer", [
    ("scratchpipe", "sgd"), ("freqcache", "rowwise_adagrad"), ("hotline", "sgd")])
def test_one_mode_has_its_figures_at_the_top(bench, mode, optimizer):
    code, result, _ = bench("--modes", mode, "--optimizer", optimizer, "--json")
    assert code == 0 and result.keys() >= FIELDS and result["mode"] == mode
    assert result["lookups"] == 16 and result["host_ms"] > 0 <= result["device_ms"]
    parts = result["parts_ms"]
    assert parts.keys() == {"plan", "collect", "insert", "statistics", "forward", "backward",
                            "update"}
    assert min(parts["plan"], parts["forward"], parts["backward"], parts["update"]) > 0
    assert (result["embedding_bag_ms"] is None) == (optimizer != "sgd")
    assert len(result["passes"]) == 7
    assert all(each["ms"] > 0 < each["torch_ms"] for each in result["passes"])


def test_adam_stands_beside_a_dense_and_a_sparse_bag(bench):
    code, result, _ = bench("--modes", "resident", "--optimizer", "adam", "--json")
    assert code == 0 and result["fbgemm_ms"] is None
    assert result["dense_ms"] > 0 < result["embedding_bag_ms"]


def test_several_modes_are_a_list(bench):
    code, result, _ = bench("--modes", "resident,scratchpipe", "--json")
    assert code == 0 and not FIELDS & result.keys()
    resident, cached = result["modes"]
    assert resident["card_side_ms"] == resident["device_ms"] == 0 < cached["card_side_ms"]
    code, text, err = bench("--modes", "resident,scratchpipe")
    assert code == 0 and "hotrow bench host" in text and "all threads" in err


def test_the_time_of_all_threads_counts(bench, monkeypatch):
    ticks = iter(range(10**9))
    monkeypatch.setattr("time.process_time", lambda: next(ticks))
    code, result, _ = bench("--modes", "scratchpipe", "--json")
    assert code == 0 and result["transport"] == "cpu" and next(ticks) > 100
    assert result["host_ms"] == pytest.approx(  # medians of two steps
        result["card_side_ms"] + result["trainer_ms"] + result["device_ms"])


def test_a_card_that_pools_bags(bench):
    code, result, _ = bench("--modes", "near_memory", "--bag-size", "3", "--json")
    assert code == 0 and result["lookups"] == 48 and result["bag_size"] == 3
    parts = result["parts_ms"]
    assert all(parts[name] for name in ("plan", "forward", "backward", "update"))
    code, _, err = bench("--modes", "near_memory", "--bag-size", "3", "--converted")
    assert code == 2 and "leave --bag-size out" in err


def test_without_fbgemm(bench, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "fbgemm_gpu.split_embedding_configs", None)
    code, result, _ = bench("--modes", "resident", "--json")
    assert code == 0 and result["fbgemm_ms"] is None and result["host_over_fbgemm"] is None


def test_errors_teach(bench):
    code, _, err = bench("--modes", "pooled")
    assert code == 2 and "--modes names some of resident,hotline,scratchpipe,freqcache" in err
