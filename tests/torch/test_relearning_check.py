"""Faults planted where rows move between slots and tables: each must fail the check."""

import json

import pytest
import torch
from hotrow.command.cli import main
from hotrow.torch.store.slot_moves import SlotMoves
from hotrow.torch.store.write_back import WriteBack

from tests.torch.conftest import relearn


class Fault:
    """Spoils the third time that rows get slots.

    Parameters
    ----------
    trainer : CollectionTrainer
    """

    def __init__(self, trainer):
        self.trainer, self.store, self.storage = (
            trainer, trainer.collection.store, trainer.storage)
        self.faulty, self.spoiled, self.exchanges = False, 0, 0
        warm = self.store.filling.warm

        def counted(rows):
            self.exchanges += 1
            self.faulty = self.exchanges == 3
            try:
                return warm(rows)
            finally:
                self.faulty = False

        self.store.filling.warm = counted
        self.plant()

    def plant(self):
        """Replace calls of the store."""

    def fetches(self, change):
        """Have rows that arrive changed: `change` of flat rows and Rows."""
        gather = self.store.moves.gather

        def spoilt(group, flat, places, listed=None):
            gather(group, flat, places, listed)
            if self.faulty:
                at = places.long()
                rows = self.storage.rows.take(self.storage.kind, at)
                change(flat, rows)
                self.storage.rows.put(at, rows)

        self.store.moves.gather = spoilt


class LosesLeaving(Fault):
    """The first row that leaves is not written back."""

    def plant(self):
        write = self.store.host.write

        def lossy(group, flat, rows):
            kept = slice(int(self.faulty), None)
            self.spoiled += self.faulty and len(flat) > 0
            write(group, flat[kept], rows.take(self.storage.kind, kept))

        self.store.host.write = lossy


class StaleArriving(Fault):
    """The last row that arrives has the value that it had when training began."""

    def plant(self):
        initial = self.trainer.tables.copy().rows

        def change(flat, rows):
            moved = (initial.weights[flat] != rows.weights).any(dim=1)
            at = torch.nonzero(moved)[-1]
            rows.weights[at] = initial.weights[flat[at]]
            self.spoiled += len(at)

        self.fetches(change)


class StaleState(Fault):
    """The first row that arrives comes without its optimizer state."""

    def plant(self):
        def change(flat, rows):
            rows.state[0] = 0.0
            self.spoiled += 1

        self.fetches(change)


class NeverFetches(Fault):
    """Rows that arrive are not fetched: their slots hold zeros."""

    def plant(self):
        def change(flat, rows):
            rows.weights.zero_()
            self.spoiled += len(flat)

        self.fetches(change)


class OneSlotOff(Fault):
    """Two arriving rows are in each other's slots."""

    def plant(self):
        def change(flat, rows):
            weights, state = rows.read(torch.tensor([1, 0]))
            rows.write(torch.tensor([0, 1]), weights, state)
            self.spoiled += 2

        self.fetches(change)


class KeepsOnCard(Fault):
    """The card does not remove rows that have left, and counts them as hits."""

    def plant(self):
        filling = self.store.filling
        remove = filling._device.remove

        def removed(rows):
            if self.faulty:
                self.spoiled += len(rows)
            else:
                remove(rows)

        filling._device = _With(filling._device, remove=removed)


class _With:
    """An object with some attributes replaced."""

    def __init__(self, other, **replaced):
        self.__dict__.update(replaced)
        self._other = other

    def __getattr__(self, name):
        return getattr(self._other, name)


class Sound(Fault):
    def plant(self):
        self.spoiled = 1


@pytest.mark.slow
@pytest.mark.parametrize("kind, optimizer, seed", [
    pytest.param(kind, optimizer, seed,
                 marks=[] if (optimizer, seed) == ("rowwise_adagrad", 1) else pytest.mark.slow)
    for kind in (LosesLeaving, StaleArriving, StaleState, NeverFetches, OneSlotOff, KeepsOnCard,
                 Sound)
    for optimizer in ("sgd", "rowwise_adagrad") if (kind, optimizer) != (StaleState, "sgd")
    for seed in (1, 2)])
def test_fault_fails_the_check(setting, device, kind, optimizer, seed):
    here = setting(seed, cardinalities=(60, 400, 1500), optimizer=optimizer)
    batches, planted = here.batches(8, count=256, drift=4), []
    _, check, _ = relearn(here, device, batches,
                          prepare=lambda trainer: planted.append(kind(trainer)))
    fault, = planted
    assert fault.exchanges == 3 and fault.spoiled, "the fault was not planted"
    assert check.held == (kind is Sound), f"{kind.__name__}: {check.max_difference:g} of the limit"


def never_written_back(monkeypatch):
    monkeypatch.setattr(WriteBack, "write_slots", lambda self, *_: None)


def never_fetched(monkeypatch):
    def gather(self, group, flat, places, *_):
        self._slot_map.storages[group].rows.array[places.long()] = 0

    monkeypatch.setattr(SlotMoves, "gather", gather)


@pytest.mark.slow
@pytest.mark.parametrize("fault, every", [
    (never_written_back, 3), pytest.param(never_fetched, 3, marks=pytest.mark.slow),
    pytest.param(never_fetched, 0, marks=pytest.mark.slow)])
def test_a_fault_is_the_exit_code_of_the_command(capsys, monkeypatch, fault, every):
    fault(monkeypatch)
    code = main(["train", "--trace", "drift:1.05:300:20", "--transport", "model", "--batches", "8",
                 "--batch-size", "128", "--dim", "4", "--mlp-scale", "0.05", "--slots", "500",
                 "--relearn-every", str(every), "--json"])
    assert code == 1 and json.loads(capsys.readouterr().out)["check_held"] is False
