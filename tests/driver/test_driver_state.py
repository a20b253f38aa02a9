"""A command that fails leaves the host's state as it was; views are written where they are."""

import hotrow
import numpy as np
import pytest
from hotrow import Batch, DeviceError, RegistrationError

from tests.driver.conftest import counts, counts_of, random_ids, register_tables, usable
from tests.driver.test_driver_queues import lose_rings

CARDS = "model", "cpu"


def state(device):
    """What the host knows about batches, counts and slots."""
    tables, numbers = device._commands.tables, device._planner.numbers
    return (numbers.next, numbers.retired, numbers.lost,
            sorted(tables.in_directory), sorted(tables.in_counters), sorted(tables.stale_counts))


@pytest.mark.parametrize("call", [
    lambda device, ids: device.clear_directory_async(),
    lambda device, ids: device.clear_counters_async(),
    lambda device, ids: device.decay_async(3),
    lambda device, ids: device.observe_async(ids),
    lambda device, ids: device.split_async(ids, observe=True),
    lambda device, ids: device.install_async((2, [1])),
    lambda device, ids: device.plan_async(ids, observe=True),
], ids=["clear_directory", "clear_counters", "decay", "observe", "split", "install", "plan"])
def test_a_faulted_queue_changes_no_state(device, tables, call):
    ids = random_ids(20, 1)[:, :2]
    batch = Batch.dense(ids, tables=tables[:2])
    device.observe(batch)
    device.plan(batch)
    device.plan(batch)
    device.retire(0)
    remedy = lose_rings(device, "lookup")
    with pytest.raises(DeviceError):
        device.fence(queue="lookup")
    before = state(device)
    with pytest.raises(DeviceError, match="faulted"):
        call(device, batch)
    assert state(device) == before
    remedy()
    device.reset()
    assert state(device) == before
    assert device.plan(batch).hits == batch.lookups, "the batches and the slots are still known"
    assert counts_of(device.harvest(100)) == counts(ids)
    assert usable(device, tables)


def test_clears_forget_what_was_known(device, tables):
    with hotrow.open("model", preset="tiny") as opened:
        register_tables(opened)
        known = state(opened)
    ids = random_ids(20, 1)
    for number in range(3):
        device.observe(ids)
        device.plan(ids)
        device.retire(number)
        device.unregister_table(tables[2])
        tables = (*tables[:2], device.register_table(hotrow.empty((23, 8), np.float32)))
    assert state(device) != known
    device.clear_directory()
    device.clear_counters()
    assert state(device) == known
    device.unregister_table(tables[2])
    device.register_table(hotrow.empty((23, 8), np.float32))
    assert len(device.harvest(100)) == 0


@pytest.mark.parametrize("shift", [0, 1, 64, 1023, 1024, (1 << 32) - 1])
def test_decay_by_any_number_of_places(device, tables, shift):
    ids = random_ids(20, 2)
    device.observe(ids)
    device.decay(shift)
    kept = counts_of(device.harvest(100))
    assert kept == {row: count >> shift for row, count in counts(ids).items() if count >> shift}


def test_decay_beyond_an_operand(device):
    with pytest.raises(hotrow.BatchError, match="shift must be 0 to 4294967295, not 4294967296"):
        device.decay(1 << 32)


def test_a_reset_command_clears_nothing(device, tables):
    """A REMOVE of everything that was given up: whether the card did it is not known."""
    device.plan(random_ids(20, 3))
    device.wait_event_async(0, 1, queue="lookup")
    pending = device.clear_directory_async()
    assert device.next_batch == 0
    device.reset()
    with pytest.raises(DeviceError, match="reset"):
        pending.result()
    with pytest.raises(DeviceError, match=r"clear_directory\(\)"):
        device.plan(random_ids(20, 3))
    device.clear_directory()
    plan = device.plan(random_ids(20, 3))
    assert len(plan.fills) == plan.unique


@pytest.fixture
def stateful(device):
    """A table of 100 rows, in which row and state hold the row's number."""
    weights, optimizer = hotrow.empty((100, 16), np.float32), hotrow.empty((100, 2), np.float32)
    weights[:], optimizer[:] = np.arange(100)[:, None], np.arange(100)[:, None]
    return device.register_table(weights, state=optimizer)


@pytest.mark.parametrize("slots", [None, [1, 3, 5, 7]], ids=["consecutive", "listed"])
@pytest.mark.parametrize("view", [
    lambda memory: memory[::2, :2], lambda memory: memory[:, 2:4], lambda memory: memory[::-1, :2],
    lambda memory: memory[:, ::2], lambda memory: memory[:, 1:3][:8]],
    ids=["every second", "last columns", "backwards", "every second column", "middle"])
def test_state_goes_to_any_view(device, stateful, slots, view):
    rows = [3, 50, 99, 7]
    memory, out = hotrow.empty((16, 4), np.float32), hotrow.empty((16, 16), np.float32)
    memory[:] = out[:] = -7
    expected, places = memory.copy(), slice(4) if slots is None else slots
    view(expected)[places] = np.array(rows)[:, None]
    device.gather((stateful, rows), out=out, slots=slots, state_out=view(memory))
    assert (memory == expected).all()
    assert (out[places] == np.array(rows)[:, None]).all()
    assert np.count_nonzero(out == -7) == 12 * 16
    stateful.state[:] = stateful.weights[:] = 0
    device.scatter((stateful, rows), out, slots, state=view(memory))
    assert (stateful.state[rows] == np.array(rows)[:, None]).all()
    assert np.count_nonzero(stateful.state) == 8


@pytest.mark.parametrize("view, message", [
    (lambda memory: memory.T[:16].T, None),
    (lambda memory: memory[:, ::2], "contiguous rows"),
    (lambda memory: memory.reshape(32, 2, 16)[:, 0].T, "bytes a row"),
    (lambda memory: memory[::-1, :16], "without negative strides|bytes apart"),
    (lambda memory: np.lib.stride_tricks.as_strided(memory, (8, 16), (0, 4)), "share memory"),
    (lambda memory: np.lib.stride_tricks.as_strided(memory, (8, 16), (32, 4)), "share memory"),
], ids=["columns", "gaps", "transposed", "backwards", "expanded", "overlapping"])
@pytest.mark.parametrize("call", ["gather", "pool"])
def test_rows_go_to_a_view_or_it_is_refused(device, stateful, view, message, call):
    memory, rows = hotrow.empty((32, 32), np.float32), [3, 50, 99, 7]
    memory[:] = -7
    out, arguments = view(memory), [(stateful, rows)]
    if call == "pool":
        arguments.append(np.ones(4, int))
    if message is None:
        getattr(device, call)(*arguments, out=out)
        assert (memory[:4, :16] == np.array(rows)[:, None]).all()
        assert (memory[4:] == -7).all() and (memory[:, 16:] == -7).all()
        return
    with pytest.raises(RegistrationError, match=message):
        getattr(device, call)(*arguments, out=out)
    assert (memory == -7).all()
