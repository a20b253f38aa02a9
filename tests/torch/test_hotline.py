"""Mode `hotline`: rows with and without a slot train as in plain PyTorch."""

import re

import hotrow
import numpy as np
import pytest
import torch
from hotrow.torch.training.check import StepCheck
from hotrow.torch.training.collection_trainer import CollectionTrainer
from hotrow.torch.training.trainer import flat_rows
from torch import nn

KINDS = [(optimizer, jagged) for optimizer in ("sgd", "rowwise_adagrad")
         for jagged in (False, True)]


@pytest.mark.slow
@pytest.mark.parametrize("optimizer, jagged", KINDS)
def test_both_parts_train_as_the_reference(setting, device, optimizer, jagged):
    here = setting(1, optimizer=optimizer, jagged=jagged)
    reference = here.reference()
    trainer = here.hotline(device)
    check, popular = StepCheck(trainer, reference), 0
    for number, samples in enumerate(here.batches(6)):
        if number == 0:
            trainer.observe(samples)
        if number == 1:
            assert 30 < trainer.learn(60) <= 60
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
    """With one part there is nothing to split, so the place of a row changes no bit."""
    # A sample of empty bags alone misses nothing: with every row cold it would be a second part.
    here = setting(2, cardinalities=(20, 30), optimizer=optimizer, jagged=jagged,
                   shortest=0 if hot else 1)
    trainer, resident, batches = here.hotline(device), here.resident(), here.batches(4)
    if hot:
        for samples in batches:
            trainer.observe(samples)
        trainer.learn(100)
    for samples in batches:
        result, expected = trainer.step(samples), resident.step(samples)
        assert result.popular == (len(samples) if hot else 0)
        assert result.hits == (result.lookups if hot else 0)
        assert (result.logits == expected.logits).all()
    assert hot == (trainer.tables.sha256() != resident.tables.sha256())  # hot rows are in slots
    trainer.flush()
    assert trainer.tables.sha256() == resident.tables.sha256()


def test_flush_writes_every_hot_row_back(setting, device):
    here = setting(3, optimizer="rowwise_adagrad")
    trainer = here.hotline(device)
    trainer.observe(here.samples())
    trainer.learn(60)
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
    trainer = here.hotline(device)
    trainer.observe(here.samples())
    held = trainer.learn(30)
    rows = torch.randperm(430)[:200]
    hot = torch.isin(rows, trainer.storage.resident)
    assert 0 < hot.sum() <= held
    before = trainer.tables.copy().rows
    weights, state = torch.randn(200, here.dim), torch.rand(200)
    trainer.write_rows(rows, weights, state)
    got_weights, got_state = trainer.read_rows(rows)
    assert torch.equal(got_weights, weights) and torch.equal(got_state, state)
    assert torch.equal(trainer.tables.rows.weights[rows[hot]], before.weights[rows[hot]])
    assert torch.equal(trainer.tables.rows.weights[rows[~hot]], weights[~hot])
    trainer.flush()
    assert torch.equal(trainer.tables.rows.weights[rows], weights)


def test_more_misses_than_the_card_keeps_unique(setting, device):
    """Beyond `miss_entries` the card repeats a missing row; a trained row must have one place."""
    here = setting(5, cardinalities=(400, 400))
    trainer = here.hotline(device)
    check, samples = StepCheck(trainer, here.reference()), here.samples(512)
    assert len(torch.unique(flat_rows(here.tables, samples))) > device.geometry.miss_entries
    check.step(samples)
    assert check.held


def test_the_bypass_area_grows(setting, device, monkeypatch):
    monkeypatch.setattr("hotrow.torch.store.slot_map._FIRST_AREA", 8)
    here = setting(6, optimizer="rowwise_adagrad")
    trainer = here.hotline(device)
    check = StepCheck(trainer, here.reference())
    trainer.observe(here.samples(16))
    trainer.learn(40)
    for count in (2, 16, 64):
        check.step(here.samples(count))
    assert trainer.storage.area_rows > 8
    assert check.held


def test_order_of_a_step(setting, device):
    """The other samples' rows are fetched after the last write-back, and train after them."""
    here = setting(7)
    trainer, happened = here.hotline(device), []
    trainer.observe(here.samples())
    trainer.learn(60)

    def spy(owner, name, event):
        call = getattr(owner, name)

        def called(*arguments, **options):
            happened.append(event)
            return call(*arguments, **options)
        setattr(owner, name, called)

    store = trainer.collection.store
    spy(store.policy, "place", "split")
    spy(store.moves, "gather", "gather")
    spy(store.host, "write_after", "write back")
    trainer.model.register_forward_hook(lambda *_: happened.append("forward"))
    for samples in here.batches(2):
        assert 0 < trainer.step(samples).popular < len(samples)
    assert happened == ["split", "forward", "gather", "forward", "write back"] * 2


def test_learned_rows_are_the_most_accessed(setting, device):
    here = setting(8)
    trainer, samples = here.hotline(device), here.samples(200)
    trainer.observe(samples)
    trainer.learn(10)
    rows, counts = np.unique(flat_rows(trainer.tables, samples).numpy(), return_counts=True)
    tenth = np.sort(counts)[-10]
    assert set(rows[counts > tenth]) <= set(trainer.storage.resident.tolist()) <= set(
        rows[counts >= tenth])


@pytest.mark.parametrize("layer", [nn.BatchNorm1d, nn.SyncBatchNorm])
def test_batch_coupled_layers_are_refused_by_name(setting, device, layer):
    model, tables, optimizer = setting(9).parts()
    model.top.insert(1, layer(26))
    with pytest.raises(hotrow.Error, match=rf"layer 'top\.1' \({layer.__name__}\)"):
        CollectionTrainer(model, tables, optimizer, device, "hotline")
    assert device.tables == ()


def test_more_hot_rows_than_the_directory_are_refused(setting, device):
    most = device.geometry.slots
    with pytest.raises(hotrow.Error, match=re.escape(f"{most + 1:,} hot rows do not fit")):
        setting(10).hotline(device).learn(most + 1)


def test_gradients_of_the_parts_add_up(setting, device):
    """The loss is a mean over the batch, so a part counts by its share of the samples."""
    here = setting(11)
    trainer = here.hotline(device)
    trainer.observe(here.samples())
    trainer.learn(60)
    samples, resident = here.samples(), here.resident()
    for each in (trainer, resident):
        each.step(samples)
    for one, other in zip(trainer.model.parameters(), resident.model.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-7)
