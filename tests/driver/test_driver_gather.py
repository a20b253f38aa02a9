"""GATHER through the driver, against plain indexing."""

import hotrow
import numpy as np
import pytest
from hotrow import BatchError, PaddedCopyWarning, RegistrationError

from tests.driver.conftest import BOARDS, ROWS, picked, usable

CARDS = "model", "cpu", "sim", "sim-tiny", "pcie", "uart", *BOARDS


def some_rows(count, seed):
    rng = np.random.default_rng(seed)
    table = rng.integers(3, size=count).astype(np.uint32)
    row = (rng.random(count) * np.array(ROWS)[table]).astype(np.uint32)
    return hotrow.RowList(table, row)


@pytest.mark.parametrize("count", [1, 2, 17, 100])
def test_rows_in_order_of_the_list(device, tables, count):
    rows = some_rows(count, seed=count)
    assert (device.gather(rows) == picked(tables, rows)).all()
    assert device.statistics["GATHER"].commands == 1


def test_results_do_not_change_later(device, tables):
    rows = some_rows(20, seed=1)
    first = device.gather(rows)
    before = first.copy()
    device.gather(some_rows(20, seed=2))
    assert (first == before).all()


@pytest.mark.parametrize("registered", [True, False])
def test_rows_land_in_listed_slots_and_nowhere_else(device, tables, registered):
    rows, slots = some_rows(30, seed=3), np.random.default_rng(3).permutation(50)[:30]
    out = hotrow.empty((50, 8), np.float32)
    out[:] = -1
    expected = out.copy()
    expected[slots] = picked(tables, rows)
    target = device.register(out) if registered else out
    assert device.gather(rows, out=target, slots=slots) is out
    assert (out == expected).all()
    device.gather(rows, out=target)
    assert (out[:30] == picked(tables, rows)).all()


def test_part_of_a_registered_buffer(device, tables):
    memory = hotrow.empty((64, 8), np.float32)
    memory[:] = -1
    device.register(memory)
    rows = some_rows(10, seed=4)
    device.gather(rows)  # staging is there from now on
    handle = device.register(hotrow.empty(64, np.uint8)).handle
    device.gather(rows, out=memory[8:40:2])  # rows twice as far apart
    assert (memory[8:28:2] == picked(tables, rows)).all()
    assert (memory[9:28:2] == -1).all() and (memory[28:] == -1).all()
    following = device.register(hotrow.empty(64, np.uint8)).handle
    assert following == handle + 1, "a region was made"


@pytest.mark.parametrize("dim, dtype", [(3, np.float32), (5, np.float16), (9, np.float32)])
def test_odd_dimensions_are_padded(device, dim, dtype):
    weights = np.random.default_rng(dim).normal(size=(20, dim)).astype(dtype)
    with pytest.warns(PaddedCopyWarning, match="padded copy"):
        table = device.register_table(weights)
    assert (table.weights == weights).all() and table.weights.shape == weights.shape
    assert table.row_bytes % 16 == 0 and table.stride == table.row_bytes
    rows = (table, np.arange(19, -1, -1))
    assert (device.gather(rows) == weights[::-1]).all()
    out = np.full((40, dim + 1), -1, dtype)
    device.gather(rows, out=out[:, :dim], slots=np.arange(20) + 5)
    assert (out[5:25, :dim] == weights[::-1]).all()
    assert (out[:5] == -1).all() and (out[25:] == -1).all() and (out[:, dim] == -1).all()


def test_rows_of_a_wider_array(device):
    wide = hotrow.empty((30, 16), np.float32)
    wide[:] = np.arange(480).reshape(30, 16)
    table = device.register_table(wide[:, 4:12])
    assert table.stride == 64 and table.row_bytes == 32
    assert np.shares_memory(table.weights, wide)
    assert (device.gather((table, [29, 0, 7])) == wide[[29, 0, 7], 4:12]).all()
    for rows in ([3], [29, 0], [29, 0, 7]):
        out = hotrow.empty((len(rows), 16), np.float32)
        out[:] = -1
        device.gather((table, rows), out=out[:, 4:12])
        assert (out[:, 4:12] == wide[rows, 4:12]).all()
        assert (out[:, :4] == -1).all() and (out[:, 12:] == -1).all()


