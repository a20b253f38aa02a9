"""Packets of every kind, and damaged completions of requests in flight."""

import numpy as np
import pytest
from hotrow_rtl.pcie.layouts import TAGS, Type

pytest.importorskip("cocotbext.pcie", reason="cocotbext-pcie is not installed")

from cocotbext.pcie.core.tlp import CplStatus, TlpType

from tests.rtl.pcie.test_bridge import TIMEOUT, WIDTHS, bench
from tests.support.pcie.damage import DAMAGES
from tests.support.pcie.packets import COMPLETIONS, NOT_POSTED, packet, with_digest
from tests.support.pcie.root_complex import CARD, HOST, HostRequest

pytestmark = pytest.mark.slow

@pytest.mark.parametrize("bus_bytes", WIDTHS)
def test_every_kind(bus_bytes):
    """Of all formats and types: a request that is not posted has one answer, of its tag; nothing
    else has any. Registers are read and written as before."""
    it = bench(bus_bytes)
    rng, answers = it.rng, []
    for code in rng.permutation(256):
        fmt, kind, tag = int(code) >> 5, int(code) & 31, int(rng.integers(0, 256))
        address = [1] * (fmt & 1) + [0x8000_0010]
        request = packet(fmt, kind, 1, [int(HOST) << 16 | tag << 8 | 0xF, *address],
                         rng.bytes(4) if fmt & 2 else b"")
        answered = (fmt, kind) in NOT_POSTED or (kind == Type.MEMORY and fmt in (0, 1))
        it.root.requests.append(HostRequest(request, answers.append if answered else None))
        for _ in range(60):
            it.step()
        label = f"format {fmt:03b}, type {kind:05b}"
        assert not it.root.expected, f"{label}: no answer"
        if not answered:
            continue
        [answer] = answers
        answers.clear()
        assert answer.tag == tag, label
        assert answer.status == (CplStatus.SC if kind == Type.MEMORY else CplStatus.UR), label
        assert (answer.fmt_type == TlpType.CPL_LOCKED) == (kind == Type.LOCKED_MEMORY), label
    assert np.flatnonzero(it.registers.values).tolist() == [4], "only a write of memory writes"
    read = packet(0, Type.MEMORY, 1, [int(HOST) << 16 | 9 << 8 | 0xF, 0x8000_0010])
    it.root.requests.append(HostRequest(read, answers.append))
    it.run(200)
    assert int.from_bytes(answers[0].data, "little") == it.registers.values[4]


@pytest.mark.parametrize("bus_bytes", WIDTHS)
def test_a_completion_is_never_answered(bus_bytes):
    """Of any tag, status, format and kind, with nothing in flight."""
    it = bench(bus_bytes)
    for fmt in (0, 2):
        for kind in COMPLETIONS:
            for status in range(8):
                for tag in (0, 5, TAGS - 1, TAGS, 255):
                    payload = bytes(64) if fmt else b""
                    it.root.requests.append(HostRequest(packet(
                        fmt, kind, len(payload) // 4,
                        [status << 13 | 64, int(CARD) << 16 | tag << 8], payload)))
    it.run(10_000)
    for _ in range(100):
        it.step()  # `RootComplex.receive` refuses a completion that nothing asked for
    it.readers[0].bursts.append((0, 256 // bus_bytes, 1))
    it.run(200)


@pytest.mark.parametrize("bus_bytes", WIDTHS)
@pytest.mark.parametrize("kind", DAMAGES)
def test_damaged_completions(bus_bytes, kind):
    """One before the sound one changes nothing: the data is right, and no time-out passes."""
    it = bench(bus_bytes, damage=0.5, damages=(kind,), splits=0.5, spread=40, timeout=50_000)
    for row in range(100):
        words = int(it.rng.integers(1, 1 + 256 // bus_bytes))
        it.readers[row % 2].bursts.append((256 * row, words, row % 8))
    it.run(40_000)
    assert it.root.packets[f"completion, {kind}"] > 50


@pytest.mark.parametrize("bus_bytes", WIDTHS)
@pytest.mark.parametrize("dwords", [-5, -4, -3, -2, -1, 2, 3, 4, 5])
def test_a_payload_of_another_length(bus_bytes, dwords):
    """A completion alone whose payload is short or long is no data: the read ends by its time-out,
    and the tag is back later."""
    it = bench(bus_bytes)
    it.expect = it.readers[0].expect = lambda address, size: (
        bytes(size), [3 if address == 0 else 0] * (size // bus_bytes))
    it.root.memory[:] = 0
    pack = it.root.send

    def send(cycle):
        octets = pack(cycle)
        return octets and (octets[:4 * dwords] if dwords < 0 else octets + bytes(4 * dwords))
    it.root.send = send
    it.readers[0].bursts.append((0, 64 // bus_bytes, 1))
    assert it.run(4 * TIMEOUT) > TIMEOUT
    it.root.send = pack
    for row in range(2 * TAGS):
        it.readers[0].bursts.append((64 * (row + 1), 64 // bus_bytes, 1))
    it.run(8 * TIMEOUT)


@pytest.mark.parametrize("bus_bytes", WIDTHS)
@pytest.mark.parametrize("padded", [False, True])
def test_what_may_follow_the_payload(bus_bytes, padded):
    """A digest, and what LitePCIe's PHY adds to packets that are no multiple of 16 bytes."""
    it = bench(bus_bytes, splits=0.5, timeout=50_000)
    it.link.padded = padded
    send = it.root.send

    def some_with_digest(cycle):
        octets = send(cycle)
        return with_digest(octets) if octets and it.rng.random() < 0.5 else octets
    it.root.send = some_with_digest
    for words in range(1, 1 + 512 // bus_bytes):
        it.readers[0].bursts.append((0, words, 1))
    it.run(40_000)
