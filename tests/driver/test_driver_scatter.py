"""SCATTER through the driver, against plain indexing."""

import hotrow
import numpy as np
import pytest
from hotrow import BatchError, CommandError, PaddedCopyWarning, RegistrationError, Status

from tests.driver.conftest import ROWS, usable

CARDS = "model", "cpu", "sim", "sim-tiny", "pcie", "uart", "network"


def distinct_rows(count, seed):
    rng = np.random.default_rng(seed)
    every = [(table, row) for table, rows in enumerate(ROWS) for row in range(rows)]
    table, row = rng.permutation(every)[:count].T
    return hotrow.RowList(table.astype(np.uint32), row.astype(np.uint32))


def scattered(tables, rows, values):
    """What the tables hold after the rows were written one after another."""
    expected = [table.weights.copy() for table in tables]
    for table, row, value in zip(rows.table, rows.row, values, strict=True):
        expected[table][row] = value
    return expected


def equal(tables, expected):
    return all((table.weights == want).all() for table, want in zip(tables, expected, strict=True))


def random_values(count, seed, dim=8):
    values = hotrow.empty((count, dim), np.float32)
    values[:] = np.random.default_rng(seed).normal(size=values.shape)
    return values


@pytest.mark.parametrize("count", [1, 2, 17, 60])
@pytest.mark.parametrize("registered", [True, False])
def test_rows_in_order_of_the_list(device, tables, count, registered):
    rows, values = distinct_rows(count, seed=count), random_values(count, seed=count)
    expected = scattered(tables, rows, values)
    done = device.scatter(rows, device.register(values) if registered else values)
    assert equal(tables, expected) and done.cycles > 0
    assert device.statistics["SCATTER"].commands == 1
    assert (device.gather(rows) == values).all()


@pytest.mark.parametrize("registered", [True, False])
def test_rows_from_listed_slots(device, tables, registered):
    rows, values = distinct_rows(30, seed=3), random_values(50, seed=3)
    slots = np.random.default_rng(3).integers(0, 50, 30)  # some of them twice
    expected = scattered(tables, rows, values[slots])
    device.scatter(rows, device.register(values) if registered else values, slots=slots)
    assert equal(tables, expected)


def test_a_row_listed_twice_is_refused(device, tables):
    before = [table.weights.copy() for table in tables]
    rows = hotrow.RowList(np.array([0, 1, 0, 0], np.uint32), np.array([7, 6, 3, 7], np.uint32))
    with pytest.raises(hotrow.BatchError, match=r"row 7 of table 0 .*twice \(positions 0 and 3"):
        device.scatter(rows, random_values(4, seed=4))
    assert equal(tables, before)


def test_rows_of_a_wider_registered_array(device, tables):
    wide = random_values(30, seed=5, dim=24)
    device.register(wide)
    rows = distinct_rows(20, seed=5)
    for values in (wide[:20, 4:12], wide[:, 5:13], wide[:20, 16:][::-1]):  # the last two copied
        expected = scattered(tables, rows, values[:20])
        device.scatter(rows, values)
        assert equal(tables, expected)


def test_rows_that_an_earlier_command_of_the_queue_wrote(device, tables):
    """The device reads registered memory when the command runs, not when it is submitted."""
    slots = hotrow.empty((3, 8), np.float32)
    slots[:] = 0
    device.register(slots)
    expected = tables[0].weights[4:7].copy()
    for future in (device.gather_async((tables[0], [4, 5, 6]), out=slots),
                   device.scatter_async((tables[2], [1, 2, 3]), slots)):
        future.result()
    assert (tables[2].weights[1:4] == expected).all() and (slots == expected).all()


