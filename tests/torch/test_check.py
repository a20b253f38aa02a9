"""The check is worth what it catches: each fault is planted in a trainer and must fail it."""

from dataclasses import replace

import pytest
import torch
from hotrow.contract import MISS_FLAG
from hotrow.torch.training.check import ABSOLUTE, RELATIVE, StepCheck, excess
from hotrow.torch.training.hotline import HotlineTrainer

STEPS, FAULTY = 6, 4  # the faulty step is one of the last, so that rows are cold and come again


class Sound(HotlineTrainer):
    """Knows whether the step under way is the one to spoil: the check's, of batch FAULTY."""

    spoiled = 0

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.calls = 0
        self.before = []  # the tables as they were when each step began

    @property
    def faulty(self):
        return self.calls // 2 == FAULTY  # each batch is stepped twice: checked, then free

    def step(self, samples):
        self.before.append(self.tables.copy().rows)
        result = super().step(samples)
        self.calls += 1
        return result


class DropsUpdates(Sound):
    """One cold row in a hundred does not come back to its table."""

    def write_back(self, cold):
        if not self.faulty:
            return super().write_back(cold)
        lost = cold[50::100]
        kept = self.tables.rows.read(lost)
        super().write_back(cold)
        self.tables.rows.write(lost, *kept)
        self.spoiled += len(lost)


class Stale(Sound):
    """The gather of one batch did not wait for the write-back of the batch before."""

    def gather_cold(self, cold):
        wait = super().gather_cold(cold)
        if not self.faulty:
            return wait

        def arrived():
            wait()
            first = self.storage.slots
            old = self.before[-3].read(cold)  # when the check's step of the batch before began
            new = self.tables.rows.read(cold)
            self.storage.rows.write(slice(first, first + len(cold)), *old)
            self.spoiled += int((old[0] != new[0]).any(dim=1).sum())
        return arrived


class Misclassifies(Sound):
    """One lookup of a cold row is said to hit a slot."""

    def split(self, batch):
        split = super().split(batch)
        if self.faulty:
            slots = split.slots.copy()
            missed = (slots & MISS_FLAG).nonzero()[0]
            slots[missed[len(missed) // 2]] = int(self.storage.hot_slots[0])
            split = replace(split, slots=slots)
            self.spoiled += 1
        return split


class LosesNumbers(Sound):
    """A row becomes not-a-number, which compares with nothing."""

    def write_back(self, cold):
        super().write_back(cold)
        if self.faulty:
            self.tables.rows.weights[cold[0], 0] = float("nan")
            self.spoiled += 1


class ForgetsState(Sound):
    """The optimizer state of one cold row is cleared."""

    def write_back(self, cold):
        super().write_back(cold)
        if self.faulty:
            self.tables.rows.state[cold[0]] = 0.0
            self.spoiled += 1


class ForgetsPopular(Sound):
    """The dense part learns from the second micro-batch alone."""

    def gather_cold(self, cold):
        wait = super().gather_cold(cold)
        if not self.faulty:
            return wait

        def arrived():  # the popular part has run by then
            self.model.zero_grad()
            self.spoiled += 1
            return wait()
        return arrived


def run(setting, device, kind, optimizer, seed):
    here = setting(seed, cardinalities=(60, 400, 1500), optimizer=optimizer)
    trainer = kind(*here.parts(), device, 80)
    check = StepCheck(trainer, here.reference())
    for number, samples in enumerate(here.batches(STEPS, count=256)):
        if number == 0:
            trainer.observe(samples)
        if number == 1:
            trainer.learn()
        check.step(samples)
        result = trainer.step(samples)
        assert number == 0 or 0 < result.popular < len(samples)
    return trainer, check


@pytest.mark.parametrize("optimizer", ["sgd", "rowwise_adagrad"])
@pytest.mark.parametrize("seed", [1, 2])
def test_sound_training_passes(setting, device, optimizer, seed):
    trainer, check = run(setting, device, Sound, optimizer, seed)
    assert check.held and check.max_difference < 0.5 and not trainer.spoiled


@pytest.mark.parametrize("optimizer", ["sgd", "rowwise_adagrad"])
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("kind", [DropsUpdates, Stale, Misclassifies, LosesNumbers,
                                  ForgetsPopular])
def test_fault_fails_the_check(setting, device, kind, optimizer, seed):
    trainer, check = run(setting, device, kind, optimizer, seed)
    assert trainer.spoiled, "the fault was not planted"
    assert not check.held, f"{kind.__name__} passed with {check.max_difference:g} of the limit"


def test_lost_state_fails_the_check(setting, device):
    trainer, check = run(setting, device, ForgetsState, "rowwise_adagrad", seed=1)
    assert trainer.spoiled and not check.held


def test_the_free_run_is_undisturbed(setting, device):
    """Checked or not, a trainer ends in the same place."""
    checked, _ = run(setting, device, Sound, "rowwise_adagrad", seed=3)
    digest = (checked.flush(), checked.tables.sha256())[1]
    for table in checked.registered:
        device.unregister_table(table)
    device.clear_counters()
    device.clear_directory()

    here = setting(3, cardinalities=(60, 400, 1500), optimizer="rowwise_adagrad")
    trainer = HotlineTrainer(*here.parts(), device, 80)
    for number, samples in enumerate(here.batches(STEPS, count=256)):
        if number == 0:
            trainer.observe(samples)
        if number == 1:
            trainer.learn()
        trainer.step(samples)
    trainer.flush()
    assert trainer.tables.sha256() == digest


def test_excess_is_in_units_of_the_limit():
    reference = torch.tensor([0.0, 1.0, -100.0])
    limit = reference.abs() * RELATIVE + ABSOLUTE
    assert excess(reference, reference) == 0.0
    for at in range(3):
        value = reference.double()
        value[at] += 3 * limit[at].double()
        assert excess(value, reference) == pytest.approx(3.0, rel=1e-3)
    assert excess(torch.tensor([float("nan"), 1.0, -100.0]), reference) > 1
    assert excess(torch.empty(0), torch.empty(0)) == 0.0
