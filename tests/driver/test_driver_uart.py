"""The transport `uart` at a pseudo-terminal with a golden card: use, unplugging, opening again."""

import os
import threading
import time

import hotrow
import numpy as np
import pytest
from hotrow import TransportError
from hotrow.transports.link.serial_line import RATES, SerialLine

from tests.driver.conftest import register_tables, usable
from tests.driver.links import declared_transports, model_card
from tests.support.link.serial_card import SerialCard


@pytest.fixture
def line(monkeypatch):
    """A golden card at a serial line."""
    declared_transports(monkeypatch)
    with SerialCard(model_card().endpoint()) as line:
        yield line


def test_a_card_at_a_line(line):
    with hotrow.open(f"uart:{line.path}", timeout=60, patience=5.0) as device:
        assert device.geometry.bus_bytes == 16 and device.transport.name == "uart"
        assert usable(device, register_tables(device))
        assert not any(device.transport.counters().values()) or (
            device.transport.counters()["wrong_length"] == 1), "what the rate is measured by"


def test_opening_again_after_closing(line):
    for _ in range(2):
        with hotrow.open(f"uart:{line.path}", timeout=60, patience=5.0) as device:
            assert usable(device, register_tables(device))


def test_one_program_at_a_time(line):
    """Of two that opened the line one after the other, the card heeds the later one."""
    if os.geteuid() != 0:
        pytest.skip("the system itself keeps all but root from opening a line twice")
    first = hotrow.open(f"uart:{line.path}", timeout=60, patience=5.0, tries=2)
    with hotrow.open(f"uart:{line.path}", timeout=60, patience=5.0) as second:
        first.transport.session.patience = 0.05
        with pytest.raises(TransportError, match="no other program uses it"):
            first.cycle()
            first.cycle()
        assert usable(second, register_tables(second))


@pytest.mark.slow
def test_a_line_that_accepts_nothing_is_named():
    board, host = os.openpty()
    line = SerialLine(os.ttyname(host), 115_200, settle=0.5)
    try:
        line.send(b"abc")
        assert os.read(board, 100) == b"\xc0abc\xc0"
        with pytest.raises(TransportError, match=r"accepted no byte for 0\.5 s: is the board"):
            line.send(bytes(1 << 20))
    finally:
        line.close()
        os.close(board)
        os.close(host)


@pytest.mark.slow
def test_unplugged_in_the_middle_of_a_command(monkeypatch):
    declared_transports(monkeypatch)
    card = model_card()
    with SerialCard(card.endpoint()) as line:
        device = hotrow.open(f"uart:{line.path}", timeout=300, patience=5.0, tries=3)
        register_tables(device)
        cut = threading.Timer(0.2, line.unplug)
        cut.start()
        began = time.monotonic()
        with pytest.raises(TransportError, match=r"is gone: the board was unplugged .*open the "
                                                 "device again"):
            while True:
                device.observe(np.zeros((20, 3), np.int64))
        assert time.monotonic() - began < 200, "long before the time-out of a command"
        cut.join()
        device.close()
        device.close()
    with SerialCard(card.endpoint()) as line, hotrow.open(
            f"uart:{line.path}", timeout=60, patience=5.0) as device:
        assert usable(device, register_tables(device))


def test_a_card_that_falls_silent(line):
    device = hotrow.open(f"uart:{line.path}", timeout=30, patience=5.0, tries=3)
    device.transport.session.patience = 0.05
    line._endpoint.answer = lambda frame: None
    with pytest.raises(TransportError, match=r"no answer to READ_REGISTER within 0\.15 s"):
        device.cycle()
    device.close()


@pytest.mark.parametrize("address, options, message", [
    ("", {}, "no serial line was named"),
    (":/nowhere/ttyUSB9", {}, "'uart': /nowhere/ttyUSB9: No such file.*; check the address"),
    (":/dev/null", {}, "/dev/null is not a serial line"),
    (":/dev/null", {"baud": 12345}, "does not support 12345 baud: choose one of"),
    (":/dev/null", {"patience": 0}, "is not a serial line"),
    (":/dev/null", {"speed": 9600}, "given an option it lacks"),
])
def test_lines_that_cannot_be_opened(monkeypatch, address, options, message):
    declared_transports(monkeypatch)
    with pytest.raises(TransportError, match=message):
        hotrow.open(f"uart{address}", **options)


def test_usual_rates():
    assert {9600, 115_200} <= RATES.keys() and 0 not in RATES
