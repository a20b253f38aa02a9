"""Golden model of the card's link endpoint: the reply to each frame."""

import zlib
from dataclasses import dataclass
from typing import Protocol

from hotrow_rtl.contract.link_frames import (
    CARD,
    CARD_BYTES,
    COUNTERS,
    COUNTERS_BYTES,
    CRC_BYTES,
    HEADER,
    HEADER_BYTES,
    LARGEST_PAYLOAD,
    LINK_VERSION,
    REPLY_FLAG,
    TAKE_LEAST,
    WITH_PAYLOAD,
    LinkStatus,
    Operation,
)

NUMBERS = 1 << 16
MOST_COUNTED = (1 << 16) - 1


class Target(Protocol):
    """Registers and memory of a card."""

    def read_register(self, offset: int) -> int | None:
        """The register at byte `offset`, or None if the access is refused."""

    def write_register(self, offset: int, value: int) -> bool:
        """Write a register; whether the access is possible."""

    def read(self, address: int, size: int) -> bytes | None:
        """Read memory; None if a byte of it does not exist."""

    def write(self, address: int, octets: bytes) -> bool:
        """Write memory; whether all of it exists."""

    def take_written(self, most: int) -> tuple[list[int], bool]:
        """Up to `most` blocks written since they were last reported, and whether there are more."""


@dataclass(frozen=True)
class LinkCard:
    """Description of a card; see ``contract.link_frames.CARD``.

    Parameters
    ----------
    memory_base, memory_bytes : int
    window : int
        Requests in flight, a power of two.
    block_log2 : int
    clock_khz : int
    """

    memory_base: int
    memory_bytes: int
    window: int = 4
    block_log2: int = 8
    clock_khz: int = 0
    version: int = LINK_VERSION


def pack(fields, size, values) -> bytes:
    """A record from the values of its fields by name; missing ones are 0."""
    octets = bytearray(size)
    for field in fields.values():
        octets[field.offset:field.offset + field.bytes] = values.get(field.name, 0).to_bytes(
            field.bytes, "little")
    return bytes(octets)


def unpack(fields, octets) -> dict[str, int]:
    """The values of a record's fields by name."""
    return {field.name: int.from_bytes(octets[field.offset:field.offset + field.bytes], "little")
            for field in fields.values()}


def with_crc(body: bytes) -> bytes:
    """Header and payload followed by their CRC."""
    return body + zlib.crc32(body).to_bytes(CRC_BYTES, "little")


