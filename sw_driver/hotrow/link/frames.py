"""The frames of a link, from the generated ``link.json``: packed, checked and unpacked."""

import json
import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum
from importlib import resources

_MAP = json.loads(resources.files("hotrow").joinpath("link.json").read_text("utf-8"))
_CONSTANTS = _MAP["constants"]

VERSION = _MAP["version"]
LARGEST_PAYLOAD = _CONSTANTS["LARGEST_PAYLOAD"]
TAKE_LEAST = _CONSTANTS["TAKE_LEAST"]
COUNTERS_BYTES = _CONSTANTS["COUNTERS_BYTES"]
SYNC_BYTE, IDLE_BYTE = _CONSTANTS["SYNC_BYTE"], _CONSTANTS["IDLE_BYTE"]
UDP_PORT = _CONSTANTS["UDP_PORT"]
SLIP_END, SLIP_ESCAPE = _CONSTANTS["SLIP_END"], _CONSTANTS["SLIP_ESCAPE"]
SLIP_ESCAPED_END = _CONSTANTS["SLIP_ESCAPED_END"]
SLIP_ESCAPED_ESCAPE = _CONSTANTS["SLIP_ESCAPED_ESCAPE"]

Operation = IntEnum("Operation", _MAP["operations"])
LinkStatus = IntEnum("LinkStatus", _MAP["status"])
STATUS_DOC = {LinkStatus[name]: text for name, text in _MAP["status_doc"].items()}
COUNTERS = tuple(counter["name"] for counter in _MAP["counters"])

_REPLY_FLAG = _CONSTANTS["REPLY_FLAG"]
_CRC = struct.Struct("<I")
_FORMATS = {1: "B", 2: "H", 4: "I"}


def _record(fields):
    """Struct of fields that follow one another, and their names."""
    return (struct.Struct("<" + "".join(_FORMATS[field["bytes"]] for field in fields)),
            [field["name"] for field in fields])


_HEADER, _HEADER_FIELDS = _record(_MAP["header"])
_CARD, _CARD_FIELDS = _record(_MAP["card"])
_COUNTERS = struct.Struct(f"<{len(COUNTERS)}H")


class DamagedFrame(ValueError):
    """Bytes that are no frame; the message says why."""


@dataclass(frozen=True)
class Answer:
    """What a card sent."""

    session: int
    sequence: int
    operation: Operation
    status: LinkStatus
    payload: bytes


def pack_request(session, sequence, operation, address=0, length=0, payload=b"") -> bytes:
    """One request with its CRC; `length` is that of the payload if there is one."""
    body = _HEADER.pack(session, sequence, operation, 0, address, len(payload) or length,
                        0) + payload
    return body + _CRC.pack(zlib.crc32(body))


def unpack_answer(frame: bytes) -> Answer:
    """The answer that a frame holds.

    Raises
    ------
    DamagedFrame
        If it is too short, its CRC or its length is wrong, or it answers nothing known.
    """
    if len(frame) < _HEADER.size + _CRC.size:
        raise DamagedFrame(f"a frame has at least {_HEADER.size + _CRC.size} bytes, not "
                           f"{len(frame)}")
    body, crc = frame[:-_CRC.size], _CRC.unpack(frame[-_CRC.size:])[0]
    if zlib.crc32(body) != crc:
        raise DamagedFrame(f"the CRC of a frame of {len(frame)} bytes is wrong")
    header = dict(zip(_HEADER_FIELDS, _HEADER.unpack_from(body)))
    payload = body[_HEADER.size:]
    if header["length"] != len(payload):
        raise DamagedFrame(f"a frame has {len(payload)} bytes of payload, not {header['length']} "
                           "as it says")
    try:
        return Answer(header["session"], header["sequence"],
                      Operation(header["operation"] ^ _REPLY_FLAG),
                      LinkStatus(header["status"]), payload)
    except ValueError as unknown:
        raise DamagedFrame(f"a frame answers nothing known: {unknown}") from unknown


def unpack_card(payload: bytes) -> dict:
    """What the answer to a BIND tells, by name.

    Raises
    ------
    DamagedFrame
        If it has another size.
    """
    if len(payload) != _CARD.size:
        raise DamagedFrame(f"a card describes itself in {_CARD.size} bytes, not {len(payload)}")
    return dict(zip(_CARD_FIELDS, _CARD.unpack(payload)))


def unpack_counters(payload: bytes) -> dict[str, int]:
    """What the answer to a READ_COUNTERS tells, by name."""
    return dict(zip(COUNTERS, _COUNTERS.unpack(payload)))
