"""The bridge behind a root complex: random sessions, exact cycles, rates, and every error."""

import numpy as np
import pytest
from hotrow_rtl.memory.axi import AXI4Read, AXI4Write
from hotrow_rtl.pcie.bridge import Bridge
from hotrow_rtl.pcie.layouts import TAGS

from tests.rtl.pcie.pcie_cycles import cycles_per_read, read_cycles, write_cycles

pytest.importorskip("cocotbext.pcie", reason="cocotbext-pcie is not installed")

from tests.support.pcie.bench import BridgeBench
from tests.support.pcie.rate import CLOCKS, QUOTED, link_rate, read_rate
from tests.support.pcie.root_complex import FAULT_BLOCK, FAULTS, MEMORY, RootComplex
from tests.support.pcie.session import RESPONSES, STATES, Session

pytestmark = pytest.mark.slow
# Bytes; each is built once, and every case of both runs.
WIDTHS = [pytest.param(bus_bytes, marks=pytest.mark.slow) for bus_bytes in (16, 8)]
SESSIONS = (0, 1, 27, 36)  # seeds
TIMEOUT = 400


def bench(bus_bytes, *, latency=30, timeout=TIMEOUT, **root):
    """A bench without stalls; reads in the lower half of the memory are checked."""
    rng = np.random.default_rng(7)
    host = RootComplex(rng, latency=latency, **{"splits": 0, **root})

    def expect(address, size):
        where = (address + np.arange(size)) % MEMORY
        return host.memory[where].tobytes(), [
            RESPONSES[host.faults.get(int(at) // FAULT_BLOCK)] for at in where[::bus_bytes]]
    return BridgeBench(bus_bytes, host, rng, expect, timeout=timeout)


@pytest.mark.parametrize("bus_bytes", WIDTHS)
@pytest.mark.parametrize("session", [*SESSIONS, *(
    pytest.param(seed, marks=pytest.mark.long) for seed in range(40) if seed not in SESSIONS)])
def test_sessions(bus_bytes, session):
    assert Session(session, bus_bytes).run(2) > 0


def test_the_sessions_have_every_state():
    drawn = {state for seed in SESSIONS for state in Session(seed, 16).state.items()}
    assert drawn == {(name, value) for name, values in STATES.items() for value in values}


@pytest.mark.parametrize("bus_bytes", WIDTHS)
@pytest.mark.parametrize("size", [64, 128, 512])
@pytest.mark.parametrize("base", [0, 1 << 40])
def test_cycles(bus_bytes, size, base):
    """One read and one write take the cycles of the model."""
    it = bench(bus_bytes, max_payload=512, latency=25)
    it.readers[0].bursts.append((base, size // bus_bytes, 1))
    while it.readers[0].bursts:
        it.step()
    start = it.link.cycle
    it.run(1000)
    assert it.link.cycle - start == read_cycles(size, bus_bytes, 25, base > 0)
    writer = it.writers[1]
    writer.write(base + MEMORY // 2, bytes(size), np.ones(size, bool), 2)
    while writer.words:
        it.step()
    start = it.link.cycle
    it.run(1000)
    assert it.link.cycle - start == write_cycles(size, bus_bytes, base > 0)


@pytest.mark.parametrize("bus_bytes", WIDTHS)
@pytest.mark.parametrize("row_bytes", [64, 128])
def test_row_reads_fill_the_link(bus_bytes, row_bytes):
    """Random rows at a microsecond, gen2 x4: 0.97 of the completions that the link carries.

    With 64 bytes in a packet, that limit is 0.88 of the link's rate with 128.
    """
    cycles, rate, in_flight = read_rate(bus_bytes, row_bytes, rows=1000)
    latency, pace = CLOCKS[bus_bytes], 2000 / CLOCKS[bus_bytes]
    expected = cycles_per_read(row_bytes, bus_bytes, latency, pace)
    assert in_flight == TAGS
    assert abs((cycles - latency) / 1000 / expected - 1) < 0.02
    assert rate * cycles / (cycles - latency) > 0.97 * link_rate(row_bytes)
    assert rate > 0.84 * QUOTED


@pytest.mark.parametrize("bus_bytes", WIDTHS)
@pytest.mark.parametrize("fault", FAULTS)
def test_errors(bus_bytes, fault):
    """A read that fails is answered with an error, and its tag comes back."""
    it = bench(bus_bytes, faults={2: fault, 3: fault}, lateness=2 * TIMEOUT + 50, splits=1)
    at = 2 * FAULT_BLOCK + 64
    for address in (0, at, at + FAULT_BLOCK, 4 * FAULT_BLOCK):
        it.readers[1].bursts.append((address, 256 // bus_bytes, 3))
    it.run(10 * TIMEOUT)
    for _ in range(4 * TIMEOUT):  # a late completion changes nothing
        it.step()
    it.root.latency = 200
    for row in range(2 * TAGS):  # all tags are back
        it.readers[0].bursts.append((5 * FAULT_BLOCK + 64 * row, 64 // bus_bytes, 0))
    it.run(10 * TIMEOUT)
    assert it.root.in_flight == TAGS


@pytest.mark.parametrize("bus_bytes", WIDTHS)
def test_tags_of_lost_requests_return(bus_bytes):
    """Four times as many requests as tags are lost: each is answered, none for ever."""
    it = bench(bus_bytes, faults={1: "lost"}, splits=1)
    for _ in range(4 * TAGS):
        it.readers[0].bursts.append((FAULT_BLOCK, 128 // bus_bytes, 0))
    it.readers[0].bursts.append((0, 4, 0))
    assert it.run(40 * TIMEOUT) > 12 * TIMEOUT


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
def test_widths():
    for widths in ((8, 16), (32, 32)):
        with pytest.raises(ValueError, match="all 8 or all 16 bytes wide"):
            Bridge([AXI4Read(address_width=32, bus_bytes=widths[0], id_width=1)],
                   [AXI4Write(address_width=32, bus_bytes=widths[1], id_width=1)], 12)
