"""Payloads that the parts of the row mover hand to one another.

A *copy* moves the bytes of one row, or of its state, from the table to a slot or back, or those of
one piece of a *span*, the consecutive bytes of a COPY or FILL. A *lane*
is 4 bytes of a bus word: the finest step of a source or destination address.
"""

from amaranth.lib import data

from ...config import LARGEST_ROW, ROW_NUMBER_WIDTH, Config, log2
from ...interfaces.records import packed_address, table

COPY_BYTES = LARGEST_ROW.bit_length()  # width of a number of bytes, LARGEST_ROW included
SHORT_ROW = 64  # bytes
PAGE_WIDTH = 12  # no AXI burst crosses a page of 4 KiB


def lane_width(config: Config) -> int:
    """Bits that number a lane of a bus word."""
    return log2(config.lanes)


def word_count_width(config: Config) -> int:
    """Bits that number the bus words of one copy, from 0."""
    return (LARGEST_ROW // config.bus_bytes).bit_length()


def buffer_words(config: Config) -> int:
    """Bus words for rows on their way from source to destination (power of two).

    Enough for four of the longest rows, and for the words in flight: with short rows, of 64 bytes,
    ids limit how many, and longer ones need fewer ids for as many words.
    """
    return max(config.outstanding * max(1, SHORT_ROW // config.bus_bytes),
               4 * config.row_bytes // config.bus_bytes)


def copies_waiting(config: Config) -> int:
    """Copies that may wait for the end of their reads."""
    return max(4, config.outstanding)


def writes_waiting(config: Config) -> int:
    """Copies, and bursts, that may wait for the end of their writes."""
    return max(8, config.outstanding)


def copies_in_flight(config: Config) -> int:
    """Copies that may be on their way, reads and writes together."""
    return 2 * max(copies_waiting(config), writes_waiting(config))


def move_setting() -> data.StructLayout:
    """What holds for all copies of a command.

    listed, with_state
        Slots are listed; every entry's state moves too.
    to_tables
        Rows go from slots to tables, else from tables to slots.
    slots, state_slots, stride
        Slot 0 of rows, and of their state, which is packed; bytes from one slot to the next, a
        multiple of 16.
    spans, source, final_bytes
        The entries are pieces of a span from `source` to `slots`, of `stride` bytes each, the last
        one of `final_bytes`.
    count
        Entries.
    bags
        The entries are those of a POOL or UPDATE, see `bag_layouts`.
    widened
        Slots hold rows in fp32, whatever the type of the table.
    """
    return data.StructLayout({
        "listed": 1,
        "with_state": 1,
        "to_tables": 1,
        "slots": packed_address,
        "state_slots": packed_address,
        "stride": 16,
        "spans": 1,
        "source": packed_address,
        "final_bytes": COPY_BYTES,
        "count": 32,
        "bags": 1,
        "widened": 1,
    })


def wanted_copy(config: Config) -> data.StructLayout:
    """One copy of a list, named by row and slot: of the row, or with `is_state` of its state.

    `unknown` marks a table number that cannot exist. `last` is set on the final copy of an entry,
    `ends` on those of the final entry. Of one that is `unread` only the destination is used.
    """
    return data.StructLayout({
        "row": ROW_NUMBER_WIDTH,
        "table": config.table_width,
        "unknown": 1,
        "entry_fault": 2,
        "slot": 32,
        "slot_fault": 2,
        "is_state": 1,
        "unread": 1,
        "last": 1,
        "ends": 1,
    })


def copy_identity() -> data.StructLayout:
    """What a completion may have to tell of a copy."""
    return data.StructLayout({
        "index": 32,
        "source": packed_address,
        "destination": packed_address,
        "bytes": COPY_BYTES,
        "last": 1,
    })


def addressed_copy(config: Config) -> data.StructLayout:
    """One copy by byte addresses. `two_reads`, `two_writes`: its bytes cross a page."""
    return data.StructLayout({
        "source": config.address_width,
        "destination": config.address_width,
        "two_reads": 1,
        "two_writes": 1,
        "identity": copy_identity(),
    })


def checked_copy(config: Config) -> data.StructLayout:
    """A copy, of which the index is left out, and its `status`.

    If that is not OK, it is `refused`; the address to report is that of the destination, or that
    `at_source`, or there is `no_address`. A table of rows that can be carried is `sized`, `type` is
    what its elements are, and with `scalar` its state is 4 bytes.
    """
    return data.StructLayout({
        "status": 8,
        "refused": 1,
        "no_address": 1,
        "at_source": 1,
        "sized": 1,
        "scalar": 1,
        "type": table(config)["type"].width,
        "copy": addressed_copy(config),
    })


def refusal() -> data.StructLayout:
    """An entry that is not moved. Of a bag `index` is its number, and `told` the place in the list
    to report."""
    return data.StructLayout({"index": 32, "told": 32, "status": 8, "address": packed_address})


def span(config: Config) -> data.StructLayout:
    """Consecutive bytes, at least 1 and at most LARGEST_ROW, that cross a page or not."""
    return data.StructLayout({
        "address": config.address_width, "bytes": COPY_BYTES, "crosses": 1})


def burst(config: Config) -> data.StructLayout:
    """One AXI burst: the address of its first word, and its words less one."""
    return data.StructLayout({"address": config.address_width, "length": 8})


def tag(config: Config) -> int:
    """Width of an AXI id of a row port's reads."""
    return max(1, log2(config.outstanding))


def tagged_burst(config: Config) -> data.StructLayout:
    return data.StructLayout({"id": tag(config), "burst": burst(config)})


def read_beat(config: Config) -> data.StructLayout:
    """One word that came from memory, if `valid`."""
    return data.StructLayout({
        "valid": 1, "id": tag(config), "last": 1, "fault": 2, "data": config.bus_width})


def id_state(config: Config) -> data.StructLayout:
    """What is known of an id of the read port, 0 at first.

    `inside`: a burst has begun and not ended, its next word goes to `position`, `fault` is its
    worst so far. `turn` changes with every burst that ends.
    """
    return data.StructLayout({
        "inside": 1, "turn": 1, "fault": 2, "position": range(buffer_words(config))})


def ended_burst(config: Config) -> data.StructLayout:
    """A burst whose last beat has come, if `valid`: its worst `fault`, its id's `turn` since."""
    return data.StructLayout({"valid": 1, "id": tag(config), "turn": 1, "fault": 2})


def placement(config: Config) -> data.StructLayout:
    """How the words of a copy's source become those of its destination.

    `words`: source words less one. `rotate`: lanes by which a source word is rotated upwards.
    `late`: the first destination word needs the second source word too, if there is one. `extra`:
    a destination word remains after the last source word. `begin`, `end`: first lane in the first
    and last lane in the last destination word.
    """
    lane = lane_width(config)
    return data.StructLayout({
        "words": word_count_width(config),
        "rotate": lane,
        "late": 1,
        "extra": 1,
        "begin": lane,
        "end": lane,
    })


def placed_copy(config: Config) -> data.StructLayout:
    """A copy whose reads are on their way."""
    return data.StructLayout({
        "placement": placement(config),
        "destination": config.address_width,
        "bytes": COPY_BYTES,
        "two_reads": 1,
        "two_writes": 1,
    })


def arrived_copy(config: Config) -> data.StructLayout:
    """A copy whose reads have ended; with a `fault` it is not written."""
    return data.StructLayout({
        "fault": 2,
        "destination": config.address_width,
        "bytes": COPY_BYTES,
        "two_writes": 1,
    })


def made_row(config: Config) -> data.StructLayout:
    """A row that was computed, and how a completion names it: its `index` is the number of its bag,
    and its `source` the place in the list to report."""
    return data.StructLayout({"row": arrived_copy(config), "identity": copy_identity()})


def source_word(config: Config) -> data.StructLayout:
    return data.StructLayout({
        "data": config.bus_width, "placement": placement(config), "first": 1, "last": 1})


def destination_word(config: Config) -> data.StructLayout:
    return data.StructLayout({"data": config.bus_width, "strobe": config.bus_bytes})


def burst_end() -> data.StructLayout:
    """How a burst ended."""
    return data.StructLayout({"fault": 2})


def read_end() -> data.StructLayout:
    """How the reads of a copy ended; unless with a `fault`, it is being written."""
    return data.StructLayout({"fault": 2, "two_writes": 1})


def ended_copy() -> data.StructLayout:
    """A copy that has landed or failed, if `valid`; `written`: the `fault` is that of a write."""
    return data.StructLayout({
        "valid": 1, "fault": 2, "written": 1, "identity": copy_identity()})
