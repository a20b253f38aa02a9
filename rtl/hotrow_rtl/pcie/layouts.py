"""Headers of transaction layer packets (TLPs), and the beats of the stream that carries them.

Source: PCI Express Base Specification, section 2.2. A header is a sequence of double words, first
double word lowest, each with the bit numbers of the specification. The stream is that of LitePCIe's
PHY: a packet starts in the lowest double word of a beat, its header comes first and its payload
follows without a gap. A header's double word has byte 0 in its upper bits; so has each double word
of the payload, hence `swapped`.
"""

from amaranth import Cat, Const, Mux, Value
from amaranth.lib import data, enum

from ..config import log2

DWORD = 4  # bytes
TAGS = 32  # without extended tags, a function has so many requests in flight
TAG_BITS = log2(TAGS)
BOUNDARY = 64  # bytes: a read is split into completions at multiples of 64 or 128 only
PAGE = 4096  # bytes: no request crosses a multiple
SMALLEST, LARGEST = 128, 512  # bytes: limits of a payload or a read request in use here
HEADER_DWORDS = 4


class Fmt(enum.IntEnum, shape=3):
    """Whether a header has four double words, and whether a payload follows."""

    SHORT = 0
    LONG = 1
    SHORT_DATA = 2
    LONG_DATA = 3


class Type(enum.IntEnum, shape=5):
    """Types of packets, those that occur here."""

    MEMORY = 0b00000
    LOCKED_MEMORY = 0b00001  # a read
    COMPLETION = 0b01010
    LOCKED_COMPLETION = 0b01011
    MESSAGE = 0b10000  # and seven more: the lower bits are the routing


# Format and type of the requests that are neither an access to memory nor posted: locked reads, IO,
# configuration, atomic operations, deferrable writes.
ANSWERED = ("00- 00001", "0-0 00010", "0-0 0010-", "01- 0110-", "01- 01110", "0-- 11011")


class CompletionStatus(enum.IntEnum, shape=3):
    """Statuses of a completion; the others count as `UNSUPPORTED`."""

    SUCCESS = 0
    UNSUPPORTED = 1
    ABORTED = 4


class Cause(enum.IntEnum, shape=3):
    """Why a read failed."""

    NONE = 0
    UNSUPPORTED = 1  # the completer has nothing at the address, or an IOMMU refused it
    ABORTED = 2
    POISONED = 3  # the data was damaged on its way
    TIMEOUT = 4


_FIRST = {"length": 10, "at": 2, "attr": 2, "poisoned": 1, "digest": 1, "hints": 4, "tc": 3,
          "tag_9": 1, "type": 5, "fmt": 3}
common_header = data.StructLayout(_FIRST)
# The address follows: one double word in a short header, or its upper half and then its lower half.
request_header = data.StructLayout({
    **_FIRST, "first_strobes": 4, "last_strobes": 4, "tag": 8, "requester": 16,
    "address": data.ArrayLayout(32, 2)})
completion_header = data.StructLayout({
    **_FIRST, "byte_count": 12, "count_modified": 1, "status": 3, "completer": 16,
    "lower_address": 7, "reserved": 1, "tag": 8, "requester": 16})


def beat(width) -> data.StructLayout:
    """A beat of a packet; `keep` has a bit for each double word, set from the lowest up.

    The last beat of a packet may have none, since LitePCIe's PHY makes two beats of 64 bits of each
    of the hard block.
    """
    return data.StructLayout({"data": width, "keep": width // 32, "last": 1})


def dword_beat() -> data.StructLayout:
    """One double word of a packet, in the bit order of its header."""
    return data.StructLayout({"data": 32, "last": 1})


def swapped(value):
    """The value with the order of the bytes in each double word reversed."""
    bits = Value.cast(value)
    return Cat(bits.word_select(4 * (idx // 4) + 3 - idx % 4, 8) for idx in range(len(bits) // 8))


def address_fields(m, header, address):
    """Set the address of the header of a memory request, and return whether the header is long.

    Parameters
    ----------
    m : Module
    header : View of request_header
    address : Value
        Bits 0 and 1 are ignored.
    """
    low, high = address[2:32] << 2, address[32:]
    long = high.any() if len(high) else Const(0)
    m.d.comb += [header.address[0].eq(Mux(long, high, low) if len(high) else low),
                 header.address[1].eq(low)]
    return long