class LinkEndpoint:
    """The link endpoint of one card.

    Parameters
    ----------
    target : Target
    card : LinkCard
    replaceable : callable
        Whether another session may replace the bound one; called at a BIND.
    memory : LinkStatus
        OK, MEMORY_STARTING or MEMORY_FAILED; may change at any time.

    Attributes
    ----------
    counters : dict of str to int
        See ``contract.link_frames.COUNTERS``.
    received : int
        Frames of the bound host so far, executed or not.
    """

    def __init__(self, target: Target, card: LinkCard, replaceable=lambda: True,
                 memory=LinkStatus.OK):
        self.target, self.card, self._replaceable = target, card, replaceable
        self.memory = memory
        self.counters, self.received = dict.fromkeys(COUNTERS, 0), 0
        self._bound = None  # session and peer
        self._expected = 0
        self._answers = {}  # the last ones, by sequence

    def answer(self, frame: bytes, peer=None) -> bytes | None:
        """Reply of the card to a `frame` from `peer`, or None."""
        wrong = self._wrong(frame)
        if wrong:
            return self._ignore(wrong)
        header, payload = unpack(HEADER, frame), frame[HEADER_BYTES:-CRC_BYTES]
        sequence, mine = header["sequence"], self._bound == (header["session"], peer)
        if not mine:
            begins = header["operation"] == Operation.BIND and header["session"]
            if not begins or not (self._bound is None or self._replaceable()):
                return self._ignore("foreign")
            self._bound, self._answers = (header["session"], peer), {}
            self._expected = sequence
        self.received += 1
        if sequence in self._answers:
            self._ignore("replayed")
            return self._answers[sequence]
        if sequence != self._expected:
            return self._ignore("out_of_order")
        self._expected = (sequence + 1) % NUMBERS
        self._answers.pop((sequence - self.card.window) % NUMBERS, None)
        self._answers[sequence] = self._executed(header, payload)
        return self._answers[sequence]

    def _wrong(self, frame):
        """Name of the counter of an invalid frame, or None."""
        if not HEADER_BYTES + CRC_BYTES <= len(frame) <= HEADER_BYTES + LARGEST_PAYLOAD + CRC_BYTES:
            return "wrong_length"
        if with_crc(frame[:-CRC_BYTES]) != frame:
            return "bad_crc"
        header = unpack(HEADER, frame)
        expected = header["length"] if header["operation"] in WITH_PAYLOAD else 0
        if len(frame) != HEADER_BYTES + expected + CRC_BYTES:
            return "wrong_length"
        return None

    def _ignore(self, reason):
        self.counters[reason] = min(self.counters[reason] + 1, MOST_COUNTED)

    def _executed(self, header, payload):
        status, found = self._do(header["operation"], header["address"], header["length"], payload)
        return with_crc(pack(HEADER, HEADER_BYTES, {
            **header, "operation": header["operation"] | REPLY_FLAG, "status": status,
            "length": len(found), "reserved": 0}) + found)

    def _do(self, operation, address, length, payload):
        """Status and payload of the reply."""
        if operation not in list(Operation):
            return LinkStatus.BAD_OPERATION, b""
        if not _accepts(operation, length):
            return LinkStatus.BAD_LENGTH, b""
        return getattr(self, f"_{Operation(operation).name.lower()}")(address, length, payload)

    def _bind(self, address, length, payload):
        return self.memory, pack(CARD, CARD_BYTES, vars(self.card))

    def _read_register(self, address, length, payload):
        value = self.target.read_register(address)
        return ((LinkStatus.REFUSED, bytes(4)) if value is None
                else (LinkStatus.OK, value.to_bytes(4, "little")))

    def _write_register(self, address, length, payload):
        done = self.target.write_register(address, int.from_bytes(payload, "little"))
        return LinkStatus.OK if done else LinkStatus.REFUSED, b""

    def _read_memory(self, address, length, payload):
        if self.memory is not LinkStatus.OK:
            return self.memory, b""
        found = self.target.read(address, length)
        return (LinkStatus.REFUSED, b"") if found is None else (LinkStatus.OK, found)

    def _write_memory(self, address, length, payload):
        if self.memory is not LinkStatus.OK:
            return self.memory, b""
        done = self.target.write(address, payload)
        return LinkStatus.OK if done else LinkStatus.REFUSED, b""

    def _take_written(self, address, length, payload):
        blocks, more = self.target.take_written(length // 4)
        return (LinkStatus.MORE if more else LinkStatus.OK,
                b"".join(block.to_bytes(4, "little") for block in blocks))

    def _read_counters(self, address, length, payload):
        return LinkStatus.OK, b"".join(
            count.to_bytes(2, "little") for count in self.counters.values())


def _accepts(operation, length):
    """Whether an operation accepts a length."""
    match operation:
        case Operation.BIND:
            return True
        case Operation.READ_REGISTER | Operation.WRITE_REGISTER:
            return length == 4
        case Operation.READ_MEMORY | Operation.WRITE_MEMORY:
            return 1 <= length <= LARGEST_PAYLOAD
        case Operation.TAKE_WRITTEN:
            return TAKE_LEAST <= length <= LARGEST_PAYLOAD and length % 4 == 0
        case Operation.READ_COUNTERS:
            return length == COUNTERS_BYTES
