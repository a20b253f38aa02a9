"""The ends of the range of every number that the driver takes: both are taken, and what lies beyond
is refused with a message that names it."""

from functools import partial

import hotrow
import numpy as np
import pytest
from hotrow.contract.generated import OFFSET_WIDTH
from hotrow.contract.records import packed_address
from hotrow.memory.buffer import span
from hotrow.transports.link.transport import LinkTransport

from tests.driver.conftest import DIM, ROWS, register_tables, usable

WORD = (1 << 32) - 1
IDS = np.zeros((2, len(ROWS)), np.int64)


def gathered(device, stride):
    """A gather to rows that lie so many bytes apart."""
    table, memory = device.tables[0], hotrow.empty(stride // 2, np.float32)
    rows = np.lib.stride_tricks.as_strided(memory, (2, DIM), (stride, 4))
    device.gather((table, [1, 2]), out=rows, slots=[0, 1])
    assert (rows == table.weights[[1, 2]]).all()


def pooled(device, rows):
    """A bag of so many rows."""
    [bag] = device.pool((np.zeros(rows, int), np.zeros(rows, int)), [rows])
    assert np.allclose(bag, rows * device.tables[0].weights[0], rtol=1e-3)


def planned(device, ahead):
    """A mark so many batches after the one retired last."""
    device.mark(IDS, ahead - 1)


def retired(device, number):
    """Batches 0 to 2 are planned and 0 is retired."""
    for _ in range(3):
        device.plan(IDS)
    device.retire(0)
    device.retire(number)


def parted(device, part):
    parts = device.geometry.directory_partitions
    device.unregister_table(device.register_table(
        hotrow.empty((5, DIM), np.float32), "x", partition=(part, parts)))


# By name in messages: a call with a value, the least and the most that it takes.
RANGES = {
    "shift": (lambda d, value: d.decay(value), 0, WORD),
    "k": (lambda d, value: d.harvest(value), 1, lambda d: d.geometry.slots),
    "threshold": (lambda d, value: d.harvest(5, value), 0, WORD),
    "event": (lambda d, value: d.write_event(value, 1), 0, lambda d: d.geometry.events - 1),
    "out": (gathered, 4 * DIM, (1 << 16) - 16),
    "bag": (pooled, None, WORD & 0xFFFF),
    "batch": (planned, None, lambda d: d.plan_window),
    "retired": (retired, 0, 2),
    "partition": (parted, 0, lambda d: d.geometry.directory_partitions - 1),
}


@pytest.mark.parametrize("spec", ["model", "cpu"])
@pytest.mark.parametrize("name", RANGES)
def test_ends_of_a_range(spec, name):
    call, least, most = RANGES[name]
    step = 16 if name == "out" else 1
    for end, beyond in ((least, -step), (most, step)):
        if end is None:
            continue
        for value, taken in ((0, True), (beyond, False)):
            with hotrow.open(spec, preset="tiny") as device:
                tables = register_tables(device)
                given = (end(device) if callable(end) else end) + value
                if taken:
                    call(device, given)
                else:
                    with pytest.raises(hotrow.Error, match=name):
                        call(device, given)
                assert usable(device, tables)


# By option: the least and the most that it takes, and what lies beyond.
OPTIONS = {
    "ring_entries": (2, 1 << 16, 1, 1 << 17), "memory_timeout": (0, WORD, -1, WORD + 1),
    "timeout": (0, 1e9, -0.01, float("-inf")), "threads": (1, 256, 0, 257),
    "slots": (1, 1 << 14, 0, 1 << 60),
}


@pytest.mark.parametrize("option", OPTIONS)
def test_ends_of_an_option(option):
    least, most, *beyond = OPTIONS[option]
    # The golden model answers at once, the card in software later than in no time.
    opened = partial(hotrow.open, "model" if option == "timeout" else "cpu", preset="tiny")
    for value in (least, most):
        opened(**{option: value}).close()
    for value in beyond:
        with pytest.raises(hotrow.Error, match=option):
            opened(**{option: value})


@pytest.mark.parametrize("patience, tries, taken", [
    (1e-3, 1, True), (0.5, 8, True), (0, 1, False), (-1, 1, False), (float("nan"), 1, False),
    (0.5, 0, False)])
def test_ends_of_a_links_options(patience, tries, taken):
    class Gone(Exception):
        """From the channel, so that the options were taken."""

    class Channel:
        name = "gone"

        def send(self, *_):
            raise Gone

        attune = receive = send

        def close(self):
            pass

    with pytest.raises(Gone if taken else ValueError):
        LinkTransport("gone", Channel(), patience, tries)


def test_memory_of_an_array():
    """Repeated rows are one row; of no elements there is no memory."""
    row = hotrow.empty(DIM, np.float32)
    assert span(np.broadcast_to(row, (5, DIM))) == (row.ctypes.data, row.nbytes)
    for wrong in (row[:0], row[::-1], row[:0:2]):
        with pytest.raises(hotrow.RegistrationError, match="elements and without negative strides"):
            span(wrong)


def test_a_region_has_fewer_bytes_than_an_address_can_tell():
    with hotrow.open("model", preset="tiny") as device:
        row = hotrow.empty(16, np.uint8)
        for reach in (1 << OFFSET_WIDTH, (1 << OFFSET_WIDTH) + 1):
            array = np.lib.stride_tricks.as_strided(row, (2,), (reach - 1,))
            with pytest.raises(hotrow.RegistrationError, match=f"has {reach} bytes: a region"):
                device.register(array)


def test_an_address_of_no_region_has_words():
    with hotrow.open("model", preset="tiny") as device:
        regions = device.regions
        known = device.register(hotrow.empty(16, np.uint8))
        assert regions.describe(packed_address(known.handle, 5)) == f"{known.name} + 0x5"
        for handle in (known.handle + 1, known.handle + 2):
            assert regions.describe(packed_address(handle, 5)) == (
                f"unregistered handle {handle} + 0x5")
