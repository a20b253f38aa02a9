"""The frames of a link, by which a host reaches a card that does not share its memory.

A request is a header, a payload if it writes, and a CRC; the card answers each with such a frame.
Gateware, golden endpoint and the driver's ``hotrow.contract.generated`` are derived from it.
"""

from enum import IntEnum

from .encoding import Field, documented

LINK_VERSION = 1
HEADER_BYTES = 16
CRC_BYTES = 4  # CRC-32 of IEEE 802.3 over header and payload, least byte first
LARGEST_PAYLOAD = 992  # so that a whole frame is shorter than 1024 bytes
REPLY_FLAG = 0x80  # set in the operation of an answer

# A serial line separates frames as RFC 1055 does.
SLIP_END, SLIP_ESCAPE, SLIP_ESCAPED_END, SLIP_ESCAPED_ESCAPE = 0xC0, 0xDB, 0xDC, 0xDD
# A card measures the rate of a serial line on several SYNC_BYTEs; two IDLE_BYTEs after them mark
# the start of the next byte.
SYNC_BYTE, IDLE_BYTE = 0x55, 0xFF
UDP_PORT = 18514  # at which a card in a network receives datagrams of one frame each


class Operation(IntEnum):
    """What the card does for a request."""

    __new__ = documented

    BIND = 1, ("start the session that the header names; the answer's payload describes the card. "
               "Ignored while another session is bound")
    READ_REGISTER = 2, "read 4 bytes at `address` of the register space"
    WRITE_REGISTER = 3, "write 4 bytes at `address` of the register space"
    READ_MEMORY = 4, "read `length` bytes"
    WRITE_MEMORY = 5, "write the payload of `length` bytes"
    TAKE_WRITTEN = 6, ("return the numbers of blocks of memory that the card wrote since the last "
                       "such request, a uint32 each, in up to `length` bytes: a multiple of 4, at "
                       "least TAKE_LEAST. Status MORE if there may be others")
    READ_COUNTERS = 7, "return the counters of ignored and repeated frames, uint16 that saturate"


class LinkStatus(IntEnum):
    """How a request ended."""

    __new__ = documented

    OK = 0, "done"
    MORE = 1, "done; request the rest"
    BAD_OPERATION = 2, "no such operation"
    BAD_LENGTH = 3, "a length that the operation does not have; nothing was done"
    REFUSED = 4, ("the register or a byte of the memory does not exist, or has no such access, or "
                  "the memory did not answer in time")
    MEMORY_STARTING = 5, "BIND and accesses to memory: the memory is not ready; try again"
    MEMORY_FAILED = 6, ("BIND and accesses to memory: the card's DRAM did not calibrate, as no "
                        "delay was found at which its reads are right")


WITH_PAYLOAD = (Operation.WRITE_REGISTER, Operation.WRITE_MEMORY)  # the only such requests
TAKE_LEAST = 128  # bytes; the card reads the marks of 32 blocks at a time

HEADER = {field.name: field for field in (
    Field("session", 0, 4, "session of the frame; not 0"),
    Field("sequence", 4, 2, "number of the request, 1 more than that of the last, modulo 2**16"),
    Field("operation", 6, 1, "operation of the request; in an answer with REPLY_FLAG set"),
    Field("status", 7, 1, "of an answer; 0 in a request"),
    Field("address", 8, 4, "first byte in the registers or the memory"),
    Field("length", 12, 2, "bytes of payload; in a request that reads, of the answer's payload"),
    Field("reserved", 14, 2, "0"),
)}

CARD = {field.name: field for field in (  # payload of the answer to a BIND
    Field("version", 0, 2, "of this format"),
    Field("window", 2, 1, "requests that the card accepts before it has answered the first"),
    Field("block_log2", 3, 1, "log2 of the bytes of a block, see TAKE_WRITTEN"),
    Field("memory_base", 4, 4, "first byte of the card's memory"),
    Field("memory_bytes", 8, 4, "size of the card's memory"),
    Field("clock_khz", 12, 4, "clock of the card in kHz"),
)}
CARD_BYTES = 16

COUNTERS = {name: (2 * number, doc) for number, (name, doc) in enumerate((
    ("bad_crc", "frames with a wrong CRC"),
    ("wrong_length", "frames that are too short, too long, or not of the length in their header"),
    ("overrun", "frames for which the card had no room"),
    ("foreign", "frames of another session or from another peer"),
    ("replayed", "requests that the card had carried out, and only answered again"),
    ("out_of_order", "requests ahead of the next one, or too old to be answered again"),
))}
COUNTERS_BYTES = 2 * len(COUNTERS)
