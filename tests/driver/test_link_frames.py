"""The driver's side of a link's frames agrees with the golden model's, and refuses damage."""

import zlib

import numpy as np
import pytest
from hotrow.memory.address_ranges import AddressRanges
from hotrow.transports.link import frames
from hotrow.transports.link.serial_line import Decoder, encode
from hotrow_sim.link import endpoint


class Nothing:
    """A card without registers or memory."""

    def read_register(self, offset):
        return None

    def read(self, address, size):
        return bytes(size)


def test_a_request_and_its_answer():
    card = endpoint.LinkCard(0x4000, 1 << 20, window=8, clock_khz=77)
    end = endpoint.LinkEndpoint(Nothing(), card)
    answer = frames.unpack_answer(end.answer(frames.pack_request(5, 9, frames.Operation.BIND)))
    assert (answer.session, answer.sequence, answer.operation, answer.status) == (
        5, 9, frames.Operation.BIND, frames.LinkStatus.OK)
    assert frames.unpack_card(answer.payload) == {
        "version": 1, "window": 8, "block_log2": 8, "memory_base": 0x4000,
        "memory_bytes": 1 << 20, "clock_khz": 77}
    answer = frames.unpack_answer(end.answer(
        frames.pack_request(5, 10, frames.Operation.READ_REGISTER, 4, 4)))
    assert (answer.status, answer.payload) == (frames.LinkStatus.REFUSED, bytes(4))


def test_every_damaged_bit_is_noticed():
    end = endpoint.LinkEndpoint(Nothing(), endpoint.LinkCard(0, 64))
    whole = end.answer(frames.pack_request(1, 1, frames.Operation.BIND))
    for bit in range(8 * len(whole)):
        octets = bytearray(whole)
        octets[bit // 8] ^= 1 << bit % 8
        with pytest.raises(frames.DamagedFrame, match="CRC"):
            frames.unpack_answer(bytes(octets))


@pytest.mark.parametrize("change, message", [
    (lambda body: body[:10], "at least 20 bytes, not 14"),
    (lambda body: body + b"x", "17 bytes of payload, but its header says 16"),
    (lambda body: body[:6] + b"\x9f" + body[7:], "unknown operation or status"),
    (lambda body: body[:7] + b"\x9f" + body[8:], "unknown operation or status"),
])
def test_wrong_answers(change, message):
    end = endpoint.LinkEndpoint(Nothing(), endpoint.LinkCard(0, 64))
    body = change(end.answer(frames.pack_request(1, 1, frames.Operation.BIND))[:-4])
    with pytest.raises(frames.DamagedFrame, match=message):
        frames.unpack_answer(body + zlib.crc32(body).to_bytes(4, "little"))


def test_frames_on_a_line_are_separated_again():
    rng = np.random.default_rng(0)
    some = [bytes(rng.choice([0, 0xC0, 0xDB, 0xDC, 0xDD, 7], int(size)).astype(np.uint8))
            for size in rng.integers(1, 30, 200)]
    line = b"".join(map(encode, some))
    assert encode(b"\xc0\xdb\x07") == bytes.fromhex("c0dbdcdbdd07c0"), "RFC 1055"
    decoder, found, at = Decoder(), [], 0
    while at < len(line):
        size = int(rng.integers(1, 50))
        found += decoder.feed(line[at:at + size])
        at += size
    assert found == some


def test_places_of_a_cards_memory():
    ranges = AddressRanges(0x100, 1000)
    first = ranges.place(host=7, size=100)
    second = ranges.place(host=64, size=500)
    assert (first, second) == (0x107, 0x180)
    with pytest.raises(MemoryError, match=r"no room for 400 bytes .* of 1000, of which 600 are "
                                          "in use in 2 pieces"):
        ranges.place(0, 400)
    ranges.release(first)
    assert ranges.place(0, 128) == 0x100 and ranges.place(0, 300) == 0x380
    with pytest.raises(MemoryError, match="no room for 41 bytes"):
        ranges.place(0, 41)
    assert ranges.place(0, 40) == 0x4C0 == 0x100 + 1000 - 40
