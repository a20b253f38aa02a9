"""What `pcie_phy.py` adds to LitePCIe's PHY: enables of packets from the link, interrupts."""

import random

import pytest

from tests.rtl.export.test_export import needs_litepcie

pytestmark = needs_litepcie
SIZES = (3, 4, 5, 6, 7, 8, 9, 11, 19, 20, 35)  # double words of a packet


def packet(rng, size):
    """Double words of a packet whose header says so, with or without a digest."""
    digest = int(size > 4 and rng.random() < 0.5)
    is_long = int(size != 3 and rng.random() < 0.5)
    payload = size - 3 - is_long - digest
    fmt = is_long | (2 if payload else 0)
    if not payload:
        digest = size - 3 - is_long
    return [fmt << 29 | digest << 15 | payload] + [rng.getrandbits(32) for _ in range(size - 1)]


def send(stream, packets, rng):
    """Packets in beats of 128 bits, with any enables."""
    for each in packets:
        for at in range(0, len(each), 4):
            beat = [*each[at:at + 4], *[0x5A5A_5A5A] * 3][:4]
            yield stream.dat.eq(sum(dword << 32 * lane for lane, dword in enumerate(beat)))
            yield stream.be.eq(rng.choice((0, 0xFFFF)))
            yield stream.last.eq(at + 4 >= len(each))
            yield stream.valid.eq(1)
            yield
            while not (yield stream.ready):
                yield
        yield stream.valid.eq(0)
        for _ in range(rng.randrange(3)):
            yield


def receive(stream, enables, received, count, rng):
    """The enabled double words of packets."""
    current = []
    while len(received) < count:
        yield stream.ready.eq(rng.random() < 0.7)
        yield
        if not ((yield stream.valid) and (yield stream.ready)):
            continue
        data, be = (yield stream.dat), (yield enables)
        for lane in range(len(enables) // 4):
            bits = be >> 4 * lane & 0xF
            assert bits in (0, 0xF)
            if bits:
                current.append(data >> 32 * lane & 0xFFFF_FFFF)
        if (yield stream.last):
            received.append(current)
            current = []


@pytest.mark.parametrize("width", [64, 128])
def test_enables_are_those_of_the_header(width):
    """After LitePCIe's own conversion from 128 bits, whatever the hard block enables."""
    from hotrow_rtl.export.pcie_phy import Enables
    from litepcie.common import phy_layout
    from litex.soc.interconnect.stream import Endpoint, StrideConverter
    from migen import Module, run_simulation

    rng, received = random.Random(width), []
    packets = [packet(rng, rng.choice(SIZES)) for _ in range(60)]
    dut = Module()
    if width == 64:
        dut.submodules.converter = converter = StrideConverter(phy_layout(128), phy_layout(width))
        given, found = converter.sink, converter.source
    else:
        given = found = Endpoint(phy_layout(width))
    dut.submodules.enables = enables = Enables(found)
    run_simulation(dut, [send(given, packets, rng),
                         receive(found, enables.be, received, len(packets), rng)])
    assert received == packets


@pytest.mark.parametrize("ready", [0.1, 0.5])
def test_no_edge_of_the_interrupt_is_without_a_message(ready):
    """A message is offered from the cycle after an edge until it is accepted."""
    from hotrow_rtl.export.pcie_phy import Messages
    from migen import Record, Signal, run_simulation

    rng, interrupt, message = random.Random(5), Signal(), Record([("valid", 1), ("ready", 1)])
    together = 0  # an edge in the cycle in which a message is accepted

    def check():
        nonlocal together
        owed = before = False
        for cycle in range(500):
            level, accepts = rng.random() < 0.4, rng.random() < ready
            yield interrupt.eq(level)
            yield message.ready.eq(accepts)
            yield
            assert (yield message.valid) == owed, f"cycle {cycle}"
            edge = level and not before
            together += owed and accepts and edge
            owed, before = (owed and not accepts) or edge, level
    run_simulation(Messages(interrupt, message), check())
    assert together
