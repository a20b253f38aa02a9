"""Learning the hot rows again: rows keep their values when they move, and coverage follows."""

import copy
import json

import hotrow
import numpy as np
import pytest
import torch
from hotrow.command.cli import main
from hotrow.torch.memory.tables import EmbeddingTables
from hotrow.torch.optim.rules import SGD
from hotrow.torch.training.check import StepCheck
from hotrow.torch.training.collection_trainer import CollectionTrainer
from hotrow.torch.training.dlrm import DLRM
from hotrow.torch.training.learning import LearningSchedule
from hotrow.torch.training.reference import ReferenceTrainer
from hotrow.torch.training.trainer import flat_rows
from hotrow.traces import Samples, open_trace

from tests.torch.conftest import relearn

CLOSE = 0.97  # of the oracle's coverage


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


def long(*values):
    return pytest.param(*values, marks=pytest.mark.long)


def oracle(trace, hot_rows, every, batches, batch_size, learning, decay=1):
    """Share of lookups that hit, counted exactly, with exactly the most counted rows hot.

    It learns and decays when the training does. The learning batches are left out, as there.
    """
    first = np.cumsum([0, *trace.cardinalities])[:-1]
    counts, hot = np.zeros(trace.rows, np.int64), np.zeros(trace.rows, bool)
    hits = lookups = 0
    schedule = LearningSchedule(learning, hot_rows, every)
    for number, samples in enumerate(trace.batches(batch_size, batches)):
        if number == learning or schedule.due(number):
            counts >>= decay if number > learning else 0
            top = np.argsort(-counts, kind="stable")[:hot_rows]
            hot[:] = False
            hot[top[counts[top] > 0]] = True
        rows = (samples.ids + first).ravel()
        np.add.at(counts, rows, 1)
        if number >= learning:
            hits, lookups = hits + np.count_nonzero(hot[rows]), lookups + rows.size
    return hits / lookups


@pytest.mark.parametrize("every, due", [(0, []), (1, [1, 2, 3, 4, 5, 6]), (3, [3, 6]), (7, [])])
def test_when_it_is_due(every, due):
    schedule = LearningSchedule(5, 10, every)
    assert [batches for batches in range(-5, 7) if schedule.due(5 + batches)] == due


def test_what_it_asks_and_adds_up():
    asked = []

    class Trainer:
        counting = None

        def observe(self, samples):
            asked.append(("observe", samples))

        def learn(self, limit, decay=0):
            asked.append(("learn", limit, decay))
            return 3

    class Check:
        def move(self, action):
            asked.append("move")
            return action()

    trainer, schedule = Trainer(), LearningSchedule(2, 40, 10, decay=3)
    for number in (0, 1, 2):
        schedule.before(number, f"batch {number}", trainer, Check())
        assert trainer.counting == (number == 2)
    assert asked == [("observe", "batch 0"), ("observe", "batch 1"), "move", ("learn", 40, 0)]
    assert (schedule.times, schedule.replaced) == (0, 0)
    for number in range(3, 23):
        schedule.before(number, None, trainer, Check())
    assert asked[4:] == ["move", ("learn", 40, 3)] * 2
    assert (schedule.times, schedule.replaced) == (2, 6)
    LearningSchedule(2, 40).before(2, None, trainer, Check())
    assert trainer.counting is False


def test_rows_that_stay_keep_their_slots(setting, device):
    """Only the difference moves, and rows that were not trained are not written back."""
    here = setting(2)
    trainer = here.hotline(device)
    collection = trainer.collection
    assert collection.learn({"table 2": range(40)}) == 40
    slot_of = dict(zip(trainer.storage.resident.tolist(), trainer.storage.resident_slots.tolist(),
                       strict=True))
    moved = collection.statistics["rows_moved"]
    trainer.storage.dirty[trainer.storage.find(flat_rows(here.tables, samples(3, 30)))[1]] = True
    assert collection.learn({"table 2": [*range(20, 39), 70, 71]}) == 21
    rows = trainer.storage.resident
    assert rows.tolist() == (here.tables.first[2] + torch.tensor([*range(20, 39), 70, 71])).tolist()
    kept = dict(zip(rows.tolist(), trainer.storage.resident_slots.tolist(), strict=True))
    assert all(slot_of[row] == kept[row] for row in rows.tolist()[:19])
    assert collection.statistics["rows_moved"] == moved + 2 + 1  # two arrived, row 3 was trained


