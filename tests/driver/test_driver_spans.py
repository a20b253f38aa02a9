"""COPY and FILL through the driver, against plain assignment."""

import hotrow
import numpy as np
import pytest
from hotrow import BatchError, RegistrationError, Status
from hotrow.contract.generated import Opcode

from tests.driver.conftest import raw, usable

CARDS = "model", "cpu", "sim", "sim-tiny", "pcie", "uart", "network"


def random_bytes(size, seed):
    octets = hotrow.empty(size, np.uint8)
    octets[:] = np.random.default_rng(seed).integers(0, 256, size)
    return octets


@pytest.mark.parametrize("count", [4, 60, 516, 5000])
@pytest.mark.parametrize("source_at, destination_at", [(0, 0), (4, 64), (28, 8), (0, 1020)])
def test_bytes_land_where_they_should(device, count, source_at, destination_at):
    source, destination = random_bytes(8192, 1), random_bytes(8192, 2)
    device.register(source)
    device.register(destination)
    expected = destination.copy()
    expected[destination_at:destination_at + count] = source[source_at:source_at + count]
    done = device.copy(source[source_at:source_at + count],
                       destination[destination_at:destination_at + count])
    assert (destination == expected).all() and done.cycles > 0
    assert device.statistics["COPY"].commands == 1


@pytest.mark.parametrize("count", [4, 60, 516, 5000])
@pytest.mark.parametrize("at", [0, 4, 1020])
def test_fills_stay_in_their_bounds(device, count, at):
    memory = random_bytes(8192, 3)
    device.register(memory)
    expected = memory.copy()
    expected[at:at + count].view(np.uint32)[:] = 0x1234_5678
    device.fill(memory[at:at + count].view(np.uint32), 0x1234_5678)
    assert (memory == expected).all() and device.statistics["FILL"].commands == 1


@pytest.mark.parametrize("dtype, value", [
    (np.uint8, 7), (np.int16, -2), (np.float16, 1.5), (np.float32, -0.1), (np.float64, 0),
    (np.int64, -1), (bool, True)])
def test_elements_of_any_type(device, dtype, value):
    array = hotrow.empty((6, 8), dtype)
    array[:] = 0
    device.fill(array, value)  # not registered
    assert (array == np.array(value, dtype)).all()
    other = hotrow.empty((6, 8), dtype)
    device.copy(array, device.register(other))
    assert (other == array).all()


@pytest.mark.long
def test_a_region_made_for_a_span_does_not_stay(device):
    for _ in range(2 * device.geometry.handles):
        device.fill(hotrow.empty(16, np.float32), 1)


def test_spans_and_gathers_follow_each_other(device, tables):
    out, kept = hotrow.empty((5, 8), np.float32), hotrow.empty((5, 8), np.float32)
    futures = [device.fill_async(out, 3), device.gather_async((tables[0], [4, 5]), out=out),
               device.copy_async(out, kept), device.fill_async(out, 0)]
    for future in futures:
        future.result()
    assert (kept[:2] == tables[0].weights[4:6]).all() and (kept[2:] == 3).all()
    assert (out == 0).all() and usable(device, tables)


@pytest.mark.parametrize("call, wrong, message", [
    (lambda d, a: d.copy(a[:8], a[8:20]), BatchError, "source has 8 bytes and destination 12"),
    (lambda d, a: d.copy(a[:16], a[12:28]), BatchError, "overlap"),
    (lambda d, a: d.copy(a[:6], a[32:38]), BatchError, "6 bytes: expected a multiple of 4"),
    (lambda d, a: d.copy(a[1:9], a[32:40]), RegistrationError, "not a multiple of 4 bytes"),
    (lambda d, a: d.copy(a[:32:2], a[64:80]), RegistrationError, "source must be contiguous"),
    (lambda d, a: d.fill(a[:0], 1), RegistrationError, "not empty"),
    (lambda d, a: d.fill(a[4:].view(np.float32)[:0], 1), RegistrationError, "not empty"),
    (lambda d, a: d.fill(a[:64].view(np.float64), 0.1), BatchError, "repeat every 4 bytes"),
    *((lambda d, a, kind=kind, value=value: d.fill(a[:64].view(kind), value), BatchError,
       "value must be a number that ") for kind, value in (
        ("i4", 3.7), ("u1", 300.0), ("u1", np.int64(300)), ("u1", np.int64(-1)), ("i4", np.nan),
        ("i2", np.float32(1e9)), ("i4", "3"), ("u1,u1,u2", 7), ("f4", 1e39), ("f2", 7e4))),
])
def test_what_spans_cannot_be(device, tables, call, wrong, message):
    memory = random_bytes(256, 4)
    device.register(memory)
    before = memory.copy()
    with pytest.raises(wrong, match=message):
        call(device, memory)
    assert (memory == before).all() and usable(device, tables)


def test_read_only_memory_is_not_written(device, tables):
    memory = random_bytes(256, 5)
    buffer = device.register(memory, writable=False)
    with pytest.raises(RegistrationError, match="registered with writable=False"):
        device.fill(buffer, 1)
    address = buffer.packed()
    before = memory.copy()
    for opcode in (Opcode.COPY, Opcode.FILL):
        assert raw(device, opcode, "move", source=address, destination=address + 64,
                   count=64) is Status.READ_ONLY
        assert raw(device, opcode, "move", source=address, destination=address + 200,
                   count=64) is Status.REGION
    assert (memory == before).all() and usable(device, tables)


def test_tensors(device):
    torch = pytest.importorskip("torch")
    buffer = torch.from_numpy(hotrow.empty(128, np.uint8)).view(torch.bfloat16)
    device.fill(buffer, 1.5)
    assert (buffer == 1.5).all()
    registered = device.register(buffer)
    device.fill(registered, -2)
    assert (buffer == -2).all()
    device.fill(buffer, float("inf"))
    for value in 1e39, torch.tensor(1e39, dtype=torch.float64):
        with pytest.raises(BatchError, match="out of range"):
            device.fill(buffer, value)
    assert (buffer == float("inf")).all()
    octets = torch.from_numpy(hotrow.empty(64, np.uint8))
    device.fill(octets, 255)
    with pytest.raises(BatchError, match="must be a number that uint8 holds"):
        device.fill(octets, -1)
    assert (octets == 255).all()
