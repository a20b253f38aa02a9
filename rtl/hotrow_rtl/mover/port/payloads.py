"""Payloads that the units of the row mover exchange.

A *transfer* moves the bytes of one row, or of its state, between a table and a slot, or one chunk
of a COPY or FILL. A *span* is the consecutive bytes of a COPY or FILL. A *lane* is 4 bytes of a bus
word: the alignment of source and destination addresses.
"""

from amaranth.lib import data

from ...config import LARGEST_ROW, ROW_NUMBER_WIDTH, Config, log2
from ...interfaces.records import packed_address, table

BYTES_WIDTH = LARGEST_ROW.bit_length()  # bits of a number of bytes, LARGEST_ROW included
SHORT_ROW = 64  # bytes
PAGE_WIDTH = 12  # bits of an offset in a page of 4 KiB, which no AXI burst crosses


def lane_width(config: Config) -> int:
    """Bits of the number of a lane in a bus word."""
    return log2(config.word_lanes)


def word_count_width(config: Config) -> int:
    """Bits of the number of bus words of a transfer."""
    return (LARGEST_ROW // config.bus_bytes).bit_length()


def buffer_words(config: Config) -> int:
    """Bus words of the reorder buffer, a power of two.

    The buffer holds four of the longest rows, and `outstanding` rows of 64 bytes: with longer rows
    fewer ids keep as many words in flight.
    """
    return max(config.outstanding * max(1, SHORT_ROW // config.bus_bytes),
               4 * config.row_bytes // config.bus_bytes)


def pending_reads(config: Config) -> int:
    """Transfers that may wait for their read data."""
    return max(4, config.outstanding)


def pending_writes(config: Config) -> int:
    """Transfers, and bursts, that may wait for their write responses."""
    return max(8, config.outstanding)


def transfers_in_flight(config: Config) -> int:
    """Transfers in a row port, reads and writes together."""
    return 2 * max(pending_reads(config), pending_writes(config))


def transfer_setting() -> data.StructLayout:
    """Settings of a command that all its transfers share.

    listed, with_state
        Slots are listed; the state of every row is transferred, too.
    to_tables
        Rows go from slots to tables, else from tables to slots.
    slots, state_slots, stride
        Address of slot 0, and of its state; the states are packed. Bytes from one slot to the next,
        a multiple of 16.
    spans, source, final_bytes
        The entries are the chunks of a span from `source` to `slots`, of `stride` bytes each; the
        last chunk has `final_bytes`.
    count
        Number of entries.
    bags
        The command is a POOL or UPDATE, see ``mover.bags``.
    widened
        Slots hold rows as fp32, whatever the element type of the table.
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
        "final_bytes": BYTES_WIDTH,
        "count": 32,
        "bags": 1,
        "widened": 1,
    })


def transfer_request(config: Config) -> data.StructLayout:
    """A transfer by row and slot: the row, or with `is_state` its state.

    `unknown` marks a table number outside the table memory. `last` marks the final transfer of an
    entry, `last_entry` the transfers of the final entry. A `write_only` transfer uses only its
    destination; its elements are never widened.
    """
    return data.StructLayout({
        "row": ROW_NUMBER_WIDTH,
        "table": config.table_width,
        "unknown": 1,
        "entry_fault": 2,
        "slot": 32,
        "slot_fault": 2,
        "is_state": 1,
        "write_only": 1,
        "last": 1,
        "last_entry": 1,
    })


def transfer_info() -> data.StructLayout:
    """The facts of a transfer that a completion reports; `last` marks an entry's final transfer."""
    return data.StructLayout({
        "index": 32,
        "source": packed_address,
        "destination": packed_address,
        "bytes": BYTES_WIDTH,
        "last": 1,
    })


def row_transfer(config: Config) -> data.StructLayout:
    """A transfer by byte addresses. `two_reads`, `two_writes`: its bytes cross a page."""
    return data.StructLayout({
        "source": config.address_width,
        "destination": config.address_width,
        "two_reads": 1,
        "two_writes": 1,
        "info": transfer_info(),
    })


def checked_transfer(config: Config) -> data.StructLayout:
    """A transfer without its index, and the `status` of the address check.

    status, refused
        An error, and whether it refuses the transfer.
    no_address, at_source
        The error has no address, or the address of the source; else that of the destination.
    row_valid, type, scalar_state
        The table exists and its rows fit the card and the slots; element type; a state has 4 bytes.
    """
    return data.StructLayout({
        "status": 8,
        "refused": 1,
        "no_address": 1,
        "at_source": 1,
        "row_valid": 1,
        "scalar_state": 1,
        "type": table(config)["type"].width,
        "transfer": row_transfer(config),
    })


def refusal() -> data.StructLayout:
    """An entry that is not moved. If the entry is a bag, `index` is its number and `list_index` the
    reported position in the list."""
    return data.StructLayout({
        "index": 32, "list_index": 32, "status": 8, "address": packed_address})


def byte_range(config: Config) -> data.StructLayout:
    """1 to LARGEST_ROW consecutive bytes; `crosses`: they cross a page."""
    return data.StructLayout({
        "address": config.address_width, "bytes": BYTES_WIDTH, "crosses": 1})


def burst(config: Config) -> data.StructLayout:
    """One AXI burst: the address of its first word, and its number of words minus 1."""
    return data.StructLayout({"address": config.address_width, "len_minus_1": 8})


def id_width(config: Config) -> int:
    """Width of the read ids of a row port."""
    return max(1, log2(config.outstanding))


def tagged_burst(config: Config) -> data.StructLayout:
    """A burst and its id."""
    return data.StructLayout({"id": id_width(config), "burst": burst(config)})


def read_beat(config: Config) -> data.StructLayout:
    """A beat of the R channel, if `valid`."""
    return data.StructLayout({
        "valid": 1, "id": id_width(config), "last": 1, "fault": 2, "data": config.bus_width})


def id_state(config: Config) -> data.StructLayout:
    """State of a read id, initially 0.

    `active`: a burst has returned a beat but not the last one; `address` of its next word in the
    buffer and worst `fault` so far. `phase` alternates with every burst that ends.
    """
    return data.StructLayout({
        "active": 1, "phase": 1, "fault": 2, "address": range(buffer_words(config))})


def finished_burst(config: Config) -> data.StructLayout:
    """A burst whose last beat has come, if `valid`: worst `fault`, next `phase` of its id."""
    return data.StructLayout({"valid": 1, "id": id_width(config), "phase": 1, "fault": 2})


def alignment(config: Config) -> data.StructLayout:
    """How the source words of a transfer become its destination words.

    words_minus_1
        Source words minus 1.
    rotate
        Lanes by which a source word is rotated upwards.
    needs_two
        The first destination word needs the second source word, if there is one.
    extra_word
        A destination word remains after the last source word.
    first_lane, last_lane
        First lane of the first, and last lane of the last destination word.
    """
    lane = lane_width(config)
    return data.StructLayout({
        "words_minus_1": word_count_width(config),
        "rotate": lane,
        "needs_two": 1,
        "extra_word": 1,
        "first_lane": lane,
        "last_lane": lane,
    })


def aligned_transfer(config: Config) -> data.StructLayout:
    """A transfer that waits for its read data."""
    return data.StructLayout({
        "alignment": alignment(config),
        "destination": config.address_width,
        "bytes": BYTES_WIDTH,
        "two_reads": 1,
        "two_writes": 1,
    })


def fetched_row(config: Config) -> data.StructLayout:
    """A transfer whose read data has come; with a `fault` it is not written."""
    return data.StructLayout({
        "fault": 2,
        "destination": config.address_width,
        "bytes": BYTES_WIDTH,
        "two_writes": 1,
    })


def computed_row(config: Config) -> data.StructLayout:
    """A computed row, and its `info`: `index` is the number of its bag, `source` the list position
    that a completion reports."""
    return data.StructLayout({"row": fetched_row(config), "info": transfer_info()})


def source_word(config: Config) -> data.StructLayout:
    """A source word of a transfer with its alignment."""
    return data.StructLayout({
        "data": config.bus_width, "alignment": alignment(config), "first": 1, "last": 1})


def destination_word(config: Config) -> data.StructLayout:
    """A destination word of a transfer."""
    return data.StructLayout({"data": config.bus_width, "strobe": config.bus_bytes})


def burst_response() -> data.StructLayout:
    """The response to a burst."""
    return data.StructLayout({"fault": 2})


def read_response() -> data.StructLayout:
    """The response to the reads of a transfer. Without a `fault` the transfer is written."""
    return data.StructLayout({"fault": 2, "two_writes": 1})


def finished_transfer() -> data.StructLayout:
    """A transfer that has landed or failed, if `valid`; `written`: a write caused the `fault`."""
    return data.StructLayout({
        "valid": 1, "fault": 2, "written": 1, "info": transfer_info()})
