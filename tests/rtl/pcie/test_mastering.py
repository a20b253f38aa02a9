"""Bus master enable: without it no request of the card leaves, and each is answered."""

import numpy as np
import pytest
from hotrow_rtl.memory.axi import DECERR, OKAY
from hotrow_rtl.pcie.layouts import TAGS

pytest.importorskip("cocotbext.pcie", reason="cocotbext-pcie is not installed")

from cocotbext.pcie.core.tlp import CplStatus, Tlp, TlpType

from tests.rtl.pcie.test_bridge import WIDTHS, bench
from tests.support.pcie.bench import Stall
from tests.support.pcie.root_complex import HOST, MEMORY, HostRequest

pytestmark = pytest.mark.slow


def traffic(it, bursts):
    """Reads of one to three requests, and writes of as many packets."""
    for number in range(bursts):
        it.readers[number % 2].bursts.append((4096 * (number % 4), 512 // it.bus_bytes * (
            1 + number % 3), number % 8))
        it.writers[number % 2].write(
            MEMORY // 2 + MEMORY // 4 * (number % 2) + 512 * (number // 2), it.rng.bytes(384),
            np.ones(384, bool), number % 8)


def register_read(it, answers):
    request = Tlp()
    request.fmt_type, request.requester_id, request.tag = TlpType.MEM_READ, HOST, 9
    request.address, request.length, request.first_be = 0x8000_0010, 1, 0xF
    it.root.requests.append(HostRequest(request, answers.append))


@pytest.mark.parametrize("bus_bytes", WIDTHS)
def test_without_it(bus_bytes):
    """Reads and writes are refused with DECERR, registers answer; with it, all tags are there."""
    it = bench(bus_bytes, latency=1000, timeout=50_000)
    it.bus_bytes = bus_bytes
    it.mastering.on, answers = False, []
    traffic(it, 2 * TAGS)
    register_read(it, answers)
    it.run(20_000)
    assert not it.root.writes and not it.root.in_flight
    assert [writer.responses for writer in it.writers] == 2 * [TAGS * [DECERR]]
    assert all(reader.refused == reader.words > 0 for reader in it.readers)
    assert [answer.status for answer in answers] == [CplStatus.SC]
    it.mastering.on = True
    for writer in it.writers:
        writer.accepted.clear()
        writer.responses.clear()
    traffic(it, 2 * TAGS)
    it.run(20_000)
    assert it.root.in_flight == TAGS
    assert [writer.responses for writer in it.writers] == 2 * [TAGS * [OKAY]]


@pytest.mark.parametrize("bus_bytes", WIDTHS)
@pytest.mark.parametrize("stalls", [0.0, 0.5])
def test_cleared_in_any_cycle(bus_bytes, stalls):
    """Whatever is under way, only what the arbiter has leaves, and every burst is answered."""
    it = bench(bus_bytes, timeout=50_000, splits=0.5, spread=20)
    it.bus_bytes, it.link.stall = bus_bytes, Stall(it.rng, stalls)
    refused = 0
    for begin in range(0, 120, 3):
        traffic(it, 4)
        for _ in range(begin):
            it.step()
        it.mastering.on = False
        for _ in range(int(it.rng.integers(1, 100))):
            it.step()
        it.mastering.on = True
        it.run(20_000)
        for writer in it.writers:
            refused += writer.responses.count(DECERR)
            writer.responses.clear()
    assert refused and all(reader.refused for reader in it.readers)
    assert len(it.root.writes)


@pytest.mark.parametrize("bus_bytes", WIDTHS)
@pytest.mark.parametrize("stalls", [0.0, 0.5])
def test_what_has_begun_ends(bus_bytes, stalls):
    """Cleared in any cycle and not set: a request that has begun leaves whole, so every burst is
    answered."""
    it = bench(bus_bytes, timeout=50_000)
    it.bus_bytes, it.link.stall = bus_bytes, Stall(it.rng, stalls)
    for begin in range(24):
        it.mastering.on = True
        traffic(it, 2)
        for _ in range(begin):
            it.step()
        it.mastering.on = False
        it.run(2000)
    assert it.root.writes and it.root.in_flight and all(reader.refused for reader in it.readers)
