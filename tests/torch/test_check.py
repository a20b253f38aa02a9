"""The check is worth what it catches: each fault is planted in a collection and must fail it."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from hotrow.torch.training.check import ABSOLUTE, OF_STEP, RELATIVE, BitCheck, StepCheck, excess
from hotrow.torch.training.collection_trainer import CollectionTrainer
from hotrow.torch.training.trainer import StepResult

from tests.torch.conftest import emptied

STEPS, FAULTY = 6, 4  # a late step, whose cold rows were trained before


class Sound(CollectionTrainer):
    """Knows whether the current step is the one to spoil: the check's, of batch FAULTY."""

    spoiled = 0

    def __init__(self, *arguments):
        super().__init__(*arguments, "hotline")
        self.counting, self.calls = False, 0
        self.before = []  # the tables when each step began
        store = self.collection.store
        self.write_cold, self.fetch, self.place = (
            store.host.write_after, store.moves.gather, store.policy.place)
        store.host.write_after = self.write_back
        store.moves.gather = self.gather
        store.policy.place = self.split

    @property
    def faulty(self):
        return self.calls // 2 == FAULTY  # each batch is stepped twice: checked, then free

    def step(self, samples):
        self.before.append(self.tables.copy().rows)
        result = super().step(samples)
        self.calls += 1
        return result

    def write_back(self, event, group, cold, rows):
        """Trained rows without a slot, flat int64[c], go back to the tables."""
        self.write_cold(event, group, cold, rows)

    def gather(self, group, cold, places, listed=None):
        """Rows without a slot are fetched for the second micro-batch."""
        self.fetch(group, cold, places, listed)

    def split(self, *batch):
        return self.place(*batch)


class DropsUpdates(Sound):
    """One cold row in a hundred does not come back to its table."""

    def write_back(self, event, group, cold, rows):
        lost = cold[50::100] if self.faulty else cold[:0]
        kept = self.tables.rows.read(lost)
        super().write_back(event, group, cold, rows)
        self.tables.rows.write(lost, *kept)
        self.spoiled += len(lost)


class Stale(Sound):
    """The gather of one batch did not wait for the write-back of the batch before."""

    def gather(self, group, cold, places, listed=None):
        super().gather(group, cold, places, listed)
        if self.faulty:
            rows, at = self.storage.rows, places.long()
            new = rows.weights[at]
            # Since the check's step of the batch before began.
            rows.write(at, *self.before[-3].read(cold))
            self.spoiled += int((rows.weights[at] != new).any(dim=1).sum())


