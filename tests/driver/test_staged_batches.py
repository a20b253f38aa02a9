"""Batches that are staged once for several commands."""

import hotrow
import numpy as np
import pytest
from hotrow import Batch, BatchError, RegistrationError

from tests.driver.conftest import counts, counts_of, pairs, random_ids

CARDS = "model", "cpu", "sim", "sim-tiny"


def in_use(device, table):
    """Whether the device refuses to unregister a table."""
    try:
        device.unregister_table(table)
    except RegistrationError as refusal:
        assert "in use" in str(refusal)
        return True
    return False


@pytest.mark.parametrize("jagged", [False, True])
def test_commands_read_it_until_its_release(device, tables, jagged):
    """Other batches are staged between, and would take memory that was given back."""
    ids = random_ids(40, 1)
    batch = Batch.jagged(ids.reshape(-1) % 7, np.tile([2, 0], 60), 40) if jagged else ids
    staged = device.stage(batch)
    device.install((tables[0], [0, 1, 2]))
    first = device.split(batch)
    for seed in range(3):
        device.observe(random_ids(40, 10 + seed))
        again = device.split(staged)
        assert (again.slots == first.slots).all() and pairs(again.misses) == pairs(first.misses)
    device.clear_counters()
    device.observe(staged)
    device.observe(staged)
    seen = counts_of(device.harvest(200))
    device.clear_counters()
    device.observe(batch)
    assert seen == {pair: 2 * count for pair, count in counts_of(device.harvest(200)).items()}
    staged.release()


def test_its_tables_stay_registered_until_its_release(device, tables):
    staged = device.stage(random_ids(40, 1))
    device.split(staged)
    assert in_use(device, tables[2])
    staged.release()
    staged.release()
    assert not in_use(device, tables[2])


def test_a_release_waits_for_the_commands(device, tables):
    ids = random_ids(40, 1)
    staged = device.stage(ids)
    under_way = [device.observe_async(staged) for _ in range(2)]
    staged.release()
    others = [device.observe_async(random_ids(40, seed)) for seed in (2, 3)]
    assert [future.result().lookups for future in (*under_way, *others)] == [ids.size] * 4
    expected = 2 * counts(ids)[1, 0] + sum(counts(random_ids(40, seed))[1, 0] for seed in (2, 3))
    assert counts_of(device.harvest(200))[1, 0] == expected
    assert not in_use(device, tables[0])


def test_it_is_refused_after_its_release(device, tables):
    staged = device.stage(random_ids(40, 1))
    staged.release()
    for command in (device.observe, device.split, device.plan):
        with pytest.raises(BatchError, match="was released: stage it again"):
            command(staged)
    assert device.observe(random_ids(40, 1)).lookups == 40 * len(tables)


def test_a_batch_that_is_refused_holds_nothing(device, tables):
    with pytest.raises(BatchError, match="sample 1, column 0"):
        device.stage(np.array([[0, 0, 0], [99, 0, 0]]))
    assert not in_use(device, tables[0])


def test_a_closed_device_stages_nothing():
    with hotrow.open("model", preset="tiny") as device:
        device.register_table(np.zeros((4, 4), np.float32))
    with pytest.raises(hotrow.DeviceError):
        device.stage(np.zeros((2, 1), int))
