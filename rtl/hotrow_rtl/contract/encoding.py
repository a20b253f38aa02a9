"""The device contract: commands, completions, list entries and status codes.

This module and ``registers`` define every number of the contract, ``commands`` describes what each
command does. Hardware, models, the driver's ``hotrow.contract.generated``, the C header and
docs/contract.md are derived from them (see ``render``).

An *address* in a command or register is a packed pair: the handle of a registered region in bits
63..48, a byte offset into that region in bits 47..0. All fields are little-endian.
"""

from dataclasses import dataclass
from enum import IntEnum, IntFlag

IDENTITY = 0x484F5452  # "HOTR"
VERSION = 1

COMMAND_BYTES = 128
COMPLETION_BYTES = 128
OFFSET_WIDTH = 48  # low bits of a packed address
QUEUES = ("lookup", "move")

NO_SLOT = 0xFFFF_FFFF  # of a refused lookup, or of an entry without a slot
NO_BATCH = 0xFFFF_FFFF  # before batch 0; `wait_for` of a PLAN that need not wait
MISS_FLAG = 0x8000_0000  # in a SPLIT's slot word of a miss; the other bits index the miss list


def documented(cls, value, doc):
    """`__new__` of an integer enumeration whose members have a `doc`."""
    member = int.__new__(cls, value)
    member._value_, member.doc = value, doc
    return member


class Status(IntEnum):
    """Why a command ended; every value but OK is an error."""

    __new__ = documented

    OK = 0, "done"
    BAD_OPCODE = 1, "unknown, or not served by this queue; index = opcode"
    BAD_FLAGS = 2, "flags that the command does not define, or not together; index = flags"
    EMPTY = 3, "no samples, tables, lookups or entries"
    TOO_LARGE = 4, ("more samples than batch_samples, index = samples; or more lookups than "
                    "batch_lookups, index = lookups")
    LOOKUPS = 5, ("dense: count is not samples * tables; jagged: count is not the sum of the "
                  "lengths; index = the expected count. Bags of rows: index = sum of the lengths, "
                  "or the sum up to the first bag that is too long")
    TABLE_UNKNOWN = 6, "no such table; index = position in the list, or the number in a batch"
    MISALIGNED = 7, ("a byte address that is not aligned; or a stride or count of bytes, which is "
                     "the index")
    REGION = 8, "unregistered handle, or bytes beyond the region's end"
    READ_ONLY = 9, "the command would write to a region registered for reading"
    ROW_OUT_OF_RANGE = 10, "no such row; index = position of the id in the batch or list"
    STRIDE = 11, "a table's row is longer than the slots' stride; index = position in the list"
    BAD_EVENT = 12, "no such event; index = event"
    ABORTED = 13, "the host aborted a WAIT"
    SLVERR = 14, "the memory answered with a slave error"
    DECERR = 15, "the memory answered with a decode error"
    TIMEOUT = 16, "the memory did not answer in time"
    ROW_SHAPE = 17, ("the row's bytes or element type differ from those of the first listed row "
                     "or column, or it lacks the state that the command needs; index = position in "
                     "the list")
    BATCH_ORDER = 18, ("PLAN: not the batch after the last planned batch; MARK: a batch that is "
                       "already planned; index = the batch after the last planned batch")
    WINDOW = 19, ("PLAN, MARK: more than PLAN_WINDOW batches are planned or marked and not "
                  "retired; index = newest retired batch")
    STALLED = 20, "an engine made no progress, see TIMEOUT: in STATE only"
    PARITY = 21, ("the directory read an entry of wrong parity: results are not valid, and no "
                  "lookup command succeeds until REMOVE with ALL")


class Opcode(IntEnum):
    """What a command does."""

    NOP = 0x00
    FENCE = 0x01
    WAIT = 0x02
    SIGNAL = 0x03
    OBSERVE = 0x10
    DECAY = 0x11
    HARVEST = 0x12
    INSTALL = 0x13
    REMOVE = 0x14
    SPLIT = 0x15
    PLAN = 0x16
    MARK = 0x17
    GATHER = 0x20
    SCATTER = 0x21
    POOL = 0x22
    UPDATE = 0x23
    COPY = 0x24
    FILL = 0x25


_LAYOUT = (
    (1, "ids are 64 bits wide, else 32"),
    (2, "all samples of the first table, then of the second, ..."),
    (4, "bags of any length, see `lengths`"))


class BatchFlag(IntFlag):
    """Layout of a batch (OBSERVE, SPLIT)."""

    __new__ = documented

    ID64, FEATURE_MAJOR, JAGGED = _LAYOUT
    COUNT = 8, "SPLIT also counts its lookups, in the same pass; OBSERVE always counts"


