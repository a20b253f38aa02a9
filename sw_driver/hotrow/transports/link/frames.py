"""The frames of a link: packed, checked and unpacked."""

import struct
import zlib
from dataclasses import dataclass

from ...contract.generated import (
    LINK_CARD_FIELDS,
    LINK_COUNTERS,
    LINK_HEADER_FIELDS,
    REPLY_FLAG,
    LinkStatus,
    Operation,
)

_CRC = struct.Struct("<I")
_FORMATS = {1: "B", 2: "H", 4: "I"}


def _record(fields: tuple[tuple[str, int, int], ...]) -> tuple[struct.Struct, list[str]]:
    """The Struct of consecutive fields, and their names."""
    return (struct.Struct("<" + "".join(_FORMATS[width] for _, _, width in fields)),
            [name for name, _, _ in fields])


_HEADER, _HEADER_FIELDS = _record(LINK_HEADER_FIELDS)
_CARD, _CARD_FIELDS = _record(LINK_CARD_FIELDS)
_COUNTERS = struct.Struct(f"<{len(LINK_COUNTERS)}H")


class DamagedFrame(ValueError):
    """Bytes that are not a frame; the message says why."""


@dataclass(frozen=True)
class Answer:
    """An answer of a card."""

    session: int
    sequence: int
    operation: Operation
    status: LinkStatus
    payload: bytes


def pack_request(session: int, sequence: int, operation: int, address: int = 0, length: int = 0,
                 payload: bytes = b"") -> bytes:
    """One request with its CRC; a payload replaces `length` by its own."""
    body = _HEADER.pack(session, sequence, operation, 0, address, len(payload) or length,
                        0) + payload
    return body + _CRC.pack(zlib.crc32(body))


def unpack_answer(frame: bytes) -> Answer:
    """The answer in a frame.

    Raises
    ------
    DamagedFrame
        If it is too short, its CRC or its length is wrong, or its operation or status is unknown.
    """
    if len(frame) < _HEADER.size + _CRC.size:
        raise DamagedFrame(f"a frame has at least {_HEADER.size + _CRC.size} bytes, not "
                           f"{len(frame)}")
    body, crc = frame[:-_CRC.size], _CRC.unpack(frame[-_CRC.size:])[0]
    if zlib.crc32(body) != crc:
        raise DamagedFrame(f"the CRC of a frame of {len(frame)} bytes is wrong")
    header = dict(zip(_HEADER_FIELDS, _HEADER.unpack_from(body), strict=True))
    payload = body[_HEADER.size:]
    if header["length"] != len(payload):
        raise DamagedFrame(f"a frame has {len(payload)} bytes of payload, but its header says "
                           f"{header['length']}")
    try:
        return Answer(header["session"], header["sequence"],
                      Operation(header["operation"] ^ REPLY_FLAG),
                      LinkStatus(header["status"]), payload)
    except ValueError as unknown:
        raise DamagedFrame(f"a frame has an unknown operation or status: {unknown}") from unknown


def unpack_card(payload: bytes) -> dict[str, int]:
    """The description of a card in the answer to a BIND, by name.

    Raises
    ------
    DamagedFrame
        If the payload has another size.
    """
    if len(payload) != _CARD.size:
        raise DamagedFrame(f"a card describes itself in {_CARD.size} bytes, not {len(payload)}")
    return dict(zip(_CARD_FIELDS, _CARD.unpack(payload), strict=True))


def unpack_counters(payload: bytes) -> dict[str, int]:
    """The counters in the answer to a READ_COUNTERS, by name."""
    return dict(zip(LINK_COUNTERS, _COUNTERS.unpack(payload), strict=True))
