import numpy as np
import pytest
import torch
from hotrow.torch.optim.rules import RowwiseAdagrad
from hotrow.torch.training.trainer import flat_rows
from torch.nn.functional import binary_cross_entropy_with_logits


def gradients_of(setting, tables, model, samples):
    """Gradient of the loss by dense autograd: per row of the shared array, and per parameter."""
    weights = tables.rows.weights.clone().requires_grad_()
    columns = len(setting.cardinalities)
    bag = torch.repeat_interleave(torch.arange(len(samples) * columns),
                                  torch.from_numpy(samples.bag_lengths))
    pooled = torch.zeros(len(samples) * columns, setting.dim).index_add(
        0, bag, weights[flat_rows(tables, samples)])
    logits = model(torch.from_numpy(samples.dense), pooled.view(len(samples), columns, -1))
    loss = binary_cross_entropy_with_logits(logits, torch.from_numpy(samples.label))
    return torch.autograd.grad(loss, (weights, *model.parameters())), logits


@pytest.mark.parametrize("jagged", [False, True], ids=["one-hot", "jagged"])
@pytest.mark.parametrize("optimizer", ["sgd", "rowwise_adagrad"])
def test_step_follows_the_gradient(setting, optimizer, jagged):
    here = setting(1, optimizer=optimizer, jagged=jagged)
    trainer, samples = here.reference(), here.samples()
    before = trainer.tables.copy().rows
    dense = [parameter.detach().clone() for parameter in trainer.model.parameters()]
    (rows, *parameters), logits = gradients_of(here, trainer.tables, trainer.model, samples)

    result = trainer.step(samples)

    np.testing.assert_allclose(result.logits, logits.detach().numpy(), rtol=1e-4, atol=1e-6)
    lr, after = here.optimizer.lr, trainer.tables.rows
    for parameter, was, gradient in zip(
            trainer.model.parameters(), dense, parameters, strict=True):
        torch.testing.assert_close(parameter.detach(), was - lr * gradient)
    if isinstance(here.optimizer, RowwiseAdagrad):
        state = before.state + rows.square().mean(dim=1)
        torch.testing.assert_close(after.state, state)
        rows = rows / (state.sqrt() + here.optimizer.eps)[:, None]
    torch.testing.assert_close(after.weights, before.weights - lr * rows)
    touched = torch.unique(flat_rows(trainer.tables, samples))
    assert not torch.equal(after.weights[touched], before.weights[touched])


def test_tables_are_trained_in_place(setting):
    here = setting(2)
    trainer = here.reference()
    for number, bag in enumerate(trainer.bags):
        assert bag.weight.data_ptr() == trainer.tables.table(number)[0].data_ptr()


def test_capture_and_load_undo_a_step(setting):
    here = setting(3, optimizer="rowwise_adagrad")
    trainer, samples = here.reference(), here.samples()
    rows = torch.unique(flat_rows(trainer.tables, samples))
    digest, snapshot = trainer.tables.sha256(), trainer.capture(rows)
    first = trainer.step(samples).logits.copy()
    assert trainer.tables.sha256() != digest
    trainer.load(rows, snapshot)
    assert trainer.tables.sha256() == digest
    assert (trainer.step(samples).logits == first).all()


def test_digest_sees_every_row_and_state(setting):
    tables = setting(4, optimizer="rowwise_adagrad").tables
    digests = {tables.sha256()}
    for number, rows in enumerate(tables.cardinalities):
        weights, state = tables.table(number)
        weights[rows - 1, -1] += 1
        digests.add(tables.sha256())
        state[0] += 1
        digests.add(tables.sha256())
    assert len(digests) == 1 + 2 * tables.count


def test_tables_are_reproducible_and_aligned(setting):
    one, other, third = (setting(seed).tables for seed in (5, 5, 6))
    assert one.sha256() == other.sha256() != third.sha256()
    for number, rows in enumerate(one.cardinalities):
        weights, _ = one.table(number)
        assert weights.data_ptr() % 64 == 0
        assert 0.5 * rows**-0.5 < weights.abs().max() <= rows**-0.5
