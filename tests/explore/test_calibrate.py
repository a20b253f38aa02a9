"""The arithmetic of the host measurement, on given times; no test depends on a clock."""

import numpy as np
import pytest
from hotrow_explore import calibrate, constants
from hotrow_explore.placements import Question, cpu
from hotrow_explore.systems import Rates


def test_a_fit_without_negative_coefficients():
    rng = np.random.default_rng(5)
    features = rng.random((20, 3))
    assert list(calibrate.nonnegative_fit(features, features @ [2.0, 3.0, 0.0])) == pytest.approx(
        [2, 3, 0], abs=1e-9)
    found = list(calibrate.nonnegative_fit(features, features @ [2.0, 3.0, -0.1]))
    assert found[2] == 0 and min(found) >= 0


def test_calibration_takes_the_fastest_round(monkeypatch):
    clock = iter(range(10**6))
    monkeypatch.setattr(calibrate.time, "perf_counter", lambda: next(clock) * 0.1)
    calls = []
    least = calibrate.least_seconds([lambda: calls.append(0), lambda: calls.append(1)], rounds=2)
    assert least == pytest.approx([0.1, 0.1])
    assert calls == [0, 1, 0, 1, 0, 1]


def test_checked_sizes_are_not_calibrated_on():
    assert len(calibrate.CHECKED) == 3
    assert not set(calibrate.CHECKED) & set(calibrate.CALIBRATED)


def test_calibration_recovers_the_rates():
    """From times of the model itself the rates predict times of other sizes."""
    known = Rates(2e-5, 5e-12, 1e-10, 1e-8, 1e-11, 2e-8, 2e-11, 1e-10, 1e-3)
    host = calibrate._BARE.changed(host_memory_gb=100.0, rates=known)

    class Run:
        def __init__(self, size):
            self.size = size
            self.question = Question(size.workload, host, constants.load())
            self.unique = self.question.count(0).unique

    def step(run):
        return cpu(run.question).seconds

    def dense(run):
        return run.question.machine.cpu_dense()["dense"]

    runs = [Run(size) for size in calibrate.CALIBRATED]
    found = calibrate._rates(runs, np.array([step(run) for run in runs]),
                             np.array([dense(run) for run in runs]))
    fitted = host.changed(rates=found)
    for compared in calibrate._compare([Run(size) for size in calibrate.CHECKED],
                                       [step(Run(size)) for size in calibrate.CHECKED], fitted):
        assert compared["ratio"] == pytest.approx(1, rel=0.01)


def test_one_run_steps_and_trains_its_dense_part():
    run = calibrate.Run(calibrate.Size(32, 3, 100, 16, 0.1))
    before = run.trainer.tables.sha256()
    run.dense()
    assert run.trainer.tables.sha256() == before
    run.step()
    assert run.trainer.tables.sha256() != before


def test_row_scaling_is_of_the_step_without_its_dense_part(monkeypatch):
    threads, before = [], calibrate.torch.get_num_threads()

    def least_seconds(works):
        for work in works:
            work()
            threads.append(calibrate.torch.get_num_threads())
        return [5.0, 2.0, 9.0, 4.0]

    calibrate.torch.set_num_threads(2)
    try:
        monkeypatch.setattr(calibrate, "least_seconds", least_seconds)
        assert calibrate._row_scaling(calibrate.Run(calibrate.Size(8, 1, 10, 16, 0.1))) == 5 / 3
        assert threads == [2, 2, 1, 1] and calibrate.torch.get_num_threads() == 2
    finally:
        calibrate.torch.set_num_threads(before)