@pytest.mark.parametrize("state_shape", [(20,), (20, 2), (20, 8)])
@pytest.mark.parametrize("slots", [None, [7, 0, 3]])
@pytest.mark.parametrize("dim", [4, 5])
@pytest.mark.parametrize("registered", [True, False])
def test_state_travels_with_the_rows(device, state_shape, slots, dim, registered):
    weights, state = np.zeros((20, dim), np.float32), hotrow.empty(state_shape, np.float32)
    weights, state[:] = hotrow.empty(weights.shape, np.float32), 1
    weights[:] = 2
    if dim == 5:
        with pytest.warns(PaddedCopyWarning):
            table = device.register_table(weights, state=state)
    else:
        table = device.register_table(weights, state=state)
    values, states = random_values(8, 6, dim), hotrow.empty((8, *state_shape[1:]), np.float32)
    states[:] = -np.arange(states.size).reshape(states.shape)
    given = [device.register(each) if registered else each for each in (values, states)]
    place = [0, 1, 2] if slots is None else slots
    device.scatter((table, [19, 4, 6]), given[0], slots=slots, state=given[1])
    assert (table.weights[[19, 4, 6]] == values[place]).all()
    assert (state[[19, 4, 6]] == states[place]).all()
    rest = np.setdiff1d(np.arange(20), [19, 4, 6])
    assert (table.weights[rest] == 2).all() and (state[rest] == 1).all()
    device.scatter((table, [3]), values)
    assert (table.weights[3] == values[0]).all() and (state[3] == 1).all()


def test_padding_is_zero(device):
    with pytest.warns(PaddedCopyWarning):
        table = device.register_table(np.ones((4, 5), np.float32))
    device.scatter((table, [2]), np.full((1, 5), 7, np.float32))
    assert (table.source[2] == [7, 7, 7, 7, 7, 0, 0, 0]).all()


def test_nothing_to_scatter(device, tables):
    assert device.scatter((tables[0], []), random_values(3, 0)).cycles == 0


def test_tables_from_read_only_arrays_are_refused(device, tables):
    weights = hotrow.empty((6, 8), np.float32)
    weights[:] = 1
    weights.flags.writeable = False
    table = device.register_table(weights, name="frozen")
    with pytest.raises(RegistrationError, match=r"weights of 'frozen' cannot be written"):
        device.scatter((table, [5, 2]), random_values(2, 7))
    assert (weights == 1).all() and (device.gather((table, [5])) == 1).all()


@pytest.mark.parametrize("values, slots, wrong, message", [
    (random_values(2, 0), None, BatchError, "3 rows do not fit values, which has 2"),
    (random_values(9, 0, 4), None, RegistrationError, "values must be of float32, 32 bytes a row"),
    (random_values(9, 0).astype(np.float16), None, RegistrationError, "got float16"),
    (random_values(9, 0), [0, 1], BatchError, "2 slots for 3 rows"),
    (random_values(9, 0), [0, 9, 1], BatchError, "slot 9 is out of range: there are 0 to 8"),
])
def test_values_must_fit(device, tables, values, slots, wrong, message):
    expected = [table.weights.copy() for table in tables]
    with pytest.raises(wrong, match=message):
        device.scatter((tables[0], [1, 2, 3]), values, slots=slots)
    assert equal(tables, expected) and usable(device, tables)


@pytest.mark.parametrize("check", [True, False])
def test_rows_that_do_not_exist(device, tables, check):
    device.check_ids = check
    values = random_values(3, 8)
    expected = scattered(tables, hotrow.RowList([0, 0], [1, 2]), values[[0, 2]])
    with pytest.raises(BatchError, match=r"row 40 is out of range: table 0.*position 1"):
        device.scatter((tables[0], [1, 40, 2]), values)
    if not check:
        assert equal(tables, expected), "the card serves the others"
    assert usable(device, tables)


def test_the_card_reports_a_table_out_of_its_region(device, tables):
    device.registers.write("TABLE_NUMBER", 0)
    device.registers.write("TABLE_LAST_ROW", 99)
    device.registers.write_wide("TABLE_WEIGHTS", tables[0].buffers[0].packed())
    device.registers.write("TABLE_ROW", 32 << 16 | 32)
    device.registers.write("TABLE_COMMIT", 1)
    device.check_ids = False
    with pytest.raises(CommandError, match=r"SCATTER ended with REGION.*weights of 't0' .") as e:
        device.scatter((tables[0], [1, 40, 2]), random_values(3, 9))
    assert (e.value.status, e.value.index) == (Status.REGION, 1)