@pytest.mark.parametrize("state_shape", [(20,), (20, 2), (20, 8)])
@pytest.mark.parametrize("slots", [None, [7, 0, 3]])
@pytest.mark.parametrize("dim", [4, 5])
def test_state_travels_with_the_rows(device, state_shape, slots, dim):
    weights = hotrow.empty((20, dim), np.float32)
    state = hotrow.empty(state_shape, np.float32)
    weights[:] = np.arange(weights.size).reshape(weights.shape)
    state[:] = -np.arange(state.size).reshape(state.shape)
    if dim == 5:
        with pytest.warns(PaddedCopyWarning):
            table = device.register_table(weights, state=state)
    else:
        table = device.register_table(weights, state=state)
    out, state_out = np.zeros_like(weights[:8]), hotrow.empty((8, *state_shape[1:]), np.float32)
    out, state_out[:] = hotrow.empty(out.shape, out.dtype), 1
    place = [0, 1, 2] if slots is None else slots
    device.gather((table, [19, 4, 4]), out=out, slots=slots, state_out=state_out)
    assert (out[place] == weights[[19, 4, 4]]).all()
    assert (state_out[place] == state[[19, 4, 4]]).all()
    rest = np.setdiff1d(np.arange(8), place)
    assert (state_out[rest] == 1).all()
    with_rows = device.gather((table, [3]), state_out=state_out)
    assert (with_rows == weights[[3]]).all() and (state_out[0] == state[3]).all()


def test_gather_refuses_unlike_tables(device, tables):
    other = device.register_table(hotrow.empty((5, 16), np.float32), name="wide")
    with pytest.raises(BatchError, match=r"rows of one kind.*'t0'.*'wide'"):
        device.gather(([0, other.number], [0, 0]))
    assert device.gather((other, [1])).shape == (1, 16)


@pytest.mark.parametrize("make, wrong, message", [
    (lambda: hotrow.empty((2, 8), np.float32), BatchError, "3 rows do not fit.*2"),
    (lambda: hotrow.empty((9, 4), np.float32), RegistrationError, "out must be.*32 bytes a row"),
    (lambda: hotrow.empty((9, 4), np.float64), RegistrationError, "of float32.*got float64"),
    (lambda: hotrow.empty(100, np.float32)[1:73].reshape(9, 8), RegistrationError,
     "not a multiple of 16.*hotrow.empty"),
    (lambda: hotrow.empty((9, 10), np.float32)[:, :8], RegistrationError, "40 bytes apart"),
    (lambda: hotrow.empty((8, 9), np.float32).T, RegistrationError, "contiguous rows"),
])
def test_out_must_fit(device, tables, make, wrong, message):
    out = make()
    out[:] = 7
    with pytest.raises(wrong, match=message):
        device.gather((tables[0], [1, 2, 3]), out=out)
    assert (out == 7).all() and usable(device, tables)


@pytest.mark.slow
def test_a_region_made_for_out_does_not_stay(device, tables):
    for _ in range(2 * device.geometry.handles):
        device.gather((tables[0], [1]), out=hotrow.empty((9, 8), np.float32))


def test_out_must_be_writable(device, tables):
    out = hotrow.empty((9, 8), np.float32)
    buffer = device.register(out, writable=False)
    with pytest.raises(RegistrationError, match=r"out is .*, registered with writable=False"):
        device.gather((tables[0], [1]), out=buffer)
    device.gather((tables[0], [1]), out=out)
    assert (out[0] == tables[0].weights[1]).all(), "the array itself may be written"
    out.flags.writeable = False
    with pytest.raises(RegistrationError, match=r"must be writable.*read-only"):
        device.gather((tables[0], [1]), out=out)
    assert usable(device, tables)


@pytest.mark.parametrize("slots, message", [
    ([0, 1], "2 slots for 3 rows"),
    ([0, 1, 9], "slot 9 is out of range: there are 0 to 8 .position 2"),
    ([0, -1, 2], "slot -1 is out of range"),
    ([0, 1, 1], "must be distinct"),
    ([0.0, 1.0, 2.0], "slots must be integers"),
])
def test_slots_must_be_places_of_out(device, tables, slots, message):
    out = hotrow.empty((9, 8), np.float32)
    out[:] = 7
    with pytest.raises(BatchError, match=message):
        device.gather((tables[0], [1, 2, 3]), out=out, slots=slots)
    assert (out == 7).all() and usable(device, tables)