class PlanFlag(IntFlag):
    """Layout of a batch as in `BatchFlag`, and which rows keep their slots (PLAN)."""

    __new__ = documented

    ID64, FEATURE_MAJOR, JAGGED = _LAYOUT
    COUNT = 8, "also count the lookups, in the same pass; not with ADMIT"
    ADMIT = 16, ("a row evicts another only if its own number by the policy would not be lower; "
                 "not with COUNT, which changes counts within a batch")
    READ_ONLY = 32, "slots that the batch uses stay clean; without the flag they become dirty"
    POLICY_LOW = 64, "lower bit of the policy: 0 LRU, 1 RRIP, 2 LFU, 3 FREQ"
    POLICY_HIGH = 128, "upper bit of the policy"


class MarkFlag(IntFlag):
    """Layout of a batch as in `BatchFlag` (MARK)."""

    __new__ = documented

    ID64, FEATURE_MAJOR, JAGGED = _LAYOUT


class InstallFlag(IntFlag):
    """The policy that numbers the rows (INSTALL). Cards with a planner only."""

    __new__ = documented

    POLICY_LOW = 64, "lower bit of the policy, see PlanFlag"
    POLICY_HIGH = 128, "upper bit of the policy"


class PlanPolicy(IntEnum):
    """Which row is evicted: the one with the lowest number, on a tie the least recently planned.

    In the flags times POLICY_LOW."""

    __new__ = documented

    LRU = 0, "every number is zero"
    RRIP = 1, "1 when the row gets its slot, 3 at each later use, minus 1 every PLAN_WINDOW batches"
    LFU = 2, "the row's access count at its last use, at most 255"
    FREQ = 3, "the row's access count when it got its slot, at most 255"


class AllFlag(IntFlag):
    """Which entries are changed (DECAY, REMOVE)."""

    __new__ = documented

    ALL = 1, "every entry; nothing is read"


class GatherFlag(IntFlag):
    """Layout of the array of slots (GATHER, SCATTER)."""

    __new__ = documented

    LISTED = 1, "row i belongs to slot targets[i], at targets[i] * stride, else to slot i"
    STATE = 2, "also move each row's optimizer state, packed in the state array of the slots"


class PoolFlag(IntFlag):
    """How a bag of rows is reduced, and where its result goes (POOL)."""

    __new__ = documented

    LISTED = 1, "bag i belongs to slot targets[i], at targets[i] * stride, else to slot i"
    MEAN = 2, "divide each sum by the number of its rows"
    WEIGHTED = 4, "multiply row i of the list by weights[i]"
    BATCH = 8, ("`source` has the 32-bit ids of a batch, JAGGED and FEATURE_MAJOR as in BatchFlag. "
                "Cards with ARITHMETIC 2 only")


class UpdateFlag(IntFlag):
    """Where gradients are, their type, and the optimizer (UPDATE)."""

    __new__ = documented

    LISTED = 1, "gradient i is row targets[i] of the array, else row i"
    TYPED = 2, "gradients have the tables' element type, else fp32"
    ADAGRAD = 4, "row-wise Adagrad with the row's state, an fp32, else SGD"


class Element(IntEnum):
    """Type of a table's elements."""

    FP32 = 0
    FP16 = 1
    BF16 = 2


@dataclass(frozen=True)
class Field:
    """One little-endian unsigned field of a record, `offset` and `bytes` in bytes."""

    name: str
    offset: int
    bytes: int
    doc: str
    is_address: bool = False


def _address(name, offset, doc):
    return Field(name, offset, 8, doc, is_address=True)