def samples(*ids):
    """One sample for each id of the last of three tables."""
    return Samples(np.array([[0, 0, each] for each in ids], np.uint32), None,
                   np.zeros((len(ids), 3), np.float32), np.zeros(len(ids), np.float32))


@pytest.mark.slow
@pytest.mark.parametrize("optimizer, jagged", [
    slow("sgd", False), slow("sgd", True), slow("rowwise_adagrad", False),
    ("rowwise_adagrad", True)])
def test_it_trains_as_the_reference(setting, device, optimizer, jagged):
    here = setting(1, optimizer=optimizer, jagged=jagged)
    batches = here.batches(12, drift=3)
    trainer, check, schedule = relearn(here, device, batches, hot_rows=60)
    assert check.held and 0 < check.max_difference < 0.5
    assert schedule.times == 4 and schedule.replaced > 40
    trainer.flush()
    expected = check.reference.tables.rows
    torch.testing.assert_close(trainer.tables.rows.weights, expected.weights, rtol=1e-4, atol=1e-5)
    still, *_ = relearn(here, device, batches, every=0, hot_rows=60)
    still.flush()
    torch.testing.assert_close(trainer.tables.rows.weights, still.tables.rows.weights, rtol=1e-4,
                               atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", [slow("sgd"), "rowwise_adagrad"])
def test_final_tables_are_residents_to_the_bit(setting, device, optimizer):
    """A batch of one sample is one part, so the place of its rows changes no bit."""
    here = setting(2, cardinalities=(20, 30, 90), optimizer=optimizer, jagged=True, shortest=1)
    resident = here.resident()
    batches = here.batches(30, count=1, drift=1)
    trainer, check, schedule = relearn(here, device, batches, every=3, hot_rows=25, learning=6)
    for samples in batches:
        resident.step(samples)
    assert schedule.times == 7 and schedule.replaced > 20 and check.held
    assert trainer.tables.sha256() != resident.tables.sha256()  # hot rows are in slots
    trainer.flush()
    assert trainer.tables.sha256() == resident.tables.sha256()


@pytest.mark.slow
def test_rows_that_find_no_room_stay_cold(setting, device):
    """Every slot of the card is wanted; some rows find both their sets full."""
    slots = device.geometry.slots
    here = setting(3, cardinalities=(400, 900, 3000))
    refused = []

    def count_refused(trainer):
        store, storage = trainer.collection.store, trainer.storage
        warm = store.filling.warm

        def counted(rows):
            held = warm(rows)
            refused.append(len(rows) - held)
            assert len(storage.resident) == held <= slots
            assert len(np.unique(storage.resident_slots)) == held
            return held

        store.filling.warm = counted

    batches = here.batches(10, count=300, drift=9)
    _, check, _ = relearn(here, device, batches, prepare=count_refused, decay=0, hot_rows=slots)
    assert check.held and sum(refused[1:]) > 0


@pytest.mark.slow
def test_the_card_and_the_trainer_agree_on_every_slot(setting, device):
    here = setting(4)
    batches = here.batches(9, drift=2)
    trainer, _, _ = relearn(here, device, batches, hot_rows=50)
    again = device.install(trainer.collection.store.slot_map.listed(0, trainer.storage.resident))
    assert again.hits == len(trainer.storage.resident) <= 50
    assert again.slots.tolist() == trainer.storage.resident_slots.tolist()


@pytest.mark.slow
def test_without_drift_rows_stay(setting, device):
    here = setting(5)
    trainer, _, schedule = relearn(here, device, [here.samples()] * 8, every=2, hot_rows=40)
    assert schedule.times == 2 and schedule.replaced == 0
    assert len(trainer.storage.resident) == 40


@pytest.mark.slow
def test_the_check_is_not_counted(setting, device):
    """Checked or not, the same rows are hot, and the tables are the same."""
    class Unchecked(StepCheck):
        def step(self, samples):
            pass

        def move(self, action):
            return action()

    ends = []
    for kind in (StepCheck, Unchecked):
        here = setting(6)
        trainer, *_ = relearn(here, device, here.batches(8, drift=4), hot_rows=60, checked_by=kind)
        trainer.flush()
        ends.append((trainer.storage.resident.tolist(), device.harvest(200).count.tolist(),
                     trainer.tables.sha256()))
    assert ends[0] == ends[1]


def measure(transport, preset, trace, hot_rows, every, batches, batch_size, learning):
    """Share of lookups that hit in a training: (check, share)."""
    tables = EmbeddingTables(trace.cardinalities, 4).initialise(0)
    model = DLRM(0, tables.count, 4, scale=0.02)
    reference = ReferenceTrainer(copy.deepcopy(model), tables.copy(), SGD(0.1))
    schedule, hits, lookups = LearningSchedule(learning, hot_rows, every), 0, 0
    with hotrow.open(transport, preset=preset) as device:
        trainer = CollectionTrainer(model, tables, SGD(0.1), device, "hotline")
        check = StepCheck(trainer, reference)
        for number, samples in enumerate(trace.batches(batch_size, batches)):
            schedule.before(number, samples, trainer, check)
            check.step(samples)
            result = trainer.step(samples)
            if number >= learning:
                hits, lookups = hits + result.hits, lookups + result.lookups
    return check, hits / lookups


def report(what, coverage, best):
    print(f"{what}: coverage {coverage:.4f}, oracle {best:.4f}, {coverage / best:.4f} of it")


TINY = "tiny", "drift:1.05:2000:60", 4, {
    "hot_rows": 64, "every": 5, "batches": 80, "batch_size": 128, "learning": 6}
ECP5 = "ecp5", "drift:1.05:100000:80", 26, {
    "hot_rows": 4096, "every": 8, "batches": 40, "batch_size": 1024, "learning": 8}


@pytest.mark.parametrize("transport, preset, spec, tables, run", [
    slow("cpu", *TINY), long("model", *TINY), long("sim", *TINY), long("model", *ECP5),
    pytest.param("sim", *ECP5, marks=[pytest.mark.long, pytest.mark.nightly])],
    ids=["cpu-tiny", "model-tiny", "sim-tiny", "model-ecp5", "sim-ecp5"])
def test_coverage_follows_the_oracle(transport, preset, spec, tables, run):
    trace = open_trace(spec, tables=tables)
    best = oracle(trace, **run)
    check, coverage = measure(transport, preset, trace, **run)
    report(f"{transport}, {preset}, {spec}, every {run['every']} batches", coverage, best)
    assert check.held
    assert coverage >= CLOSE * best
    assert oracle(trace, **run | {"every": 0}) < 0.9 * best, "the drift is not worth following"


@pytest.mark.parametrize("transport", [slow("cpu"), long("model"), long("sim")])
def test_hit_rate_of_the_command(capsys, transport):
    spec, slots, every, size, batches = "drift:1.05:5000:40", 600, 5, 64, 40
    code = main(["train", "--trace", spec, "--transport", transport, "--batches", str(batches),
                 "--batch-size", str(size), "--dim", "4", "--mlp-scale", "0.05", "--slots",
                 str(slots), "--relearn-every", str(every), "--json"])
    result = json.loads(capsys.readouterr().out)
    learning = result["learning_batches"]
    best = oracle(open_trace(spec), slots, every, batches, size, learning)
    report(f"hotrow train, {transport}", result["hit_rate"], best)
    assert code == 0 and result["check_held"] and result["max_row_difference"] <= 1
    assert result["relearned"] == (batches - learning - 1) // every
    assert result["rows_replaced"] > result["relearned"] * slots / 40
    assert result["hit_rate"] >= CLOSE * best


def test_resident_has_nothing_to_learn_again(capsys):
    code = main(["train", "--trace", "uniform:10", "--mode", "resident", "--relearn-every", "3"])
    assert code == 2
    assert "mode resident has no hot rows to learn again" in capsys.readouterr().err
