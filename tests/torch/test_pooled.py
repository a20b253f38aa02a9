"""Mode `hotline` with cold rows pooled and updated on the card."""

from dataclasses import replace

import hotrow
import pytest
from hotrow.torch.training.check import StepCheck
from hotrow.torch.training.pooled import PooledTrainer
from hotrow.torch.training.resident import ResidentTrainer
from hotrow_rtl.config import preset

from tests.torch.conftest import relearn
from tests.torch.test_hotline import KINDS


@pytest.mark.parametrize("optimizer, jagged", KINDS)
@pytest.mark.parametrize("transport", ["model", pytest.param("sim", marks=pytest.mark.slow)])
def test_a_step_is_the_reference_s_within_the_tolerance(setting, transport, optimizer, jagged):
    here = setting(1, optimizer=optimizer, jagged=jagged)
    with hotrow.open(transport, preset="tiny") as device:
        trainer = PooledTrainer(*here.parts(), device, hot_rows=60)
        check, popular, cold = StepCheck(trainer, here.reference()), 0, 0
        for number, samples in enumerate(here.batches(6)):
            if number == 0:
                trainer.observe(samples)
            if number == 1:
                trainer.learn()
            check.step(samples)
            result = trainer.step(samples)
            popular += result.popular
            cold += result.lookups - result.hits
            assert 0 < result.rows_moved <= 2 * (result.lookups - result.hits)
        assert popular and cold, "the test needs both parts"
        assert check.held and 0 < check.max_difference <= 1
        commands = device.statistics
        assert commands["POOL"].commands == commands["UPDATE"].commands == 12
        assert commands["GATHER"].commands == 1, "hot rows alone, once"


@pytest.mark.parametrize("optimizer", ["sgd", "rowwise_adagrad"])
def test_an_update_left_out_is_seen(setting, device, optimizer, monkeypatch):
    here = setting(2, optimizer=optimizer)
    trainer = PooledTrainer(*here.parts(), device, hot_rows=60)
    check = StepCheck(trainer, here.reference())
    first, second = here.batches(2)
    check.step(first)
    assert check.held
    monkeypatch.setattr(device, "update", lambda *_, **__: None)
    check.step(second)
    assert not check.held


def test_with_every_row_hot_nothing_is_left_to_the_card(setting, device):
    here = setting(3, cardinalities=(20, 30))
    trainer, resident = PooledTrainer(*here.parts(), device, 100), ResidentTrainer(*here.parts())
    batches = here.batches(3)
    for samples in batches:
        trainer.observe(samples)
    trainer.learn()
    for samples in batches:
        assert trainer.step(samples).rows_moved == 0
        resident.step(samples)
    trainer.flush()
    assert trainer.tables.sha256() == resident.tables.sha256()
    assert not {"POOL", "UPDATE"} & device.statistics.keys()


def test_hot_rows_learned_again(setting, device):
    here = setting(4, optimizer="rowwise_adagrad", jagged=True)
    _, check, relearning = relearn(here, device, here.batches(10, drift=8.0), kind=PooledTrainer)
    assert check.held and relearning.figures()["rows_replaced"] > 0


def test_batches_of_any_size(setting, device):
    here = setting(5, jagged=True)
    trainer = PooledTrainer(*here.parts(), device, hot_rows=60)
    check = StepCheck(trainer, here.reference())
    for count in (8, 64, 1, 128, 3):
        samples = here.samples(count)
        check.step(samples)
        trainer.step(samples)
    assert check.held


def test_a_card_without_arithmetic_is_refused(setting):
    here = setting(6)
    with hotrow.open("model", config=replace(preset("tiny"), arithmetic=False)) as device:
        with pytest.raises(hotrow.Error, match=r"no arithmetic.*--cold gathered"):
            PooledTrainer(*here.parts(), device, hot_rows=60)
