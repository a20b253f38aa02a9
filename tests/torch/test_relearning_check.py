"""Faults planted where rows move between slots and tables: each must fail the check."""

import json

import pytest
import torch
from hotrow.cli import main
from hotrow.torch.training.hotline import HotlineTrainer

from tests.torch.conftest import relearn


class Faulty(HotlineTrainer):
    """Has a fault in its last exchange."""

    faulty, spoiled, exchanges = False, 0, 0

    def exchange(self, exchange):
        self.exchanges += 1
        self.faulty = self.exchanges == 3
        done = super().exchange(exchange)
        self.faulty = False
        return done


class LosesLeaving(Faulty):
    """The first row that leaves is not written back."""

    def bring_back(self, rows):
        if self.faulty:
            rows, self.spoiled = rows[1:], len(rows[:1])
        super().bring_back(rows)


class StaleArriving(Faulty):
    """The last row that arrives has the value that it had when training began."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.initial = self.tables.copy().rows

    def gather_hot(self, rows, slots):
        super().gather_hot(rows, slots)
        if self.faulty:
            moved = (self.initial.weights[rows] != self.tables.rows.weights[rows]).any(dim=1)
            at = torch.nonzero(moved)[-1]
            self.storage.rows.weights[slots[at]] = self.initial.weights[rows[at]]
            self.spoiled = len(at)


class StaleState(Faulty):
    """The first row that arrives comes without its optimizer state."""

    def gather_hot(self, rows, slots):
        super().gather_hot(rows, slots)
        if self.faulty:
            self.storage.rows.state[slots[0]] = 0.0
            self.spoiled = 1


class NeverFetches(Faulty):
    """Rows that arrive are not fetched."""

    def gather_hot(self, rows, slots):
        if self.faulty:
            self.spoiled = len(rows)
        else:
            super().gather_hot(rows, slots)


class OneSlotOff(Faulty):
    """Two arriving rows are in each other's slots."""

    def gather_hot(self, rows, slots):
        if self.faulty:
            slots = slots.clone()
            slots[:2] = slots[:2].flip(0)
            self.spoiled = 2
        super().gather_hot(rows, slots)


class KeepsOnCard(Faulty):
    """The card is not told that rows have left, and says that they hit."""

    def release(self, rows):
        if self.faulty:
            self.device.remove, remove = lambda rows: None, self.device.remove
            self.spoiled = len(rows)
        super().release(rows)
        if self.faulty:
            self.device.remove = remove


class Sound(Faulty):
    spoiled = 1


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("kind, optimizer", [
    (kind, optimizer) for kind in (LosesLeaving, StaleArriving, StaleState, NeverFetches,
                                   OneSlotOff, KeepsOnCard, Sound)
    for optimizer in ("sgd", "rowwise_adagrad") if (kind, optimizer) != (StaleState, "sgd")])
def test_fault_fails_the_check(setting, device, kind, optimizer, seed):
    here = setting(seed, cardinalities=(60, 400, 1500), optimizer=optimizer)
    batches = here.batches(8, count=256, drift=4)
    trainer, check, _ = relearn(here, device, batches, kind=kind)
    assert trainer.exchanges == 3 and trainer.spoiled, "the fault was not planted"
    assert check.held == (kind is Sound), f"{kind.__name__}: {check.max_difference:g} of the limit"


@pytest.mark.parametrize("part, every", [("bring_back", 3), ("gather_hot", 3), ("gather_hot", 0)])
def test_a_fault_is_the_exit_code_of_the_command(capsys, monkeypatch, part, every):
    monkeypatch.setattr(HotlineTrainer, part, lambda self, *arguments: None)
    code = main(["train", "--trace", "drift:1.05:300:20", "--transport", "model", "--batches", "8",
                 "--batch-size", "128", "--dim", "4", "--mlp-scale", "0.05", "--slots", "500",
                 "--relearn-every", str(every), "--json"])
    assert code == 1 and json.loads(capsys.readouterr().out)["check_held"] is False
