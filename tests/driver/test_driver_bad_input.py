"""Wrong input: a message that says what was expected, nothing half-done, the device usable."""

from dataclasses import replace
from types import SimpleNamespace

import hotrow
import numpy as np
import pytest
from hotrow import Batch, BatchError, CommandError, DeviceError, RegistrationError, TransportError
from hotrow_rtl.config import preset

from tests.driver.conftest import ROWS, counts, counts_of, random_ids, usable

CARDS = ("model",)  # the host checks


@pytest.fixture
def untouched(device, tables):
    """After the test: counters unchanged, and the device answers as it should."""
    ids = random_ids(40, seed=1)
    device.observe(ids)
    commands = device.statistics
    yield commands
    hot = device.harvest(200)
    assert counts_of(hot) == counts(ids)
    assert usable(device, tables)


@pytest.mark.parametrize("id_, what", [
    (ROWS[1], "out of range"), (-1, "negative"), (1 << 32, "out of range"),
    (1 << 40, "out of range"), (-(1 << 63), "negative"),
])
@pytest.mark.parametrize("feature_major", [False, True])
@pytest.mark.parametrize("call", ["observe", "split"])
def test_ids_beyond_the_table(device, untouched, id_, what, feature_major, call):
    ids = random_ids(20, seed=2)
    ids[13, 1] = ids[17, 2] = id_
    batch = Batch.dense(ids.T if feature_major else ids, feature_major=feature_major)
    with pytest.raises(BatchError, match=rf"id {id_} is {what}: table 1 \('t1'\) has rows 0 to 6 "
                       r"\(sample 13, column 1\)") as caught:
        getattr(device, call)(batch)
    error = caught.value
    assert (error.table, error.row, error.sample, error.column) == (1, id_, 13, 1)
    assert device.statistics == untouched, "nothing was submitted"


def test_ids_beyond_the_table_in_bags(device, untouched):
    ids, lengths = [1, 2, 3, 6, 7, 0], [2, 1, 0, 0, 2, 1]
    with pytest.raises(BatchError, match=r"id 7 .* table 1 .*\(sample 1, column 1\)"):
        device.observe(Batch.jagged(ids, lengths, 2))
    assert device.statistics == untouched


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("id_", [ROWS[1], -1])
def test_the_card_finds_them_too(device, tables, dtype, id_):
    device.check_ids = False
    ids = random_ids(20, seed=3).astype(dtype)
    ids[13, 1] = ids[17, 2] = id_
    text = rf"id {id_} is .*: table 1 \('t1'\) has rows 0 to 6 \(sample 13, column 1\)"
    for call in (device.observe, device.split):
        with pytest.raises(BatchError, match=text):
            call(ids)
    assert usable(device, tables)


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("rows, message", [
    (([0, 1, 1], [1, 7, 8]), r"row 7 is out of range: table 1 .'t1'. has rows 0 to 6 .position 1"),
    (([0, 5], [1, 1]), "no table 5, those registered are 0 .'t0'., .*position 1 of the list"),
])
@pytest.mark.parametrize("call", ["install", "remove", "gather"])
def test_lists_of_rows_that_do_not_exist(device, tables, check, rows, message, call):
    device.check_ids, before = check, device.statistics
    with pytest.raises(BatchError, match=message):
        getattr(device, call)(rows)
    known = check or (call == "gather" and 5 in rows[0])  # whose result needs the table's dim
    assert (device.statistics == before) == known, "checked on the host, or else by the card"
    assert usable(device, tables)


@pytest.mark.parametrize("rows, message", [
    (([0, 1], [1]), "2 table numbers for 1 rows"),
    (([0], [-1]), "row -1 is negative .position 0"),
    (([0], [1 << 32]), "row 4294967296 is beyond 32 bits"),
    (([0], [0.5]), "rows must be integers"),
    (7, "expected rows as HotRows.* not int"),
])
def test_malformed_lists_of_rows(device, untouched, rows, message):
    with pytest.raises(BatchError, match=message):
        device.install(rows)
    assert device.statistics == untouched


def test_wrong_number_of_columns(device, untouched, tables):
    with pytest.raises(BatchError, match=r"2 columns, but 3 tables are registered.*tables="):
        device.observe(np.zeros((4, 2), int))
    with pytest.raises(BatchError, match="2 columns, but it names 1 table"):
        device.observe(Batch.dense(np.zeros((4, 2), int), tables=tables[:1]))
    assert device.statistics == untouched


def test_tables_of_a_batch_must_follow_one_another(device, untouched, tables):
    with pytest.raises(BatchError, match=r"consecutive numbers, got 0 \('t0'\), 2 \('t2'\)"):
        device.observe(Batch.dense(np.zeros((4, 2), int), tables=[tables[0], tables[2]]))
    assert device.statistics == untouched


