"""A whole board in simulation with DRAM and LiteDRAM's controller: bring-up, driver, failure."""

import hotrow
import numpy as np
import pytest
from hotrow import TransportError
from hotrow.transports.link import transport as link_transport
from hotrow.transports.link.frames import LinkStatus, Operation
from hotrow.transports.link.serial_line import SerialLine
from hotrow.transports.link.session import Session

from tests.boards.board_program import run_program
from tests.boards.generators import needs_litedram
from tests.boards.simulated_board import PATIENCE, open_board_with_dram
from tests.driver.links import declared_transports

pytestmark = [
    pytest.mark.slow, pytest.mark.long, pytest.mark.nightly, pytest.mark.timeout(3600),
    needs_litedram]
WINDOWS = ((1, 2, 3), (2, 4, 4))  # working read delays, different for each lane
_STAGING_SHARE = 1 << 13  # of the card's memory: little to send over a slow line


@pytest.fixture(params=[pytest.param(WINDOWS, id="DDR3"), "SDR"])
def device(monkeypatch, request):
    declared_transports(monkeypatch)
    monkeypatch.setattr(link_transport, "_STAGING_SHARE", _STAGING_SHARE)
    with open_board_with_dram(request.param) as board, hotrow.open(
            f"uart:{board.path}", timeout=600, ring_entries=4, patience=PATIENCE) as device:
        yield device


def test_a_program(device):
    assert device.transport.session.card["memory_bytes"] in (128 << 20, 32 << 20)
    run_program(device)
    assert device.transport.counters()["bad_crc"] == 0


def test_tables_at_the_end_of_the_memory(device):
    """After reserved memory, so that little travels over the line."""
    memory = device.transport.memory
    high = device.transport.session.card["memory_bytes"] - (1 << 20)
    memory._ranges.place(0, high)
    weights = np.random.default_rng(5).integers(0, 1 << 30, (40, 16)).astype(np.float32)
    table = device.register_table(weights, "far")
    assert max(memory._arrays) >= high
    rows = np.random.default_rng(6).permutation(40)[:25]
    assert (device.gather((table, rows)) == weights[rows]).all()
    expected = weights.copy()
    expected[rows] = -expected[rows] - 1
    device.scatter((table, rows), expected[rows])
    assert (weights == expected).all()


def test_a_dram_that_does_not_calibrate(monkeypatch):
    declared_transports(monkeypatch)
    with open_board_with_dram((WINDOWS[0], None)) as board:
        with pytest.raises(TransportError, match=r"the card's DRAM did not calibrate: its "
                                                 r"controller found no delay .* --memory block"):
            hotrow.open(f"uart:{board.path}", ring_entries=4, patience=PATIENCE)
        # The card still replies and refuses accesses to its memory.
        monkeypatch.setattr(Session, "_bind", lambda session: session.request(
            Operation.BIND).result())
        session = Session(SerialLine(board.path, 3_000_000), PATIENCE, 2)
        for operation, more in ((Operation.READ_MEMORY, {"length": 8}),
                                (Operation.WRITE_MEMORY, {"payload": b"nothing."})):
            answer = session.request(operation, 0, **more).result()
            assert answer.status is LinkStatus.MEMORY_FAILED and not answer.payload
