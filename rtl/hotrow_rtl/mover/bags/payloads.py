"""Payloads of POOL and UPDATE.

A *bag* becomes one row: the listed rows that a POOL sums, or for an UPDATE the gradients of one
row, that row and its state. The *reads* of a bag are consecutive, in the order of the list.
"""

from amaranth.lib import data, enum

from ...config import ROW_NUMBER_WIDTH, Config, log2
from ...interfaces.records import packed_address
from ...primitives.single_entry_fifo import SingleEntryFifo
from ...primitives.skid_buffer import SkidBuffer
from ..port.payloads import buffer_words, computed_row, row_transfer, source_word

LENGTH_WIDTH = 16  # bits of a length in memory


class ReadKind(enum.Enum, shape=2):
    """What a read is for."""

    SUMMAND = 0  # a row of a POOL, or a gradient
    ROW = 1  # the row of an UPDATE
    STATE = 2  # the state of that row


def bag_setting() -> data.StructLayout:
    """Settings of a command that all its bags share.

    updates
        UPDATE, else POOL.
    listed
        Targets are listed: slots of bags (POOL), numbers of gradients (UPDATE).
    weighted, mean
        POOL only.
    adagrad, typed, lr, eps
        UPDATE only; `typed` gradients have the type of the rows, else fp32.
    summands
        Number of summands of all bags.
    """
    return data.StructLayout({
        "updates": 1, "listed": 1, "weighted": 1, "mean": 1, "adagrad": 1, "typed": 1,
        "lr": 32, "eps": 32, "summands": 32})


def batch_setting(config: Config) -> data.StructLayout:
    """Settings of a POOL of a batch.

    valid
        The command is one.
    odd
        The number of ids is odd.
    samples, first_table
        Bag i looks up in table `first_table` + i // `samples`.
    """
    return data.StructLayout({
        "valid": 1, "odd": 1, "samples": log2(config.batch_samples) + 1,
        "first_table": config.table_width})


def read_info() -> data.StructLayout:
    """The facts of a read that the address check does not need.

    kind, weight
        Purpose; fp32 weight of a summand.
    last, last_summand
        The bag's final read, and its final summand.
    empty
        The bag has no summand; nothing is read.
    index
        Position in the list that a completion reports.
    list_error
        The status that ends the lists early, else OK.
    slot_fault
        Fault of the target's list word.
    """
    return data.StructLayout({
        "kind": ReadKind, "weight": 32, "last": 1, "last_summand": 1, "empty": 1, "index": 32,
        "list_error": 8, "slot_fault": 2})


def bag_read(config: Config) -> data.StructLayout:
    """A read after the address check.

    from_memory, port
        Row `port` reads its words; else nothing is read.
    kind, last, last_summand, empty, index, weight
        See `read_info`.
    status, address
        The error that refuses the read. If it is OK, `address` is the one to report for a fault.
    drop
        The bag is not written, whatever `status` says.
    slot_status, destination, two_writes, packed_destination
        Destination of the bag's row, also as a packed address, or the error that refuses it.
    """
    return data.StructLayout({
        "port": range(max(2, config.row_ports)),
        "from_memory": 1,
        "kind": ReadKind,
        "last": 1,
        "last_summand": 1,
        "empty": 1,
        "weight": 32,
        "index": 32,
        "status": 8,
        "address": packed_address,
        "drop": 1,
        "slot_status": 8,
        "destination": config.address_width,
        "two_writes": 1,
        "packed_destination": packed_address,
    })


def bag_result(config: Config) -> data.StructLayout:
    """Whether and where a bag's row is written.

    With `drop` it is not written, and a completion reports `status`, `index` and `address`. Else
    it is written to `destination`, and `index` is that of the bag's first read. A bag with a state
    has two results: one for the row, then the `last` one, with `is_state`.
    """
    return data.StructLayout({
        "drop": 1,
        "last": 1,
        "is_state": 1,
        "status": 8,
        "index": 32,
        "address": packed_address,
        "destination": config.address_width,
        "two_writes": 1,
        "packed_destination": packed_address,
    })


def issued_read(config: Config) -> data.StructLayout:
    """A read and the transfer that a row port carries out for it."""
    return data.StructLayout({"read": bag_read(config), "transfer": row_transfer(config)})


def list_row(config: Config) -> data.StructLayout:
    """A listed row, or in `row` a listed slot, and the fault of its word. `unknown`: the table is
    outside the table memory."""
    return data.StructLayout({
        "row": ROW_NUMBER_WIDTH, "table": config.table_width, "unknown": 1, "fault": 2})


def bag_group(config: Config) -> data.StructLayout:
    """A bag for each unit, number `bag_units` * n + i for unit i; `last` on the lists' final group.

    present, sound
        The bag exists; no bag of the group up to this one has a length that is refused.
    entry, length, fault
        See `bag_item`; fault of the length's word. A bag with a fault, or that does not exist, has
        length 0.
    end
        Sum of the lengths up to this one.
    """
    return data.StructLayout({"last": 1, "bags": data.ArrayLayout(data.StructLayout({
        "present": 1, "sound": 1, "entry": list_row(config), "length": LENGTH_WIDTH, "fault": 2,
        "end": LENGTH_WIDTH + log2(config.bag_units)}), config.bag_units)})


def bag_item(config: Config) -> data.StructLayout:
    """A bag for a bag unit.

    entry
        The row of an UPDATE, or the listed slot of a POOL.
    length, position
        Number of summands; position of the first one in their list. With `list_error`, a status,
        the bag has no summands, and `position` is the index that a completion reports.
    """
    return data.StructLayout({
        "entry": list_row(config), "length": LENGTH_WIDTH, "position": 32, "list_error": 8})


def segment(config: Config) -> data.StructLayout:
    """Consecutive summands of a list, those of a bag for each unit; `drop` all after them.

    A bag begins where that of the last unit has ended and ends before position `ends`, of which the
    lowest bits suffice. Those of units without `keep`, which follow all others, are dropped, too.
    """
    units = config.bag_units
    return data.StructLayout({
        "ends": data.ArrayLayout(LENGTH_WIDTH + 1 + log2(units), units), "keep": units, "drop": 1})


def summand(config: Config) -> data.StructLayout:
    """An element of the list of summands: a row of a POOL and its weight, or the slot of a
    gradient."""
    return data.StructLayout({
        "entry": list_row(config), "weight": 32, "weight_fault": 2})


def summand_queue(config: Config) -> int:
    """Summands that wait for one unit in one lane of their list: 512 of each unit.

    N units are busy all the time with bags of up to 512 / (1 - 1 / N) rows.
    """
    return 512 // config.row_ports


def return_words(config: Config) -> int:
    """Words that one bag unit may have in flight at one row port: its share of the port's buffer,
    or two of the longest rows."""
    return max(buffer_words(config) // config.bag_units, 2 * config.row_bytes // config.bus_bytes)


def returning_read(config: Config) -> data.StructLayout:
    """The unit that a read returns to, and its number of bus words."""
    return data.StructLayout({
        "unit": range(config.bag_units), "words": range(return_words(config) + 1)})


def result_word(config: Config) -> data.StructLayout:
    """A word of a computed row or state, with the `row` of its first word; `end` marks a bag's
    final word."""
    return data.StructLayout({"row": computed_row(config), "word": source_word(config), "end": 1})


def read_buffer(config: Config, shape):
    """Return a buffer of reads: the smaller one if the arithmetic of a word takes two cycles."""
    slow = config.units.bus_bytes < config.bus_bytes
    return (SingleEntryFifo if slow else SkidBuffer)(shape)