def test_the_last_row_of_the_largest_table():
    """2**32 rows: a negative 32-bit id has the bits of a row, but is none."""
    largest = SimpleNamespace(rows=1 << 32, number=0, name="largest")
    Batch.dense(np.array([[(1 << 32) - 1]], np.uint32)).check([largest])
    for dtype, id_ in ((np.int32, -1), (np.int64, -1), (np.int64, 1 << 32)):
        with pytest.raises(BatchError, match=f"id {id_} is .*rows 0 to 4294967295"):
            Batch.dense(np.array([[id_]], dtype)).check([largest])


def test_too_many_samples(device, untouched):
    limit = device.geometry.batch_samples
    with pytest.raises(BatchError, match=f"{limit + 1} samples: .* at most {limit}"):
        device.split(np.zeros((limit + 1, 3), np.uint32))
    assert device.statistics == untouched
    assert device.split(np.zeros((limit, 3), np.uint32)).lookups == 3 * limit


def test_too_many_lookups():
    """Few samples of long bags."""
    config = replace(preset("tiny"), batch_lookups=1024)
    with hotrow.open("model", config=config) as device:
        device.register_table(np.zeros((100, 16), np.float32))
        most = Batch.jagged(np.zeros(1024, np.uint32), [1000, 24, 0], samples=3)
        assert device.split(most).lookups == 1024
        more = Batch.jagged(np.zeros(1025, np.uint32), [1000, 24, 1], samples=3)
        with pytest.raises(BatchError, match="1025 lookups: this card takes at most 1024"):
            device.split(more)


@pytest.mark.parametrize("k", [lambda slots: 0, lambda slots: -1, lambda slots: slots + 1])
def test_more_hot_rows_than_slots(device, untouched, k):
    slots = device.geometry.slots
    k = k(slots)
    with pytest.raises(BatchError, match=f"k = {k} must be 1 to {slots}, the slots"):
        device.harvest(k)
    assert device.statistics == untouched


def test_more_rows_to_install_than_slots(device, untouched):
    slots = device.geometry.slots
    table = device.register_table(hotrow.empty((slots + 1, 4), np.float32))
    with pytest.raises(BatchError, match=f"to install = {slots + 1} must be 1 to {slots}, the"):
        device.install((table, np.arange(slots + 1)))
    assert device.statistics == untouched
    device.unregister_table(table)


@pytest.mark.parametrize("value", [-1, 1 << 32])
def test_numbers_that_no_register_holds(device, untouched, value):
    for call in (device.decay, lambda value: device.harvest(5, threshold=value)):
        with pytest.raises(BatchError, match=f"not {value}"):
            call(value)
    with pytest.raises(TypeError):
        device.harvest(2.5)
    assert device.statistics == untouched


def test_events_and_queues_that_the_card_lacks(device, untouched):
    with pytest.raises(BatchError, match="event must be 0 to 7 on this card, not 8"):
        device.signal(8, 1, queue="lookup")
    with pytest.raises(DeviceError, match="'lookup' or 'move', not 'both'"):
        device.fence(queue="both")
    assert device.statistics == untouched


def test_a_command_error_names_the_memory(device, tables):
    device.registers.write("REGION_HANDLE", tables[1].buffers[0].handle)
    device.registers.write("REGION_COMMIT", 0)  # as if the card had lost the table's memory
    with pytest.raises(CommandError, match=r"GATHER ended with REGION.*index 1, address weights of "
                       "'t1' [+] 0x40") as caught:
        device.gather(([0, 1], [3, 2]))
    assert caught.value.status is hotrow.Status.REGION and caught.value.index == 1
    assert (device.gather((tables[0], [3])) == tables[0].weights[3]).all()


def test_a_table_that_the_card_lost(device, tables):
    device.registers.write("TABLE_NUMBER", tables[1].number)
    device.registers.write("TABLE_COMMIT", 0)
    with pytest.raises(CommandError, match=r"OBSERVE ended with TABLE_UNKNOWN.*index 1") as caught:
        device.observe(random_ids(4, seed=1))
    assert caught.value.status is hotrow.Status.TABLE_UNKNOWN


def test_unknown_transport():
    with pytest.raises(TransportError, match=r"unknown transport 'fpga'.*model, pcie, sim, uart"):
        hotrow.open("fpga")


