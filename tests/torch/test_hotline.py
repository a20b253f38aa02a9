import re

import hotrow
import numpy as np
import pytest
import torch
from hotrow.torch.memory import slots
from hotrow.torch.memory.rows import RowKind
from hotrow.torch.training.check import StepCheck
from hotrow.torch.training.hotline import HotlineTrainer
from hotrow.torch.training.resident import ResidentTrainer
from torch import nn

KINDS = [(optimizer, jagged) for optimizer in ("sgd", "rowwise_adagrad")
         for jagged in (False, True)]


@pytest.mark.parametrize("optimizer, jagged", KINDS)
def test_both_parts_train_as_the_reference(setting, device, optimizer, jagged):
    here = setting(1, optimizer=optimizer, jagged=jagged)
    reference = here.reference()
    trainer = HotlineTrainer(*here.parts(), device, hot_rows=60)
    check, popular = StepCheck(trainer, reference), 0
    for number, samples in enumerate(here.batches(6)):
        if number == 0:
            trainer.observe(samples)
        if number == 1:
            assert 30 < trainer.learn() <= 60
        check.step(samples)
        result = trainer.step(samples)
        popular += result.popular
        assert 0 <= result.hits < result.lookups == samples.ids.size
        assert result.popular < len(samples)
    assert popular, "no sample was popular: the test needs both parts"
    assert check.held and 0 < check.max_difference < 0.5
    trainer.flush()
    np.testing.assert_allclose(trainer.tables.rows.weights[:40], reference.tables.rows.weights[:40],
                               rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("optimizer, jagged", KINDS)
@pytest.mark.parametrize("hot", [False, True], ids=["all-cold", "all-hot"])
def test_one_part_is_resident_to_the_bit(setting, device, optimizer, jagged, hot):
    """With one part there is nothing to split, so where rows are kept must not show at all."""
    # A sample of empty bags alone misses nothing: with every row cold it would be a second part.
    here = setting(2, cardinalities=(20, 30), optimizer=optimizer, jagged=jagged,
                   shortest=0 if hot else 1)
    trainer = HotlineTrainer(*here.parts(), device, hot_rows=100)
    resident = ResidentTrainer(*here.parts())
    batches = here.batches(4)
    if hot:
        for samples in batches:
            trainer.observe(samples)
        trainer.learn()
    for samples in batches:
        result, expected = trainer.step(samples), resident.step(samples)
        assert result.popular == (len(samples) if hot else 0)
        assert result.hits == (result.lookups if hot else 0)
        assert (result.logits == expected.logits).all()
    assert hot == (trainer.tables.sha256() != resident.tables.sha256())  # hot rows are not back
    trainer.flush()
    assert trainer.tables.sha256() == resident.tables.sha256()


def test_flush_brings_every_hot_row(setting, device):
    here = setting(3, optimizer="rowwise_adagrad")
    trainer = HotlineTrainer(*here.parts(), device, hot_rows=60)
    trainer.observe(here.samples())
    trainer.learn()
    for samples in here.batches(3):
        trainer.step(samples)
    rows = torch.arange(len(trainer.tables.rows.weights))
    weights, state = trainer.read_rows(rows)
    assert not torch.equal(weights, trainer.tables.rows.weights)
    trainer.flush()
    assert torch.equal(weights, trainer.tables.rows.weights)
    assert torch.equal(state, trainer.tables.rows.state)


def test_rows_are_read_and_written_where_they_are(setting, device):
    here = setting(4, optimizer="rowwise_adagrad")
    trainer = HotlineTrainer(*here.parts(), device, hot_rows=30)
    trainer.observe(here.samples())
    held = trainer.learn()
    rows = torch.randperm(430)[:200]
    hot = torch.isin(rows, trainer.storage.hot)
    assert 0 < hot.sum() <= held
    before = trainer.tables.copy().rows
    weights, state = torch.randn(200, here.dim), torch.rand(200)
    trainer.write_rows(rows, weights, state)
    got_weights, got_state = trainer.read_rows(rows)
    assert torch.equal(got_weights, weights) and torch.equal(got_state, state)
    assert torch.equal(trainer.tables.rows.weights[rows[hot]], before.weights[rows[hot]])
    assert torch.equal(trainer.tables.rows.weights[rows[~hot]], weights[~hot])


def test_more_misses_than_the_card_keeps_unique(setting, device):
    """Beyond `miss_entries` the card repeats a missing row; a trained row must have one place."""
    here = setting(5, cardinalities=(400, 400))
    trainer = HotlineTrainer(*here.parts(), device, hot_rows=10)
    check, samples = StepCheck(trainer, here.reference()), here.samples(512)
    assert len(torch.unique(here.tables.flat_rows(samples))) > device.geometry.miss_entries
    check.step(samples)
    assert check.held


def test_cold_area_grows(setting, device, monkeypatch):
    monkeypatch.setattr("hotrow.torch.training.hotline._FIRST_COLD_ROWS", 8)
    here = setting(6, optimizer="rowwise_adagrad")
    trainer = HotlineTrainer(*here.parts(), device, hot_rows=40)
    check = StepCheck(trainer, here.reference())
    trainer.observe(here.samples(16))
    trainer.learn()
    for count in (2, 16, 64):
        check.step(here.samples(count))
    assert trainer.storage.area_rows > 8
    assert check.held


def test_a_storage_with_more_room_keeps_the_slots():
    storage = slots.SlotStorage(8, 2, RowKind(4, "row"), 100)
    weights, state = torch.randn(8, 4), torch.rand(8)
    storage.rows.write(slice(8), weights, state)
    storage.place(torch.tensor([50, 7]), torch.tensor([3, 5]))
    storage.grow(20)
    assert storage.area_rows == 20
    assert torch.equal(storage.rows.weights[:8], weights)
    assert torch.equal(storage.rows.state[:8], state)
    where, found = storage.find(torch.tensor([50, 8, 7, 51]))
    assert where.tolist() == [0, 2] and found.tolist() == [3, 5]


def test_order_of_a_step(setting, device):
    """The gather is under way while the popular part trains, and follows the last write-back."""
    here = setting(7)
    happened = []

    class Told(HotlineTrainer):
        def split(self, batch):
            happened.append("split")
            return super().split(batch)

        def gather_cold(self, cold):
            happened.append("gather")
            wait = super().gather_cold(cold)

            def arrived():
                happened.append("arrived")
                return wait()
            return arrived

        def write_back(self, cold):
            happened.append("write back")
            super().write_back(cold)

    trainer = Told(*here.parts(), device, hot_rows=60)
    trainer.observe(here.samples())
    trainer.learn()
    trainer.model.register_forward_hook(lambda *_: happened.append("forward"))
    samples = here.samples()
    result = trainer.step(samples)
    assert 0 < result.popular < len(samples)
    assert happened == ["split", "gather", "forward", "arrived", "forward", "write back"]


def test_learned_rows_are_the_most_accessed(setting, device):
    here = setting(8)
    trainer = HotlineTrainer(*here.parts(), device, hot_rows=10)
    samples = here.samples(200)
    trainer.observe(samples)
    trainer.learn()
    rows, counts = np.unique(trainer.tables.flat_rows(samples).numpy(), return_counts=True)
    tenth = np.sort(counts)[-10]
    assert set(rows[counts > tenth]) <= set(trainer.storage.hot.tolist()) <= set(
        rows[counts >= tenth])


@pytest.mark.parametrize("layer", [nn.BatchNorm1d, nn.SyncBatchNorm])
def test_batch_coupled_layers_are_refused_by_name(setting, device, layer):
    model, tables, optimizer = setting(9).parts()
    model.top.insert(1, layer(26))
    with pytest.raises(hotrow.Error, match=rf"layer 'top\.1' \({layer.__name__}\)"):
        HotlineTrainer(model, tables, optimizer, device, hot_rows=10)


def test_more_hot_rows_than_the_directory_are_refused(setting, device):
    most = device.geometry.slots
    with pytest.raises(hotrow.Error, match=re.escape(f"{most + 1:,} hot rows do not fit")):
        HotlineTrainer(*setting(10).parts(), device, hot_rows=most + 1)
    assert device.tables == ()


def test_gradients_of_the_parts_add_up(setting, device):
    """The loss is a mean over the batch, so a part counts by its share of the samples."""
    here = setting(11)
    trainer = HotlineTrainer(*here.parts(), device, hot_rows=60)
    trainer.observe(here.samples())
    trainer.learn()
    samples, resident = here.samples(), ResidentTrainer(*here.parts())
    for each in (trainer, resident):
        each.step(samples)
    for one, other in zip(trainer.model.parameters(), resident.model.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-7)
