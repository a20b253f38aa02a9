"""The frames of a link: how a host that shares no memory with a card reaches it over bytes.

A request is a header, a payload if it writes, and a CRC; the card answers each with such a frame.
Gateware, golden endpoint and the driver's ``link.json`` are derived from what is written here.
"""

from enum import IntEnum

from .encoding import Field, documented

LINK_VERSION = 1
HEADER_BYTES = 16
CRC_BYTES = 4  # CRC-32 of IEEE 802.3 over header and payload, least byte first
LARGEST_PAYLOAD = 992  # a whole frame is then just less than 1024
REPLY_FLAG = 0x80  # set in the operation of an answer

# A serial line separates frames as RFC 1055 does.
SLIP_END, SLIP_ESCAPE, SLIP_ESCAPED_END, SLIP_ESCAPED_ESCAPE = 0xC0, 0xDB, 0xDC, 0xDD
# A card that does not know the rate of the line measures it by some of the first of these; behind
# two of the second it sees where bytes begin.
SYNC_BYTE, IDLE_BYTE = 0x55, 0xFF
# In a network a card waits for datagrams, each of which carries a frame.
UDP_PORT = 18514


class Operation(IntEnum):
    """What a request asks for."""

    __new__ = documented

    BIND = 1, ("begin the session that the header names; the answer's payload describes the card. "
               "Ignored while another session holds")
    READ_REGISTER = 2, "read 4 bytes at `address` of the register space"
    WRITE_REGISTER = 3, "write 4 bytes at `address` of the register space"
    READ_MEMORY = 4, "read `length` bytes"
    WRITE_MEMORY = 5, "write the payload of `length` bytes"
    TAKE_WRITTEN = 6, ("blocks of memory that the card wrote since it told them last: up to "
                       "`length` bytes, a multiple of 4, at least TAKE_LEAST; a uint32 of each "
                       "block's number. With MORE, some may be left")
    READ_COUNTERS = 7, "what the card ignored or answered again, a uint16 each that does not wrap"


class LinkStatus(IntEnum):
    """How a request ended."""

    __new__ = documented

    OK = 0, "done"
    MORE = 1, "done; ask again for the rest"
    BAD_OPERATION = 2, "there is no such operation"
    BAD_LENGTH = 3, "not a length that the operation takes; nothing was done"
    REFUSED = 4, "the register, or a byte of the memory, does not exist or cannot be accessed so"
    MEMORY_STARTING = 5, "of a BIND or an access to memory: it is not ready yet; ask again"
    MEMORY_FAILED = 6, ("of a BIND or an access to memory: the card's DRAM did not calibrate, no "
                        "delay was found at which its reads come right")


WITH_PAYLOAD = (Operation.WRITE_REGISTER, Operation.WRITE_MEMORY)  # the only such requests
TAKE_LEAST = 128  # bytes; blocks are looked through 32 at a time

HEADER = {field.name: field for field in (
    Field("session", 0, 4, "that the frame belongs to; not 0"),
    Field("sequence", 4, 2, "number of the request, 1 more than the one before, modulo 2**16"),
    Field("operation", 6, 1, "what is asked for; with REPLY_FLAG, what is answered"),
    Field("status", 7, 1, "of an answer; 0 in a request"),
    Field("address", 8, 4, "first byte of the registers or the memory"),
    Field("length", 12, 2, "bytes of payload; of a request that reads, of its answer's"),
    Field("reserved", 14, 2, "0"),
)}

CARD = {field.name: field for field in (  # payload of the answer to a BIND
    Field("version", 0, 2, "of this format"),
    Field("window", 2, 1, "requests that the card takes before the first is answered"),
    Field("block_log2", 3, 1, "log2 of the bytes of a block, in which writes are told"),
    Field("memory_base", 4, 4, "first byte of the card's memory"),
    Field("memory_bytes", 8, 4, "its size"),
    Field("clock_khz", 12, 4, "of the card, in kHz"),
)}
CARD_BYTES = 16

COUNTERS = {name: (2 * number, doc) for number, (name, doc) in enumerate((
    ("bad_crc", "frames whose CRC was wrong"),
    ("wrong_length", "frames too short, too long, or not as long as their header says"),
    ("overrun", "frames for which there was no room"),
    ("foreign", "frames of a session, or from a peer, that the card is not bound to"),
    ("replayed", "requests that had been carried out, and were only answered again"),
    ("out_of_order", "requests ahead of the next one, or too old to be answered again"),
))}
COUNTERS_BYTES = 2 * len(COUNTERS)
