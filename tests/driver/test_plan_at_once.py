"""PLAN by one call of the transport: the answers of the ring, and the places of the lookups."""

from dataclasses import fields

import hotrow
import numpy as np
import pytest
from hotrow import DeviceError, RowList
from hotrow.kernels.copying import Places, place_slots
from hotrow.memory.buffer import Held
from hotrow.operands.batch import Batch
from hotrow_rtl.config import preset

from tests.driver.conftest import register_tables
from tests.support.fuzz.planning import STARVED

ROWS = 90, 7, 50
TINY = preset("tiny")


def new_places(device, lookups):
    geometry = device.geometry
    per_choice = geometry.slots // geometry.directory_choices
    return Places([(0, lookups, 0)], lookups, per_choice, per_choice)


def drawn(rng, samples):
    """A batch of skewed ids, jagged or not."""
    lengths = rng.integers(0, 3, samples * len(ROWS))
    if rng.integers(2) or not lengths.sum():
        return Batch.dense(np.stack([rng.random(samples) ** 3 * rows for rows in ROWS], 1).astype(
            np.int64))
    rows = np.repeat(np.tile(ROWS, samples), lengths)
    return Batch.jagged((rng.random(len(rows)) ** 3 * rows).astype(np.int32), lengths, samples)


@pytest.mark.parametrize("policy", ["lru", "lfu"])
@pytest.mark.parametrize("config", [TINY, STARVED], ids=lambda config: config.name)
def test_plans_at_once_are_those_of_the_ring(config, policy):
    rng = np.random.default_rng([5, len(config.name)])
    placed = []
    with hotrow.open("cpu", config=config) as ring, hotrow.open("cpu", config=config) as once:
        for device in (ring, once):
            register_tables(device, ROWS)
        batches = [drawn(rng, int(rng.integers(1, 12))) for _ in range(41)]
        batches[20:] = [batches[19]] * 21  # until every row has a slot
        for number, batch in enumerate(batches[:-1]):
            coming = [(number + 1, batches[number + 1])] if number % 2 else []
            if number:
                ring.retire(number - 1)
            for ahead, each in coming:
                ring.mark(each, ahead)
            lists, places = Held(), new_places(once, batch.lookups)
            expected = ring.plan(batch, number, policy, observe=True)
            found = once.plan_at_once(batch, number, policy, True, lists, number - 1, coming,
                                      places)
            for field in fields(found):
                if field.name in ("slots", "cycles", "end"):
                    continue
                one, other = getattr(found, field.name), getattr(expected, field.name)
                if isinstance(one, RowList):
                    assert np.array_equal(one.keys, other.keys), (number, field.name)
                    assert np.array_equal(one.slots, other.slots), (number, field.name)
                else:
                    assert one == other, (number, field.name)
            if places.placed:
                per_choice = places.part
                assert places.tensor.equal(place_slots(
                    expected.slots, places.tensor[:0].long(), directory=once.geometry.slots,
                    per_choice=per_choice, part=per_choice)), number
            else:
                assert np.array_equal(found.slots, expected.slots), number
            lists.release()
            placed.append(bool(places.placed))
        assert once.next_batch == ring.next_batch and once.retired_batch == ring.retired_batch
        assert np.array_equal(once.harvest(20).keys, ring.harvest(20).keys)
        one, other = ({name: each.commands for name, each in device.statistics.items()}
                      for device in (once, ring))
        assert one == other
    assert not placed[0] and (config is STARVED or placed[-1]), placed


def test_a_plan_that_cannot_be_made_at_once_changes_nothing():
    with hotrow.open("cpu", config=TINY) as device:
        register_tables(device, ROWS)
        batch, places = Batch.dense([[3, 1, 2], [4, 1, 2]]), new_places(device, 6)
        waiting = device.wait_event_async(0, 1, queue="lookup")
        assert device.plan_at_once(batch, 0, "lru", False, Held(), -1, [], places) is None
        assert device.next_batch == 0
        device.write_event(0, 1)
        waiting.result()
        reversed_ids = replace_ids(batch)
        assert device.plan_at_once(reversed_ids, 0, "lru", False, Held(), -1, [], places) is None
        assert device.plan_at_once(batch, 0, "lru", False, Held(), -1, [], places).unique == 4

        def fail(queue, completion):
            raise RuntimeError("of a listener")

        device.listeners.append(fail)
        with pytest.raises(RuntimeError, match="of a listener"):
            device.plan_at_once(batch, 1, "lru", False, Held(), 0, [], places)
        device.listeners.remove(fail)
        with pytest.raises(DeviceError, match="the lists of a plan were lost"):
            device.plan_at_once(batch, 2, "lru", False, Held(), 1, [], places)


def replace_ids(batch):
    """The batch, whose ids do not lie in one piece."""
    found = Batch(np.repeat(batch.ids, 2)[::2], None, batch.samples, batch.table_count, None, False)
    assert found.ids.tolist() == batch.ids.tolist()
    return found
