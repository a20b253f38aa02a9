"""Learning the hot rows again: values that move stay what they are, and coverage follows."""

import copy
import json

import hotrow
import numpy as np
import pytest
import torch
from hotrow.cli import main
from hotrow.torch.memory.tables import EmbeddingTables
from hotrow.torch.optim.arithmetic import SGD
from hotrow.torch.training.check import StepCheck
from hotrow.torch.training.dlrm import DLRM
from hotrow.torch.training.hotline import HotlineTrainer
from hotrow.torch.training.reference import ReferenceTrainer
from hotrow.torch.training.relearning import Exchange, Exchanged, Relearning
from hotrow.torch.training.resident import ResidentTrainer
from hotrow.traces import open_trace

from tests.torch.conftest import relearn

CLOSE = 0.97  # of the oracle's coverage


def oracle(trace, hot_rows, every, batches, batch_size, learning, decay=1):
    """Share of lookups that hit, counted exactly, with exactly the most counted rows hot.

    It learns and decays when the training does. The learning batches are left out, as there.
    """
    first = np.cumsum([0, *trace.cardinalities])[:-1]
    counts, hot = np.zeros(trace.rows, np.int64), np.zeros(trace.rows, bool)
    hits = lookups = 0
    for number, samples in enumerate(trace.batches(batch_size, batches)):
        if number == learning or Relearning(every).due(number - learning):
            counts >>= decay if number > learning else 0
            top = np.argsort(-counts, kind="stable")[:hot_rows]
            hot[:] = False
            hot[top[counts[top] > 0]] = True
        rows = (samples.ids + first).ravel()
        np.add.at(counts, rows, 1)
        if number >= learning:
            hits, lookups = hits + np.count_nonzero(hot[rows]), lookups + rows.size
    return hits / lookups


def test_an_exchange_keeps_its_orders():
    exchange = Exchange(np.array([3, 5, 8, 9]), np.array([9, 1, 3, 7]))
    assert exchange.leaving.tolist() == [5, 8]
    assert exchange.arriving.tolist() == [1, 7]
    assert exchange.rows.tolist() == [1, 3, 5, 7, 8, 9]
    nothing = Exchange(np.empty(0, np.int64), np.empty(0, np.int64))
    assert not len(nothing.leaving) and not len(nothing.arriving) and not len(nothing.rows)


@pytest.mark.parametrize("every, due", [(0, []), (1, [1, 2, 3, 4, 5, 6]), (3, [3, 6]), (7, [])])
def test_when_it_is_due(every, due):
    assert [batches for batches in range(7) if Relearning(every).due(batches)] == due


def test_what_it_asks_and_adds_up():
    asked = []

    class Trainer:
        def plan(self, decay):
            asked.append(("plan", decay))
            return Exchange(np.array([1, 2]), np.array([2, 3, 4]))

        def exchange(self, exchange):
            asked.append(("exchange", exchange.arriving.tolist()))
            return Exchanged(left=1, arrived=1, refused=1)

    class Check:
        def move(self, rows, action):
            asked.append(("move", rows.tolist()))
            return action()

    trainer, relearning = Trainer(), Relearning(10, decay=3)
    assert relearning.first(trainer, Check()).moved == 2 and trainer.counting
    assert asked == [("plan", 0), ("move", [1, 2, 3, 4]), ("exchange", [3, 4])]
    assert relearning.figures() == {"relearned": 0, "rows_replaced": 0}
    for _ in range(2):
        relearning.again(trainer, Check())
    assert asked[3:] == [("plan", 3), ("move", [1, 2, 3, 4]), ("exchange", [3, 4])] * 2
    assert relearning.figures() == {"relearned": 2, "rows_replaced": 2}
    Relearning(0).first(trainer, Check())
    assert not trainer.counting


@pytest.mark.parametrize("jagged", [False, True], ids=["dense", "jagged"])
@pytest.mark.parametrize("optimizer", ["sgd", "rowwise_adagrad"])
def test_it_trains_as_the_reference(setting, device, optimizer, jagged):
    here = setting(1, optimizer=optimizer, jagged=jagged)
    batches = here.batches(12, drift=3)
    trainer, check, relearning = relearn(here, device, batches, hot_rows=60)
    assert check.held and 0 < check.max_difference < 0.5
    assert relearning.times == 4 and relearning.rows_replaced > 40
    trainer.flush()
    expected = check.reference.tables.rows
    torch.testing.assert_close(trainer.tables.rows.weights, expected.weights, rtol=1e-4, atol=1e-5)
    still, *_ = relearn(here, device, batches, every=0, hot_rows=60)
    still.flush()
    torch.testing.assert_close(trainer.tables.rows.weights, still.tables.rows.weights, rtol=1e-4,
                               atol=1e-5)


