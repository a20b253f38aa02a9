"""Payload layouts and interfaces, each defined once and imported at both ends.

Records of the contract have the byte offsets of ``contract``; the others are internal.
"""

from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import Config, log2
from ..contract.encoding import (
    COMMAND_BYTES,
    COMPLETION,
    COMPLETION_BYTES,
    HARVEST_ENTRY,
    HARVEST_ENTRY_BYTES,
    OFFSET_WIDTH,
    OPERANDS,
    ROW_ENTRY,
    ROW_ENTRY_BYTES,
)


def record(fields, size_bytes) -> data.FlexibleLayout:
    """Layout of a record of the contract."""
    return data.FlexibleLayout(8 * size_bytes, {
        field.name: data.Field(8 * field.bytes, 8 * field.offset) for field in fields.values()
    })


command = record(OPERANDS, COMMAND_BYTES)
completion = record(COMPLETION, COMPLETION_BYTES)
row_entry = record(ROW_ENTRY, ROW_ENTRY_BYTES)
harvest_entry = record(HARVEST_ENTRY, HARVEST_ENTRY_BYTES)

COMMAND_PART = 64  # bits of a command per transfer, those of an address operand
COMMAND_PARTS = 8 * COMMAND_BYTES // COMMAND_PART

# One part of a command; `number` counts from 0, `last` marks the final part.
command_part = data.StructLayout({
    "number": log2(COMMAND_PARTS), "data": COMMAND_PART, "last": 1})

# An address operand: the bits of `contract.encoding.packed_address`.
packed_address = data.StructLayout({"offset": OFFSET_WIDTH, "handle": 16})

BATCHES_IN_FLIGHT = 4  # of the lookup queue, at most; a power of two

LIST_BYTES_WIDTH = 36  # bits of the size of a list in bytes: 2**32 - 1 elements of 8

# Fault of an access to memory: 0 for none, else `status = SLVERR - 1 + fault`.
FAULT_SLVERR, FAULT_DECERR, FAULT_TIMEOUT = 1, 2, 3

# An engine's report of a command; the queue adds tag, opcode, cycles and sequence.
outcome = data.StructLayout({
    "status": 8,
    "error_index": 64,
    "error_address": 64,
    "lookups": 32,
    "hits": 32,
    "misses": 32,
    "unique": 32,
    "popular": 32,
    "entries": 32,
    "refused": 32,
    "bytes": 64,
})


# Further counters of a planner's report.
PLANNED = ("evictions", "bypasses", "wait_for")

# Counters that the engine of a queue never sets: zero in its completions.
UNSET = {"lookup": ("bytes",),
         "move": ("lookups", "hits", "misses", "unique", "popular", "refused", *PLANNED)}


def engine_outcome(config: Config) -> data.StructLayout:
    """The report of an engine on a command."""
    planned = dict.fromkeys(PLANNED, 32) if config.planner else {}
    return data.StructLayout({**outcome.members, **planned})


# The first check that a command failed.
check_result = data.StructLayout({"status": 8, "error_index": 64, "error_address": 64})


def reported_completion(config: Config) -> data.StructLayout:
    """A completion before it is written: of the engine, or of the checks with zero for counters."""
    return data.StructLayout({
        "tag": 32, "opcode": 8, "start": 64, "end": 64,
        "by_engine": 1, "outcome": engine_outcome(config), "check": check_result})


def command_word(config: Config) -> data.StructLayout:
    """One bus word of a command; `last` on its final one."""
    return data.StructLayout({"data": config.bus_width, "last": 1})


def row_key(config: Config) -> data.StructLayout:
    """A (table, row) pair; `lookup.hashing.xorshift` hashes it as one number."""
    return data.StructLayout({"row": config.row_width, "table": config.table_width})


def region(config: Config) -> data.StructLayout:
    """One registered region: `size` bytes from `base16` * 16."""
    return data.StructLayout({
        "valid": 1,
        "writable": 1,
        "base16": config.address_width - 4,
        "size": OFFSET_WIDTH,
    })


def table(config: Config) -> data.StructLayout:
    """One table descriptor.

    Row sizes are in units of 16 bytes, the size of the state in units of 4. `type` is an
    `ElementType`, with no bits on a card without arithmetic.
    """
    return data.StructLayout({
        "valid": 1,
        "last_row": config.row_width,
        "weights": packed_address,
        "row16": 9,
        "stride16": 12,
        "state": packed_address,
        "state4": 4,
        "type": 2 if config.arithmetic else 0,
        "parts_log2": 3,
        "part": 6,
    })