@pytest.mark.parametrize("transport, options, message", [
    ("model", {"preset": "huge"}, "unknown preset 'huge'.*tiny"),
    ("model", {"speed": 3}, "option it lacks.*speed.*takes preset, "),
    ("cpu:0", {}, "'cpu' takes no address: write cpu, not cpu:0"),
    ("cpu", {"preset": "huge"}, "unknown preset 'huge'.*tiny"),
    ("cpu", {"threads": 0}, "threads must be 1 to 256, not 0"),
    ("cpu", {"threads": 100_000}, "threads must be 1 to 256, not 100000"),
    ("cpu", {"slots": 0}, "slots must be 1 to"),
])
def test_options_of_a_transport(transport, options, message):
    with pytest.raises(TransportError, match=message):
        hotrow.open(transport, **options)


def test_memory_for_which_the_card_has_no_addresses():
    device = hotrow.open("model", preset="ecp5")  # addresses of 32 bits
    with pytest.raises(RegistrationError, match=r"large.*no room for 4294967296 bytes"):
        device.register_table(np.empty((1 << 28, 4), np.float32), name="large")
    assert device.register(np.zeros(64, np.uint8)).handle is not None


def test_ring_entries():
    with pytest.raises(DeviceError, match="power of two, 2 to 65536, not 48"):
        hotrow.open("model", preset="tiny", ring_entries=48)


def test_closed_device():
    device = hotrow.open("model", preset="tiny")
    device.close()
    device.close()
    for call in (device.clear_counters, device.reset, lambda: device.split([[1]]),
                 lambda: device.register(hotrow.empty(64, np.uint8))):
        with pytest.raises(DeviceError, match="the device is closed"):
            call()


def test_a_card_of_another_version(monkeypatch):
    from hotrow_sim.model import Device

    original = Device.read_register
    monkeypatch.setattr(Device, "read_register",
                        lambda self, at: 9 if at == 4 else original(self, at))
    with pytest.raises(DeviceError, match=r"contract version 1 .*version 9"):
        hotrow.open("model", preset="tiny")


def test_a_table_of_another_device(device, tables):
    with hotrow.open("model", preset="tiny") as other:
        table = other.register_table(hotrow.empty((4, 4), np.float32))
        with pytest.raises(RegistrationError, match="not a table registered with this device"):
            device.observe(Batch.dense([[1]], tables=[table]))
    assert usable(device, tables)


@pytest.mark.parametrize("call, wrong", [
    *((lambda d, t, lr=lr: d.update((t, [0]), np.ones((1, 8), "f4"), lr), BatchError)
      for lr in ("x", "0.5", [1, 2], 1j, 10 ** 400, None, float("nan"))),
    (lambda d, t: d.pool((t, [0]), [1], mode=["sum"]), BatchError),
    (lambda d, t: d.update((t, [0]), np.ones((1, 8), "f4"), 1, optimizer={}), BatchError),
    (lambda d, t: d.install((t, [0]), policy=["lru"]), BatchError),
    (lambda d, t: d.abort_wait(queue=["move"]), DeviceError),
    (lambda d, t: d.pool((t, []), offsets=[-3]), BatchError),
    (lambda d, t: d.unregister(t.weights), RegistrationError),
    (lambda d, t: d.unregister(5), RegistrationError),
    (lambda d, t: d.set_counts(hotrow.RowList(np.zeros(1, "u4"), np.zeros(1, "u4"))), BatchError),
    (lambda d, t: hotrow.empty(-3, np.float32), RegistrationError),
    (lambda d, t: hotrow.empty((4, -1), np.float32), RegistrationError)])
def test_arguments_of_a_wrong_kind(device, tables, call, wrong):
    before = tables[0].weights.copy()
    with pytest.raises(wrong):
        call(device, tables[0])
    assert (tables[0].weights == before).all() and usable(device, tables)


@pytest.mark.parametrize("options, wrong", [
    ({"transport": "model", "preset": 5}, DeviceError),
    ({"transport": "model", "preset": []}, DeviceError),
    ({"transport": "uart:/dev/null", "baud": 0}, TransportError),
    ({"transport": "uart:/dev/null", "baud": "115200"}, TransportError),
    ({"transport": "udp:127.0.0.1", "tries": 1.5, "patience": 0.01}, TransportError),
    ({"transport": "udp:127.0.0.1", "patience": "x"}, TransportError)])
def test_options_of_a_wrong_kind(options, wrong):
    with pytest.raises(wrong):
        hotrow.open(**options)


def test_numbers_of_numpy_open_a_device():
    with hotrow.open("model", preset="tiny", ring_entries=np.int64(4), memory_timeout=np.uint8(0),
                     timeout=np.float32(9)) as device:
        device.clear_counters()


def test_an_order_of_ids_is_true_or_false(device, tables):
    assert device.observe(Batch.dense(random_ids(40, 1).T, feature_major=2)).lookups == 120
