"""A memory that answers with errors, or not at all: what the driver says, and how it recovers."""

import shutil
import time
from collections import Counter

import hotrow
import numpy as np
import pytest
from hotrow import CommandError, DeviceError, Status

from tests.driver.conftest import counts_of, picked, random_ids, register_tables, usable

pytestmark = pytest.mark.slow

PATIENCE = 2000  # cycles after which a port gives up
ANSWERS = [(2, Status.SLVERR), (3, Status.DECERR)]


@pytest.fixture
def device():
    missing = [tool for tool in ("g++", "make", "perl") if not shutil.which(tool)]
    if missing:
        pytest.skip(f"the transport sim needs {', '.join(missing)}")
    with hotrow.open("sim", preset="tiny", latency=20, memory_timeout=PATIENCE) as device:
        yield device
        if not device.closed:
            assert device.transport.violations() == []


def row_ports(device, half):
    """Names of the memory ports that read rows, or of those that write them."""
    return [name for name in device.transport.ports if name.startswith(half)]


@pytest.fixture
def tables(device):
    return register_tables(device)


@pytest.mark.parametrize("answer, status", ANSWERS)
def test_ids_that_cannot_be_read(device, tables, answer, status):
    ids = hotrow.empty((20, 3), np.uint32)
    ids[:] = random_ids(20, seed=1)
    buffer = device.register(ids)
    bus = device.geometry.bus_bytes
    device.transport.fail_range("list", buffer.device_address + 5 * bus, bus, answer)
    with pytest.raises(CommandError, match=f"OBSERVE ended with {status.name}.*index 20") as caught:
        device.observe(ids)
    assert (caught.value.status, caught.value.index) == (status, 20)
    hot = device.harvest(200)
    expected = Counter((i % 3, row) for i, row in enumerate(ids.ravel().tolist())
                       if not 20 <= i < 24)
    assert counts_of(hot) == expected
    assert usable(device, tables)


@pytest.mark.parametrize("answer, status", ANSWERS)
def test_a_row_that_cannot_be_read(device, tables, answer, status):
    out = hotrow.empty((3, 8), np.float32)
    out[:] = -1
    where = tables[1].buffers[0].device_address + 4 * tables[1].stride
    for port in row_ports(device, "row_read"):
        device.transport.fail_range(port, where, 1, answer)
    with pytest.raises(CommandError, match=f"GATHER ended with {status.name}.*index 1, address "
                       "weights of 't1' . 0x80") as caught:
        device.gather(([0, 1, 2], [9, 4, 7]), out=out)
    assert caught.value.status is status
    assert (out[[0, 2]] == [tables[0].weights[9], tables[2].weights[7]]).all()
    assert usable(device, tables)


@pytest.mark.parametrize("answer, status", ANSWERS)
@pytest.mark.parametrize("half", ["row_read", "row_write"])
def test_a_row_that_cannot_be_scattered(device, tables, half, answer, status):
    values = hotrow.empty((3, 8), np.float32)
    values[:] = np.arange(24).reshape(3, 8)
    source = device.register(values)
    before = tables[1].weights[4].copy()
    where = (source.device_address + 32 if half == "row_read"
             else tables[1].buffers[0].device_address + 4 * 32)
    for port in row_ports(device, half):
        device.transport.fail_range(port, where, 1, answer)
    with pytest.raises(CommandError, match=f"SCATTER ended with {status.name}.*index 1, address"
                       ) as caught:
        device.scatter(([0, 1, 2], [9, 4, 7]), source)
    assert caught.value.status is status
    assert device.regions.describe(caught.value.address).split(" + ") == (
        [source.name, "0x20"] if half == "row_read" else ["weights of 't1'", "0x80"])
    assert (tables[0].weights[9] == values[0]).all() and (tables[2].weights[7] == values[2]).all()
    if half == "row_read":
        assert (tables[1].weights[4] == before).all()
    assert usable(device, tables)


@pytest.mark.parametrize("answer, status", ANSWERS)
@pytest.mark.parametrize("half, call", [
    ("row_read", lambda device, source, out: device.copy(source, out)),
    ("row_write", lambda device, source, out: device.copy(source, out)),
    ("row_write", lambda device, source, out: device.fill(out, 3)),
])
def test_a_piece_that_cannot_be_moved(device, tables, half, call, answer, status):
    """The second piece of three; the others arrive."""
    piece = device.geometry.row_bytes
    source, out = (hotrow.empty(3 * piece, np.uint8) for _ in range(2))
    source[:], out[:] = 3, 9
    buffers = [device.register(each) for each in (source, out)]
    where = buffers[half == "row_write"].device_address + piece + 64
    for port in row_ports(device, half):
        device.transport.fail_range(port, where, 1, answer)
    with pytest.raises(CommandError, match=f"{status.name}.*index 1, address") as caught:
        call(device, source, out)
    assert device.regions.describe(caught.value.address) == (
        f"{buffers[half == 'row_write'].name} + {piece:#x}")
    assert (out[:piece] == 3).all() and (out[2 * piece:] == 3).all()
    assert half == "row_write" or (out[piece:2 * piece] == 9).all()
    assert usable(device, tables)


@pytest.mark.parametrize("port, call", [
    ("list", lambda device: device.split(random_ids(20, seed=2))),
    ("row_read", lambda device: device.gather(([0, 1], [0, 0]))),
    ("row_write", lambda device: device.gather(([0, 1], [0, 0]))),
    ("row_read", lambda device: device.scatter(([0, 1], [0, 0]), np.zeros((2, 8), np.float32))),
    ("row_write", lambda device: device.scatter(([0, 1], [0, 0]), np.zeros((2, 8), np.float32))),
    ("row_read", lambda device: device.copy(*(hotrow.empty(64, np.uint8) for _ in range(2)))),
    ("row_write", lambda device: device.fill(hotrow.empty(64, np.uint8), 1)),
    ("result0", lambda device: device.harvest(10)),
])
@pytest.mark.parametrize("accept", [True, False])
def test_a_memory_that_falls_silent(device, tables, port, call, accept):
    device.observe(random_ids(30, seed=3))
    for name in row_ports(device, port) if port.startswith("row") else [port]:
        device.transport.silence(name, device.cycle(), device.cycle() + 6 * PATIENCE, accept)
    with pytest.raises(hotrow.Error, match=r"stopped after a time-out: .*Device.reset\(\)"):
        call(device)
    device.reset()
    rows = device.harvest(50)
    assert rows.count.sum() == 90, "the counters kept their contents"
    assert (device.gather(rows) == picked(tables, rows)).all()
    assert usable(device, tables)


def test_a_memory_that_stays_silent(device, tables):
    for port in row_ports(device, "row_read"):
        device.transport.silence(port, device.cycle(), accept=True)
    held = device.gather_async((tables[0], [1]))
    device.transport.run(PATIENCE // 2)  # the read is under way, and not yet given up
    device.timeout = 0.3
    with pytest.raises(DeviceError, match=r"not become ready in 0.3 s after a reset .*power-up"):
        device.reset()
    with pytest.raises(DeviceError, match="reset while this command was under way"):
        held.result()
    with pytest.raises(DeviceError):
        device.fence(queue="lookup")
    start = time.monotonic()
    device.close()
    assert time.monotonic() - start < 30