@pytest.mark.parametrize("optimizer", ["sgd", "rowwise_adagrad"])
def test_final_tables_are_residents_to_the_bit(setting, device, optimizer):
    """A batch of one sample is one part, so where its rows were must not show at all."""
    here = setting(2, cardinalities=(20, 30, 90), optimizer=optimizer, jagged=True, shortest=1)
    resident = ResidentTrainer(*here.parts())
    batches = here.batches(60, count=1, drift=0.5)
    trainer, check, relearning = relearn(here, device, batches, every=3, hot_rows=25, learning=6)
    for samples in batches:
        resident.step(samples)
    assert relearning.times == 17 and relearning.rows_replaced > 50 and check.held
    assert trainer.tables.sha256() != resident.tables.sha256()  # hot rows are not back
    trainer.flush()
    assert trainer.tables.sha256() == resident.tables.sha256()


def test_rows_that_find_no_room_stay_cold(setting, device):
    """Every slot of the card is asked for; some rows find both their sets full."""
    slots = device.geometry.slots
    here = setting(3, cardinalities=(400, 900, 3000))
    refused = []

    class Told(HotlineTrainer):
        def exchange(self, exchange):
            done = super().exchange(exchange)
            refused.append(done.refused)
            assert len(self.storage.hot) <= slots
            assert len(np.unique(self.storage.hot_slots)) == len(self.storage.hot)
            return done

    batches = here.batches(10, count=300, drift=9)
    _, check, _ = relearn(here, device, batches, kind=Told, decay=0, hot_rows=slots)
    assert check.held and sum(refused[1:]) > 0


def test_the_card_and_the_trainer_agree_on_every_slot(setting, device):
    here = setting(4)
    batches = here.batches(9, drift=2)
    trainer, _, _ = relearn(here, device, batches, hot_rows=50)
    again = device.install(trainer.listed(trainer.storage.hot))
    assert again.hits == len(trainer.storage.hot) <= 50
    assert again.slots.tolist() == trainer.storage.hot_slots.tolist()


def test_without_drift_rows_stay(setting, device):
    here = setting(5)
    trainer, _, relearning = relearn(here, device, [here.samples()] * 8, every=2, hot_rows=40)
    assert relearning.times == 2 and relearning.rows_replaced == 0
    assert len(trainer.storage.hot) == 40


def test_the_check_is_not_counted(setting, device):
    """Checked or not, the same rows are hot, and the tables are the same."""
    class Unchecked(StepCheck):
        def step(self, samples):
            pass

        def move(self, rows, action):
            return action()

    ends = []
    for kind in (StepCheck, Unchecked):
        here = setting(6)
        trainer, *_ = relearn(here, device, here.batches(8, drift=4), hot_rows=60, checked_by=kind)
        trainer.flush()
        ends.append((trainer.storage.hot.tolist(), device.harvest(200).count.tolist(),
                     trainer.tables.sha256()))
    assert ends[0] == ends[1]


def measure(transport, preset, trace, hot_rows, every, batches, batch_size, learning):
    """Share of lookups that hit in a training: (check, share)."""
    tables = EmbeddingTables(trace.cardinalities, 4).initialise(0)
    model = DLRM(0, tables.count, 4, scale=0.02)
    reference = ReferenceTrainer(copy.deepcopy(model), tables.copy(), SGD(0.1))
    relearning, hits, lookups = Relearning(every), 0, 0
    with hotrow.open(transport, preset=preset) as device:
        trainer = HotlineTrainer(model, tables, SGD(0.1), device, hot_rows)
        check = StepCheck(trainer, reference)
        for number, samples in enumerate(trace.batches(batch_size, batches)):
            if number < learning:
                trainer.observe(samples)
            elif number == learning:
                relearning.first(trainer, check)
            elif relearning.due(number - learning):
                relearning.again(trainer, check)
            check.step(samples)
            result = trainer.step(samples)
            if number >= learning:
                hits, lookups = hits + result.hits, lookups + result.lookups
    return check, hits / lookups


def report(what, coverage, best):
    print(f"{what}: coverage {coverage:.4f}, oracle {best:.4f}, {coverage / best:.4f} of it")


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


def long(*values):
    return pytest.param(*values, marks=pytest.mark.long)


TINY = "tiny", "drift:1.05:2000:60", 4, {
    "hot_rows": 64, "every": 5, "batches": 80, "batch_size": 128, "learning": 6}
ECP5 = "ecp5-85f", "drift:1.05:100000:80", 26, {
    "hot_rows": 8192, "every": 8, "batches": 40, "batch_size": 1024, "learning": 8}


@pytest.mark.parametrize("transport, preset, spec, tables, run", [
    ("model", *TINY), slow("sim", *TINY), slow("model", *ECP5), long("sim", *ECP5)],
    ids=["model-tiny", "sim-tiny", "model-ecp5-85f", "sim-ecp5-85f"])
def test_coverage_follows_the_oracle(transport, preset, spec, tables, run):
    trace = open_trace(spec, tables=tables)
    best = oracle(trace, **run)
    check, coverage = measure(transport, preset, trace, **run)
    report(f"{transport}, {preset}, {spec}, every {run['every']} batches", coverage, best)
    assert check.held
    assert coverage >= CLOSE * best
    assert oracle(trace, **run | {"every": 0}) < 0.9 * best, "the drift is not worth following"


@pytest.mark.parametrize("transport", ["model", slow("sim")])
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
