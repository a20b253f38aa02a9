"""Programs that the tests of whole boards run over any link."""

import numpy as np
import pytest

from tests.driver.conftest import counts, picked, random_ids, register_tables, usable


def counts_of(hot):
    """Counts of a harvest, by (table, row)."""
    columns = hot.table.tolist(), hot.row.tolist(), hot.count.tolist()
    return {(table, row): count for table, row, count in zip(*columns, strict=True)}


def run_program(device):
    """Count, harvest, gather and scatter, each result checked."""
    tables = register_tables(device)
    ids = random_ids(60, seed=3)
    device.observe(ids)
    hot = device.harvest(k=200)
    assert counts_of(hot) == counts(ids)
    assert usable(device, tables)
    rows = device.gather(hot)
    assert (rows == picked(tables, hot)).all()
    device.scatter(hot, 2 * rows)
    assert (picked(tables, hot) == 2 * rows).all()


def train(device, optimizer):
    """DLRM in mode hotline beside plain PyTorch, each step checked, and the tables afterwards."""
    pytest.importorskip("torch")
    from hotrow.torch.training.check import StepCheck

    from tests.torch.conftest import Setting

    here = Setting(1, cardinalities=(20, 30, 40), optimizer=optimizer)
    reference = here.reference()
    trainer = here.hotline(device)
    check, popular = StepCheck(trainer, reference), 0
    for number, samples in enumerate(here.batches(3, count=24)):
        if number == 0:
            trainer.observe(samples)
        if number == 1:
            trainer.learn(40)
        check.step(samples)
        popular += trainer.step(samples).popular
    assert popular, "no sample was popular: the test needs both parts"
    assert check.held and check.max_difference < 0.5
    trainer.flush()
    np.testing.assert_allclose(trainer.tables.rows.weights, reference.tables.rows.weights,
                               rtol=1e-4, atol=1e-5)