class Misclassifies(Sound):
    """One lookup of a cold row is classified as a hit."""

    def split(self, *batch):
        placement = super().split(*batch)
        if self.faulty:
            slots = placement.slots.copy()
            missed = (slots >= self.storage.slots).nonzero()[0]
            slots[missed[len(missed) // 2]] = int(self.storage.resident_slots[0])
            placement = replace(placement, slots=slots)
            self.spoiled += 1
        return placement


class LosesNumbers(Sound):
    """An element of a row becomes NaN, which compares with nothing."""

    def write_back(self, event, group, cold, rows):
        super().write_back(event, group, cold, rows)
        if self.faulty and not self.spoiled:  # in the checked step only
            self.tables.rows.weights[cold[0], 0] = float("nan")
            self.spoiled += 1


class ForgetsState(Sound):
    """The optimizer state of one cold row is cleared."""

    def write_back(self, event, group, cold, rows):
        super().write_back(event, group, cold, rows)
        if self.faulty:
            self.tables.rows.state[cold[0]] = 0.0
            self.spoiled += 1


class ForgetsPopular(Sound):
    """The dense part learns from the second micro-batch alone."""

    def gather(self, group, cold, places, listed=None):
        if self.faulty:  # the popular part has run by then
            self.model.zero_grad()
            self.spoiled += 1
        super().gather(group, cold, places, listed)


class DropsHotUpdate(Sound):
    """One row in a slot does not learn."""

    def write_back(self, event, group, cold, rows):
        super().write_back(event, group, cold, rows)
        if self.faulty:
            slots = self.storage.resident_slots[:20]
            old = self.before_slots[slots]
            self.spoiled += int((self.storage.rows.weights[slots] != old).any())
            self.storage.rows.weights[slots] = old

    def split(self, *batch):
        self.before_slots = self.storage.rows.weights.clone()
        return super().split(*batch)


def run(setting, device, kind, optimizer, seed):
    here = setting(seed, cardinalities=(60, 400, 1500), optimizer=optimizer)
    trainer = kind(*here.parts(), device)
    check = StepCheck(trainer, here.reference())
    for number, samples in enumerate(here.batches(STEPS, count=256)):
        if number == 0:
            trainer.observe(samples)
        if number == 1:
            trainer.learn(80)
        check.step(samples)
        result = trainer.step(samples)
        assert number == 0 or 0 < result.popular < len(samples)
    return trainer, check


def cases(quick):
    """Parameters optimizer and seed; all cases but `quick` are slow."""
    return pytest.mark.parametrize("optimizer, seed", [
        pytest.param(*case, marks=[] if case == quick else pytest.mark.slow)
        for case in itertools.product(("sgd", "rowwise_adagrad"), (1, 2))])


@cases(("sgd", 1))
def test_sound_training_passes(setting, device, optimizer, seed):
    trainer, check = run(setting, device, Sound, optimizer, seed)
    assert check.held and check.max_difference < 0.5 and not trainer.spoiled


@pytest.mark.slow
@cases(("rowwise_adagrad", 2))
@pytest.mark.parametrize("kind", [DropsUpdates, DropsHotUpdate, Stale, Misclassifies,
                                  LosesNumbers, ForgetsPopular])
def test_fault_fails_the_check(setting, device, kind, optimizer, seed):
    trainer, check = run(setting, device, kind, optimizer, seed)
    assert trainer.spoiled, "the fault was not planted"
    assert not check.held, f"{kind.__name__} passed with {check.max_difference:g} of the limit"


@pytest.mark.slow
def test_lost_state_fails_the_check(setting, device):
    trainer, check = run(setting, device, ForgetsState, "rowwise_adagrad", seed=1)
    assert trainer.spoiled and not check.held


@pytest.mark.slow
def test_the_free_run_is_undisturbed(setting, device):
    """Checked or not, a trainer ends in the same place."""
    checked, _ = run(setting, device, Sound, "rowwise_adagrad", seed=3)
    checked.flush()
    here = setting(3, cardinalities=(60, 400, 1500), optimizer="rowwise_adagrad")
    trainer = here.hotline(emptied(device))
    for number, samples in enumerate(here.batches(STEPS, count=256)):
        if number == 0:
            trainer.observe(samples)
        if number == 1:
            trainer.learn(80)
        trainer.step(samples)
    trainer.flush()
    assert trainer.tables.sha256() == checked.tables.sha256()
    ran, stepped = trainer.collection.batches.count, checked.collection.batches.count
    assert ran == stepped, "numbers in messages"


class Rounds(Sound):
    """Some activations, exactly 0 in the reference, are a little more."""

    def step(self, samples):
        with torch.no_grad():
            self.model.top[0].bias += 1e-9 * (self.model.top[0].bias == 0)
        return super().step(samples)


def test_an_activation_within_rounding_of_zero_passes(setting, device):
    here = setting(5)
    trainer = Rounds(*here.parts(), device)
    check = StepCheck(trainer, here.reference())
    for side in (trainer, check.reference):
        with torch.no_grad():
            side.model.top[0].weight[0] = 0.0
            side.model.top[2].weight[:, 0] = 1.0  # so that what flows through it is much
    check.step(here.samples())
    assert check.held, check.max_difference


def test_excess_is_in_units_of_the_limit():
    reference = torch.tensor([0.0, 1.0, -100.0])
    limit = reference.abs() * RELATIVE + ABSOLUTE
    assert excess(reference, reference) == 0.0
    for at in range(3):
        value = reference.double()
        value[at] += 3 * limit[at].double()
        assert excess(value, reference) == pytest.approx(3.0, rel=1e-3)
        change = torch.zeros(3)
        change[at] = -limit[at] / OF_STEP  # doubles the limit of this value
        assert excess(value, reference, change) == pytest.approx(1.5, rel=1e-3)
    assert excess(torch.tensor([float("nan"), 1.0, -100.0]), reference) > 1
    assert excess(reference, reference, torch.tensor(float("nan"))) > 1
    assert excess(torch.empty(0), torch.empty(0)) == 0.0


def test_one_bit_of_one_prediction_fails_the_check_of_a_cache():
    logits = np.random.default_rng(0).normal(size=8).astype(np.float32)
    changed = logits.copy()
    changed.view(np.uint32)[5] ^= 1
    check, expected = BitCheck(None), StepResult(logits, 8, 8)
    for found, held in ((logits, True), (changed, False), (logits, False)):
        check.compare(StepResult(found.copy(), 8, 8), expected)
        assert check.held == held == (check.max_difference == 0)
