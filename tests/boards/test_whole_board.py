"""A whole board in simulation, through its serial pins: the driver, a training step, the line."""

import time

import hotrow
import numpy as np
import pytest
from hotrow import TransportError
from hotrow.transports.link.frames import Operation, pack_request
from hotrow.transports.link.serial_line import encode

from tests.boards.board_program import run_program, train
from tests.boards.simulated_board import PATIENCE, open_board
from tests.driver.conftest import pairs, random_ids, register_tables, usable
from tests.driver.links import declared_transports

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.nightly, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def board():
    """One board for all tests of this file."""
    with open_board() as board:
        yield board


@pytest.fixture
def device(board, monkeypatch):
    declared_transports(monkeypatch)
    with hotrow.open(f"uart:{board.path}", timeout=600, ring_entries=4, patience=PATIENCE
                     ) as device:
        yield device


def test_a_program(device):
    run_program(device)
    statistics = device.transport.session.statistics
    assert statistics.damaged == 0 and device.transport.counters()["bad_crc"] == 0


def test_every_engine(device):
    tables = register_tables(device)
    pooled = device.pool(([0, 0, 1], [1, 2, 3]), lengths=[2, 1])
    assert (pooled == [tables[0].weights[1] + tables[0].weights[2], tables[1].weights[3]]).all()
    before = tables[1].weights[4].copy()
    device.update((tables[1], [4]), np.ones((1, before.size), np.float32), 0.5)
    assert (tables[1].weights[4] == before - np.float32(0.5)).all()
    plan = device.plan([[1, 2, 3], [1, 2, 4]])
    assert pairs(plan.fills) == [(0, 1), (1, 2), (2, 3), (2, 4)]


@pytest.mark.parametrize("optimizer", ["sgd", "rowwise_adagrad"])
def test_training_steps_agree_with_plain_pytorch(device, optimizer):
    train(device, optimizer)


def test_hostile_frames_at_the_pins_are_counted_and_change_nothing(device):
    tables = register_tables(device)
    weights = [table.weights.copy() for table in tables]
    session = device.transport.session
    line, number = session._channel, session._number
    before = device.transport.counters()
    foreign = pack_request(number ^ 1, 5, Operation.WRITE_MEMORY, 0, payload=b"evil")
    damaged = bytearray(pack_request(number, session._next, Operation.WRITE_MEMORY, 0,
                                     payload=b"evil"))
    damaged[18] ^= 4
    ahead = pack_request(number, session._next + 9, Operation.WRITE_MEMORY, 0, payload=b"evil")
    for frame in (foreign, bytes(damaged), ahead, foreign[:7], bytes(3000)):
        line._write(encode(frame))
    after = device.transport.counters()
    assert {name: after[name] - before[name] for name in after} == {
        "bad_crc": 1, "wrong_length": 2, "overrun": 0, "foreign": 1, "replayed": 0,
        "out_of_order": 1}
    assert usable(device, tables)
    for table, kept in zip(tables, weights, strict=True):
        assert (table.weights == kept).all()


def test_another_rate_is_found(board, monkeypatch):
    declared_transports(monkeypatch)
    with hotrow.open(f"uart:{board.path}", ring_entries=4, patience=PATIENCE, baud=2_000_000
                     ) as device:
        assert device.geometry.bus_bytes == 8


def test_unplugged_in_the_middle_of_a_command_and_opened_again(monkeypatch):
    declared_transports(monkeypatch)
    with open_board() as board:
        device = hotrow.open(f"uart:{board.path}", timeout=600, ring_entries=4, patience=PATIENCE)
        register_tables(device)
        future = device.observe_async(random_ids(40, seed=1))
        board.unplug()
        began = time.monotonic()
        with pytest.raises(TransportError, match="is gone: the board was unplugged"):
            future.result()
        assert time.monotonic() - began < 300, "long before the time-out of a command"
        device.close()
    with open_board() as board, hotrow.open(
            f"uart:{board.path}", timeout=600, ring_entries=4, patience=PATIENCE) as device:
        assert usable(device, register_tables(device))