# Fields that share their bytes belong to different commands.
OPERANDS = {field.name: field for field in (
    Field("opcode", 0, 1, "what to do"),
    Field("flags", 1, 1, "variants of the command"),
    Field("tag", 4, 4, "a number of the host's choice; returned in the completion"),
    _address("source", 8, "ids of a batch, entries of a list, or bytes to copy"),
    _address("lengths", 16, "uint16 per bag, in the order of the bags (jagged batches, POOL); "
             "uint16 per row, the number of its gradients (UPDATE)"),
    _address("targets", 24, "uint32 per listed row or bag, its slot; per gradient, its row in the "
             "array"),
    _address("slots", 32, "result: uint32 per lookup or entry"),
    _address("weights", 32, "fp32 per listed row"),
    _address("popular", 40, "result: uint32 positions of the samples whose lookups all hit"),
    _address("fill_slots", 40, "result: uint32 per row of `fills`: its slot, or SLOTS + its place "
             "in the bypass area"),
    _address("nonpopular", 48, "result: uint32 positions of the other samples"),
    _address("victim_slots", 48, "result: uint32 per row of `victims`: the slot that it left"),
    _address("misses", 56, "result: one entry per missed row"),
    _address("fills", 56, "result: one entry per row to be fetched"),
    _address("victims", 64, "result: one entry per row to be written back"),
    _address("destination", 64, "result: rows (GATHER, POOL), harvested entries, or bytes (COPY, "
             "FILL)"),
    _address("state_destination", 72, "result: per-row state, packed"),
    Field("count", 80, 4, "lookups of the batch, entries of the list, most entries to write "
          "(HARVEST), or bytes (COPY, FILL)"),
    Field("samples", 84, 4, "samples in the batch"),
    Field("bags", 84, 4, "bags of the list; with BATCH samples in the batch"),
    Field("gradient_count", 84, 4, "gradients of all listed rows together"),
    Field("first_table", 88, 2, "table of the first column"),
    Field("table_count", 90, 2, "columns; column c belongs to table first_table + c"),
    Field("stride", 92, 4, "bytes from one slot to the next"),
    Field("threshold", 96, 4, "lowest count that HARVEST writes"),
    Field("shift", 100, 4, "binary places by which every count is shifted right"),
    Field("event", 104, 4, "event counter"),
    Field("eps", 104, 4, "fp32: row-wise Adagrad adds it to the root of the state"),
    Field("value", 108, 4, "value to reach (WAIT) or to set (SIGNAL), pattern (FILL), or number of "
          "the batch (PLAN, MARK)"),
    Field("lr", 108, 4, "fp32: learning rate"),
    _address("rows", 112, "slots that SCATTER reads"),
    _address("gradients", 112, "array of gradients"),
    _address("state_rows", 120, "per-row state of the slots that SCATTER reads, packed"),
)}

COMPLETION = {field.name: field for field in (
    Field("tag", 0, 4, "of the command"),
    Field("opcode", 4, 1, "of the command"),
    Field("status", 5, 1, "OK, or why the command failed"),
    Field("start", 8, 8, "cycle in which the command started"),
    Field("end", 16, 8, "cycle in which its last effect was complete"),
    Field("error_index", 24, 8, "wrong position or value, see the status"),
    _address("error_address", 32, "wrong packed address, see the status"),
    Field("lookups", 40, 4, "lookups served"),
    Field("hits", 44, 4, "lookups or entries found"),
    Field("misses", 48, 4, "lookups or entries not found"),
    Field("unique", 52, 4, "entries of the miss list (SPLIT); rows of the batch, a bypassed row as "
          "often as it is listed (PLAN)"),
    Field("popular", 56, 4, "samples whose lookups all hit"),
    Field("entries", 60, 4, "entries written, installed, removed or moved; bags or rows written; "
          "rows to be fetched (PLAN)"),
    Field("refused", 64, 4, "entries without room (INSTALL); misses (SPLIT) or bypassed rows "
          "(PLAN) that may be listed more than once"),
    Field("bytes", 72, 8, "bytes of rows and state moved or written"),
    Field("evictions", 80, 4, "rows to be written back (PLAN)"),
    Field("bypasses", 84, 4, "rows to be fetched that have no slot (PLAN)"),
    Field("wait_for", 88, 4, "a batch: its bypassed rows must be back in their tables before any "
          "listed row is fetched; NO_BATCH for none (PLAN)"),
    Field("sequence", 124, 4, "completions of this queue so far, this one included"),
)}

ROW_ENTRY = {field.name: field for field in (  # lists of rows, miss lists: 8 bytes
    Field("row", 0, 4, "row of the table"),
    Field("table", 4, 4, "table"),
)}
ROW_ENTRY_BYTES = 8

HARVEST_ENTRY = {field.name: field for field in (  # 16 bytes, of which the last four are zero
    Field("row", 0, 4, "row of the table"),
    Field("table", 4, 4, "table"),
    Field("count", 8, 4, "accesses counted"),
)}
HARVEST_ENTRY_BYTES = 16


def packed_address(handle: int, offset: int) -> int:
    """Pack a handle and a byte offset into one address operand."""
    if not 0 <= handle < 1 << 16:
        raise ValueError(f"handle must be 0 to 65535, not {handle}")
    if not 0 <= offset < 1 << OFFSET_WIDTH:
        raise ValueError(f"offset must be below 2**{OFFSET_WIDTH}, not {offset}")
    return handle << OFFSET_WIDTH | offset