class Update(wiring.Signature):
    """Write port of a table of the host: `entry` replaces entry `index` if `enable`."""

    def __init__(self, entries, entry):
        super().__init__({
            "enable": Out(1),
            "index": Out(log2(entries)),
            "entry": Out(entry),
        })


def region_update(config: Config) -> Update:
    return Update(config.handles, region(config))


def table_update(config: Config) -> Update:
    return Update(config.tables, table(config))


def packed_word(word_bytes: int) -> data.StructLayout:
    """A word of a list with byte strobes; `last` ends the list. See `WriteClient`."""
    return data.StructLayout({"data": 8 * word_bytes, "strobe": word_bytes, "last": 1})


class ReadClient(wiring.Signature):
    """Sequential reads over the list port, seen from a client.

    Attributes
    ----------
    request : Out(stream)
        `address`, a multiple of 64, and the number of `bytes` (at least 1) to read from there.
    words : In(stream)
        The bus words with those bytes, in order; `last` on the final one. The data of a word with
        a `fault` (FAULT_SLVERR, ...) is undefined. The client may stall.
    """

    def __init__(self, config: Config):
        super().__init__({
            "request": Out(stream.Signature(data.StructLayout({
                "address": config.address_width, "bytes": LIST_BYTES_WIDTH}))),
            "words": In(stream.Signature(data.StructLayout({
                "data": config.bus_width, "fault": 2, "last": 1}))),
        })


class WriteClient(wiring.Signature):
    """Sequential writes over a result port, seen from a client.

    Attributes
    ----------
    request : Out(stream)
        `address`, a multiple of 64, of the first word.
    words : Out(stream)
        Bus words for consecutive addresses, with byte strobes; `last` ends the sequence. A
        sequence without data is one word without strobes.
    outcome : In(stream)
        Once per sequence, after the answers to all writes: the highest `fault`, or 0.
    """

    def __init__(self, config: Config):
        super().__init__({
            "request": Out(stream.Signature(data.StructLayout({
                "address": config.address_width}))),
            "words": Out(stream.Signature(packed_word(config.bus_bytes))),
            "outcome": In(stream.Signature(data.StructLayout({"fault": 2}))),
        })


class Engine(wiring.Signature):
    """The engines of a queue, seen from the queue.

    Attributes
    ----------
    command : Out(stream(command_part))
        The parts, in order, of a command that passed all checks of the queue. Address operands are
        replaced by byte addresses (zero-extended), except those of slots (`destination` of a GATHER
        or POOL, `rows` of a SCATTER, and of their state), `gradients`, and those of COPY and FILL,
        which stay packed.
    outcome : In(stream(engine_outcome(config)))
        One per command, in order, once its last write is in memory.
    """

    def __init__(self, config: Config):
        super().__init__({
            "command": Out(stream.Signature(command_part)),
            "outcome": In(stream.Signature(engine_outcome(config))),
        })


def lookup(config: Config) -> data.StructLayout:
    """One id of a batch, with the properties of its table.

    `present` is low in a lane without an id. `out_of_range`, or a `fault` of the bus word, refuses
    the id. `sample` counts from 0; `parts_log2` and `part` are the table's directory partition.
    """
    return data.StructLayout({
        "present": 1,
        "key": row_key(config),
        "sample": log2(config.batch_samples),
        "parts_log2": 3,
        "part": 6,
        "out_of_range": 1,
        "fault": 2,
    })


def lookup_beat(config: Config) -> data.StructLayout:
    """The lookups of one cycle, lane 0 first; `last` on the final beat of a batch."""
    return data.StructLayout({
        "lanes": data.ArrayLayout(lookup(config), config.lanes),
        "last": 1,
    })


def element(shape) -> data.StructLayout:
    """One element of a list read from memory; with a `fault` its value is undefined."""
    return data.StructLayout({"value": shape, "fault": 2, "last": 1})


def result(shape) -> data.StructLayout:
    """One element of a list written to memory; the final one may be absent (`present` low)."""
    return data.StructLayout({"value": shape, "present": 1, "last": 1})
