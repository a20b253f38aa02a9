"""Tables, batches and results of another device, or of before a table was replaced."""

import hotrow
import numpy as np
import pytest
from hotrow import BatchError, RegistrationError

from tests.driver.conftest import DIM, ROWS, random_ids, register_tables, usable

CARDS = ("model",)  # the host checks


@pytest.fixture
def other():
    with hotrow.open("model", preset="tiny") as device:
        yield device


@pytest.mark.parametrize("call", [
    lambda d, t: d.gather((t, [1])), lambda d, t: d.scatter((t, [1]), np.ones((1, DIM), "f4")),
    lambda d, t: d.pool((t, [1]), [1]), lambda d, t: d.update((t, [1]), np.ones((1, DIM), "f4"), 1),
    lambda d, t: d.install((t, [1])), lambda d, t: d.remove((t, [1]))])
def test_a_table_of_before_does_not_stand_for_its_successor(device, tables, other, call):
    theirs = register_tables(other)[2]
    device.unregister_table(tables[2])
    again = device.register_table(hotrow.empty((ROWS[2], DIM), np.float32))
    assert again.number == tables[2].number == theirs.number
    for table in tables[2], theirs:
        with pytest.raises(RegistrationError, match="not a table registered with this device"):
            call(device, table)
    call(device, again)


def test_rows_that_another_device_missed(other):
    theirs = other.register_table(hotrow.empty((50, 4 * DIM), np.float32))
    misses = other.split(np.array([[1], [2]])).misses
    with hotrow.open("model", preset="tiny") as device:
        ours = register_tables(device)[0]
        assert (device.gather(misses) == ours.weights[1:3]).all()
    assert other.gather(misses).shape == (2, theirs.dim)


def test_a_batch_staged_for_another_device_is_refused(device, tables, other):
    register_tables(other)
    staged = other.stage(random_ids(40, 1))
    for call in device.observe, device.split, device.plan, lambda staged: device.mark(staged, 0):
        with pytest.raises(BatchError, match="another device"):
            call(staged)
    assert other.observe(staged).lookups == 120 and usable(device, tables)


def test_a_staged_batch_is_not_staged_again(device, tables):
    staged = device.stage(random_ids(40, 1))
    with pytest.raises(BatchError, match="is staged: commands take it as it is"):
        device.stage(staged)
    staged.release()
    device.unregister_table(tables[0])


def test_a_harvest_without_the_rows_of_a_table_that_is_gone(device, tables):
    ids = np.array([[row % 7, 0, row] for row in range(20)])
    for _ in range(3):
        device.observe(hotrow.Batch.dense(ids[:, 2:], tables=tables[2:]))
    device.observe(hotrow.Batch.dense(ids[:, :1], tables=tables[:1]))
    device.unregister_table(tables[2])
    hot = device.harvest(5)
    assert len(hot) == 5 and (hot.table == 0).all()
    assert hot.count.tolist() == sorted(hot.count.tolist(), reverse=True) == [3, 3, 3, 3, 3]
    assert len(device.harvest(40)) == 7
