"""The device contract: registers, commands, completions, list entries and status codes.

This is the only place where a number of the contract is written. Hardware, models, the driver's
``contract.json``, the C header and docs/contract.md are derived from it (see ``contract_map``).

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

NO_SLOT = 0xFFFF_FFFF  # a lookup refused, or an entry that has no slot
NO_BATCH = 0xFFFF_FFFF  # before batch 0; the `wait_for` of a PLAN that need not wait
MISS_FLAG = 0x8000_0000  # set in a SPLIT's slot word of a miss; the other bits index the miss list


def _documented(cls, value, doc):
    member = int.__new__(cls, value)
    member._value_, member.doc = value, doc
    return member


class Status(IntEnum):
    """Why a command ended; every value but OK is an error. Each member has its `doc`."""

    __new__ = _documented

    OK = 0, "done"
    BAD_OPCODE = 1, "unknown, or not served by this queue; index = opcode"
    BAD_FLAGS = 2, "a flag that the command does not have; index = flags"
    EMPTY = 3, "no samples, tables, lookups or entries"
    TOO_LARGE = 4, "more samples than batch_samples; index = samples"
    LOOKUPS = 5, ("dense: count is not samples * tables; jagged: not the sum; index = expected. "
                  "Of bags of rows: index = sum of the lengths, or up to the one that is too long")
    TABLE_UNKNOWN = 6, "index = position in the list, or the table number for a batch"
    MISALIGNED = 7, "a byte address off its boundary; or index = stride, or count of bytes"
    REGION = 8, "unregistered handle, or bytes beyond the region's end"
    READ_ONLY = 9, "the command would write to a region registered for reading"
    ROW_OUT_OF_RANGE = 10, "index = position of the id in the batch or list"
    STRIDE = 11, "a table's row is longer than the slots' stride; index = position"
    BAD_EVENT = 12, "index = event"
    ABORTED = 13, "the host aborted a WAIT"
    SLVERR = 14, "the memory answered with a slave error"
    DECERR = 15, "the memory answered with a decode error"
    TIMEOUT = 16, "the memory did not answer in time"
    ROW_SHAPE = 17, ("not the bytes or element type of the first listed row, or not the state that "
                     "the command needs; index = position in the list")
    BATCH_ORDER = 18, ("PLAN: not the batch after the one planned last; MARK: not one after the "
                       "one planned last; index = the batch after it")
    WINDOW = 19, ("PLAN, MARK: more than PLAN_WINDOW batches planned or marked and not retired: "
                  "retire some; index = newest retired batch")


class Opcode(IntEnum):
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


class BatchFlag(IntFlag):
    """Layout of a batch (OBSERVE, SPLIT)."""

    __new__ = _documented

    ID64 = 1, "ids are 64 bits wide, else 32"
    FEATURE_MAJOR = 2, "all samples of the first table, then of the second, ..."
    JAGGED = 4, "bags of any length; `lengths` has one uint16 per bag, in the order of the bags"
    COUNT = 8, "a SPLIT counts its lookups as well, in the same pass; an OBSERVE always does"


class PlanFlag(IntFlag):
    """Layout of a batch as in `BatchFlag`, and which rows stay (PLAN)."""

    __new__ = _documented

    ID64 = 1, "ids are 64 bits wide, else 32"
    FEATURE_MAJOR = 2, "all samples of the first table, then of the second, ..."
    JAGGED = 4, "bags of any length; `lengths` has one uint16 per bag, in the order of the bags"
    COUNT = 8, "count the lookups as well, in the same pass; not with ADMIT"
    ADMIT = 16, ("a row takes the place of another only if the number that it would get by the "
                 "policy is not less; not with COUNT, by which counts rise within a batch")
    READ_ONLY = 32, "what the batch uses stays clean, else it is dirty: to be written back"
    POLICY_LOW = 64, "lower bit of the policy: 0 LRU, 1 RRIP, 2 LFU, 3 FREQ"
    POLICY_HIGH = 128, "upper bit of the policy"


class MarkFlag(IntFlag):
    """Layout of a batch as in `BatchFlag` (MARK)."""

    __new__ = _documented

    ID64 = 1, "ids are 64 bits wide, else 32"
    FEATURE_MAJOR = 2, "all samples of the first table, then of the second, ..."
    JAGGED = 4, "bags of any length; `lengths` has one uint16 per bag, in the order of the bags"


class InstallFlag(IntFlag):
    """By which policy rows get their numbers (INSTALL). Cards with a planner only."""

    __new__ = _documented

    POLICY_LOW = 64, "lower bit of the policy, as of a PLAN"
    POLICY_HIGH = 128, "upper bit of the policy"


class PlanPolicy(IntEnum):
    """Which row leaves for a planned one: that of the least number, of equals the one whose batch
    is longest past. In the flags times POLICY_LOW."""

    __new__ = _documented

    LRU = 0, "the number is zero"
    RRIP = 1, "1 of a row that comes, 3 of one used again, one less every PLAN_WINDOW batches"
    LFU = 2, "the row's access count, at most 255, whenever a batch uses it"
    FREQ = 3, "the row's access count, at most 255, when it came"


class AllFlag(IntFlag):
    """DECAY, REMOVE."""

    __new__ = _documented

    ALL = 1, "every entry; nothing is read"


class GatherFlag(IntFlag):
    """Layout of the array of slots (GATHER, SCATTER)."""

    __new__ = _documented

    LISTED = 1, "row i belongs to slot targets[i], at targets[i] * stride, else to slot i"
    STATE = 2, "carry each row's optimizer state too, packed in the state array of the slots"


class PoolFlag(IntFlag):
    """What becomes of a bag of rows (POOL)."""

    __new__ = _documented

    LISTED = 1, "bag i belongs to slot targets[i], at targets[i] * stride, else to slot i"
    MEAN = 2, "divide each sum by the number of its rows"
    WEIGHTED = 4, "multiply row i of the list by weights[i]"


class UpdateFlag(IntFlag):
    """Which gradients a row takes, and how (UPDATE)."""

    __new__ = _documented

    LISTED = 1, "the i-th gradient is number targets[i] of the array, else number i"
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
    Field("tag", 4, 4, "the host's own number; comes back in the completion"),
    _address("source", 8, "ids of a batch, entries of a list, or bytes to copy"),
    _address("lengths", 16, "uint16 per bag, in the order of the bags (jagged batches, POOL); per "
             "row its gradients (UPDATE)"),
    _address("targets", 24, "uint32 slots, one per listed row or bag; numbers of gradients"),
    _address("slots", 32, "result: uint32 per lookup or entry"),
    _address("weights", 32, "fp32 per listed row"),
    _address("popular", 40, "result: uint32 positions of the samples whose lookups all hit; of a "
             "PLAN, where each row of `misses` belongs: its slot, or SLOTS + its place in the "
             "bypass area"),
    _address("nonpopular", 48, "result: uint32 positions of the other samples; of a PLAN, the "
             "slot that each row of `victims` left"),
    _address("misses", 56, "result: one entry per missed row; of a PLAN, per row to be fetched"),
    _address("victims", 64, "result: one entry per row to be written back"),
    _address("destination", 64, "result: rows (GATHER, POOL), harvested entries, or bytes (COPY, "
             "FILL)"),
    _address("state_destination", 72, "result: per-row state, packed"),
    Field("count", 80, 4, "lookups of the batch, entries of the list, most entries wanted, or "
          "bytes (COPY, FILL)"),
    Field("samples", 84, 4, "samples in the batch"),
    Field("bags", 84, 4, "bags of the list"),
    Field("gradient_count", 84, 4, "gradients of all rows of the list together"),
    Field("first_table", 88, 2, "table of the first column"),
    Field("table_count", 90, 2, "columns; column c belongs to table first_table + c"),
    Field("stride", 92, 4, "bytes from one slot to the next"),
    Field("threshold", 96, 4, "least count that is harvested"),
    Field("shift", 100, 4, "binary places by which every count is shifted right"),
    Field("event", 104, 4, "event counter"),
    Field("eps", 104, 4, "fp32: what row-wise Adagrad adds to the root of the state"),
    Field("value", 108, 4, "value to reach or to set, pattern (FILL), or number of the batch "
          "(PLAN, MARK)"),
    Field("lr", 108, 4, "fp32: learning rate"),
    _address("rows", 112, "rows by slot that are read (SCATTER)"),
    _address("gradients", 112, "rows of gradients by number"),
    _address("state_rows", 120, "per-row state by slot that is read, packed"),
)}

COMPLETION = {field.name: field for field in (
    Field("tag", 0, 4, "the command's"),
    Field("opcode", 4, 1, "the command's"),
    Field("status", 5, 1, "OK or the reason of the error"),
    Field("start", 8, 8, "cycle at which the command was taken up"),
    Field("end", 16, 8, "cycle at which its last effect was complete"),
    Field("error_index", 24, 8, "offending position or value, see the status"),
    _address("error_address", 32, "offending packed address, see the status"),
    Field("lookups", 40, 4, "lookups served"),
    Field("hits", 44, 4, "lookups or entries found"),
    Field("misses", 48, 4, "lookups or entries not found"),
    Field("unique", 52, 4, "entries written to the miss list; of a PLAN, rows of the batch, a "
          "bypassed one as often as it is listed"),
    Field("popular", 56, 4, "samples whose lookups all hit"),
    Field("entries", 60, 4, "entries written, installed, removed or moved; bags, rows written; "
          "rows to be fetched (PLAN)"),
    Field("refused", 64, 4, "entries that did not fit; of a SPLIT, misses, and of a PLAN, bypassed "
          "rows that may be listed again"),
    Field("bytes", 72, 8, "bytes of rows and state moved or written"),
    Field("evictions", 80, 4, "rows to be written back (PLAN)"),
    Field("bypasses", 84, 4, "of the rows to be fetched, those without a slot (PLAN)"),
    Field("wait_for", 88, 4, "no listed row may be fetched before the rows that this batch "
          "bypassed are back in their tables; NO_BATCH if there is none (PLAN)"),
    Field("sequence", 124, 4, "completions of this queue so far, this one included"),
)}

ROW_ENTRY = {field.name: field for field in (  # lists of rows, miss lists: 8 bytes
    Field("row", 0, 4, "row of the table"),
    Field("table", 4, 4, "table"),
)}
ROW_ENTRY_BYTES = 8

HARVEST_ENTRY = {field.name: field for field in (  # 16 bytes, the last four zero
    Field("row", 0, 4, "row of the table"),
    Field("table", 4, 4, "table"),
    Field("count", 8, 4, "accesses counted"),
)}
HARVEST_ENTRY_BYTES = 16


@dataclass(frozen=True)
class Command:
    """One command: its queue, its flags, the operands it reads, and what it does."""

    opcode: Opcode
    queue: str  # "lookup", "move" or "both"
    operands: tuple[str, ...]
    flags: type[IntFlag] | None
    doc: str


_BATCH = ("source", "lengths", "count", "samples", "first_table", "table_count")

COMMANDS = {command.opcode: command for command in (
    Command(Opcode.NOP, "both", (), None, "Complete at once."),
    Command(Opcode.FENCE, "both", (), None,
            "Complete when every earlier command of the queue has, and its writes have landed."),
    Command(Opcode.WAIT, "both", ("event", "value"), None,
            "Complete when the event counter has reached `value` (modulo 2**32, half-range)."),
    Command(Opcode.SIGNAL, "both", ("event", "value"), None, "Set the event counter."),
    Command(Opcode.OBSERVE, "lookup", _BATCH, BatchFlag,
            "Count every lookup of a batch. `hits` were resident in the counters, `misses` took "
            "the place of the least counted row of their set."),
    Command(Opcode.DECAY, "lookup", ("shift",), AllFlag,
            "Shift every count right; a count of zero frees its entry. ALL frees every entry."),
    Command(Opcode.HARVEST, "lookup", ("destination", "count", "threshold"), None,
            "Write the `count` most accessed rows, over all tables, whose count is at least "
            "`threshold`. Order: by set, then by way; ties at the last rank are cut in "
            "that order. The counters keep their contents."),
    Command(Opcode.INSTALL, "lookup", ("source", "slots", "count"), InstallFlag,
            "Give each listed row a slot and write its number, or NO_SLOT if both its sets are "
            "full. A row already present keeps its slot and counts as a hit. On a card with a "
            "planner its number is that of a row which comes with the count that the counters hold "
            "of it, and no batch needs the slot."),
    Command(Opcode.REMOVE, "lookup", ("source", "slots", "count"), AllFlag,
            "Free the slot of each listed row and write its number, or NO_SLOT. ALL frees every "
            "slot and writes nothing; the next batch to be planned is then 0."),
    Command(Opcode.SPLIT, "lookup", (*_BATCH, "slots", "popular", "nonpopular", "misses"),
            BatchFlag,
            "Tell hits from misses, and popular samples (all lookups hit; an empty bag does not "
            "miss) from the others. `slots` has a word per lookup: its slot, or MISS_FLAG plus an "
            "index into `misses`, or NO_SLOT for a refused lookup. Misses are listed in order of "
            "appearance, each row once while the miss table of `miss_entries` places has one for "
            "it; other rows may be listed at each appearance."),
    Command(Opcode.PLAN, "lookup",
            (*_BATCH, "value", "slots", "popular", "nonpopular", "misses", "victims"), PlanFlag,
            "Give every row of batch `value` a slot: its own, else a free one as in INSTALL, else "
            "that of the row which no batch needs and which goes first by the policy. Where there "
            "is none the row is bypassed. Batches are planned in order, from 0 on after a reset or "
            "a REMOVE with ALL. A batch needs a slot from PLAN or MARK until it is retired, see "
            "PLAN_RETIRED. `slots` has a word per lookup: a slot, SLOTS + k of the k-th bypassed "
            "row, or NO_SLOT for a refused lookup; SLOTS is what DIRECTORY_CHOICES, "
            "DIRECTORY_SETS and DIRECTORY_WAYS multiply to. `misses` lists the rows to be fetched, "
            "`popular` where they belong: a GATHER with LISTED takes both. `victims` lists the "
            "dirty rows that left a slot, `nonpopular` those slots: for a SCATTER, to be carried "
            "out before that GATHER. All lists are in order of first appearance, each row once; "
            "but of bypassed rows only those for which the miss table has a place, the others may "
            "be listed at each appearance. `hits` are lookups that found a slot: also of a row "
            "that the batch itself brings, those beyond the beats in which lookups are joined. A "
            "row's access count is what the counters hold of it when it comes, before it is "
            "counted. Nothing is planned, and the batch is "
            "not the one planned last, if the command is refused or its lengths cannot be read or "
            "do not add up."),
    Command(Opcode.MARK, "lookup", (*_BATCH, "value"), MarkFlag,
            "Keep the slots that rows of batch `value` have until it is retired. It is planned "
            "later, or may be never."),
    Command(Opcode.GATHER, "move",
            ("source", "targets", "destination", "state_destination", "count", "stride"),
            GatherFlag,
            "Copy the listed rows of registered tables to consecutive or listed slots. Of equal "
            "slots the last one's row stays, over one row port."),
    Command(Opcode.SCATTER, "move",
            ("source", "targets", "rows", "state_rows", "count", "stride"), GatherFlag,
            "Copy consecutive or listed slots to the listed rows of registered tables. Of equal "
            "rows in the list the last one stays, over one row port; what rows hold that overlap "
            "otherwise, or the slots, is undefined."),
    Command(Opcode.POOL, "move",
            ("source", "lengths", "weights", "targets", "destination", "count", "bags", "stride"),
            PoolFlag,
            "Sum each bag of listed rows of registered tables to one row of their type, zeros of "
            "an empty bag. A bag is not written if one of its rows is refused, nor any bag from "
            "the first on whose rows are not all in the list, nor any at all if the table of the "
            "first row is unknown or cannot be carried. What is wrong with a bag's slot has the "
            "index of the bag's first row."),
    Command(Opcode.UPDATE, "move",
            ("source", "lengths", "targets", "gradients", "count", "gradient_count", "stride",
             "lr", "eps"), UpdateFlag,
            "Take one step of SGD or row-wise Adagrad on each listed row of registered tables, "
            "by the sum of its gradients, at least one. A row is not written if one of its "
            "gradients is refused, nor any row from the first on without gradients, or whose "
            "gradients are not all in the array, nor any at all as in a POOL. What is wrong with "
            "a gradient has the index of its row. What a row holds that is listed twice is "
            "undefined."),
    Command(Opcode.COPY, "move", ("source", "destination", "count"), None,
            "Copy `count` bytes. Addresses and count are multiples of 4; what bytes hold that are "
            "source and destination is undefined. The bytes move in pieces of ROW_BYTES, the last "
            "one shorter: the completion's `entries` and error index count pieces."),
    Command(Opcode.FILL, "move", ("destination", "count", "value"), None,
            "Set every 4 bytes of `count` bytes to `value`; else as COPY."),
)}


class Access(IntEnum):
    READ_ONLY = 0
    READ_WRITE = 1
    WRITE_ONLY = 2


@dataclass(frozen=True)
class Register:
    """One 32-bit register of the AXI4-Lite slave, `offset` in bytes. With `needs`, an attribute of
    Config, only cards have it whose Config has that."""

    name: str
    offset: int
    access: Access
    doc: str
    needs: str | None = None


QUEUES = ("lookup", "move")
QUEUE_OFFSETS = {"lookup": 0x100, "move": 0x140}
_RO, _RW, _WO = Access.READ_ONLY, Access.READ_WRITE, Access.WRITE_ONLY

# Geometry that the driver reads from the card: (register, attribute of Config).
GEOMETRY = tuple((f"{name.upper()}", 0x010 + 4 * i, name) for i, name in enumerate((
    "bus_bytes", "handles", "tables", "counter_sets", "counter_ways", "counter_bits",
    "directory_choices", "directory_sets", "directory_ways", "directory_partitions",
    "batch_samples", "miss_entries", "row_bytes", "events", "clock_mhz", "arithmetic",
    "planner")))


def _queue(queue):
    base, name = QUEUE_OFFSETS[queue], queue.upper()
    return (
        Register(f"{name}_COMMANDS_LOW", base + 0x00, _RW, "packed address of the command ring"),
        Register(f"{name}_COMMANDS_HIGH", base + 0x04, _RW, "its upper half"),
        Register(f"{name}_COMPLETIONS_LOW", base + 0x08, _RW,
                 "packed address of the completion ring"),
        Register(f"{name}_COMPLETIONS_HIGH", base + 0x0C, _RW, "its upper half"),
        Register(f"{name}_ENTRIES", base + 0x10, _RW,
                 "log2 of the entries of both rings, 1 to 16"),
        Register(f"{name}_CONTROL", base + 0x14, _RW,
                 "bit 0 enable (0 to 1: restart at entry 0 with TAIL, HEAD and COMPLETED zero; "
                 "clear only an idle queue), bit 1 halt on error; write 1 to bit 2 to abort the "
                 "WAIT in progress, to bit 3 to resume a halted queue (both read 0)"),
        Register(f"{name}_TAIL", base + 0x18, _RW,
                 "doorbell: commands submitted since the queue was enabled, modulo 2**32; a value "
                 "behind the present one or more than the ring's entries ahead of COMPLETED is "
                 "refused and sets FAULT, as is any while the queue is not enabled"),
        Register(f"{name}_HEAD", base + 0x1C, _RO, "commands fetched, modulo 2**32"),
        Register(f"{name}_COMPLETED", base + 0x20, _RO,
                 "completions that have landed in memory, modulo 2**32"),
        Register(f"{name}_STATE", base + 0x24, _RO,
                 "bit 0 busy, bit 1 halted by an error, bit 2 waiting for an event, bit 3 "
                 "faulted: the ring cannot be read or written; status in bits 15..8"),
    )


REGISTERS = {register.name: register for register in (
    Register("IDENTITY", 0x000, _RO, "0x484F5452"),
    Register("VERSION", 0x004, _RO, "version of this contract"),
    *(Register(name, offset, _RO, f"geometry: {parameter}")
      for name, offset, parameter in GEOMETRY),
    Register("CONTROL", 0x080, _RW,
             "bit 0 (reads 0): soft reset of queues (which it disables), engines and ports; "
             "regions, tables, events, counters, directory and the planner's batches keep their "
             "contents, but what a PLAN under way gave slots may never be told: REMOVE with ALL "
             "before the next one; wait for STATUS ready. Bits 1, 2: interrupt enable of the "
             "lookup and the move queue"),
    Register("STATUS", 0x084, _RO,
             "bit 0 ready (memories cleared after reset, ports drained after a soft reset); bits 1 "
             "to 4: the list port, a result port, the reads of a row port, its writes have stopped "
             "after a time-out"),
    Register("FAULT", 0x088, _RW,
             "sticky, write 1 to clear: bit 0 doorbell refused (lookup), bit 1 (move), bit 2 "
             "access to an unknown register, region, table or event (answered with SLVERR), bit 3 "
             "write to PLAN_RETIRED refused"),
    Register("INTERRUPT", 0x08C, _RW,
             "bit per queue (0 lookup, 1 move): a completion landed; write 1 to clear"),
    Register("TIMEOUT", 0x090, _RW,
             "cycles without any progress after which a memory port gives up; 0 waits for ever"),
    Register("CYCLE_LOW", 0x094, _RO, "cycles since reset; reading latches CYCLE_HIGH"),
    Register("CYCLE_HIGH", 0x098, _RO, "upper half of the cycle counter"),
    Register("EVENT_SELECT", 0x09C, _RW, "event that EVENT_VALUE reads and writes"),
    Register("EVENT_VALUE", 0x0A0, _RW, "value of the selected event counter"),
    Register("PLAN_RETIRED", 0x0A4, _RW,
             "newest retired batch, NO_BATCH at first and after a REMOVE with ALL: it and all "
             "before have trained, their victims were read out of their slots, their bypassed "
             "rows are back in their tables, or will be before what is planned from now on is "
             "fetched. A PLAN or MARK under way keeps to the value with which it began. A write "
             "that goes back, or beyond the batch planned last, does nothing and sets FAULT. "
             "Cards with a planner only", needs="planner"),
    Register("PLAN_WINDOW", 0x0A8, _RO,
             "most batches that may be planned or marked and not retired. Cards with a planner "
             "only", needs="planner"),
    Register("REGION_HANDLE", 0x0C0, _RW, "handle that REGION_COMMIT writes"),
    Register("REGION_BASE_LOW", 0x0C4, _RW, "byte address, a multiple of 16"),
    Register("REGION_BASE_HIGH", 0x0C8, _RW, "its upper half"),
    Register("REGION_SIZE_LOW", 0x0CC, _RW, "bytes, at most 2**48 - 1"),
    Register("REGION_SIZE_HIGH", 0x0D0, _RW, "its upper half"),
    Register("REGION_COMMIT", 0x0D4, _WO,
             "write: bit 0 valid (0 removes the region), bit 1 writable"),
    Register("TABLE_NUMBER", 0x0E0, _RW, "table that TABLE_COMMIT writes"),
    Register("TABLE_LAST_ROW", 0x0E4, _RW, "rows - 1"),
    Register("TABLE_WEIGHTS_LOW", 0x0E8, _RW,
             "packed address of row 0, its offset a multiple of 16"),
    Register("TABLE_WEIGHTS_HIGH", 0x0EC, _RW, "its upper half"),
    Register("TABLE_ROW", 0x0F0, _RW,
             "bits 15..0 bytes of a row that are carried, bits 31..16 stride in bytes; multiples "
             "of 16"),
    Register("TABLE_STATE_LOW", 0x0F4, _RW,
             "packed address of the state of row 0, its offset a multiple of 4"),
    Register("TABLE_STATE_HIGH", 0x0F8, _RW, "its upper half"),
    Register("TABLE_FORMAT", 0x0FC, _RW,
             "bits 7..0 bytes of state per row: 0, 4, 8, 16 or 32; bits 9..8 element type: "
             + ", ".join(f"{each.value} {each.name.lower()}" for each in Element)
             + " (POOL, UPDATE)"),
    Register("TABLE_PARTITION", 0x0D8, _RW,
             "part of the directory that serves the table: bits 7..0 log2 of the number of equal "
             "parts, bits 15..8 which of them"),
    Register("TABLE_COMMIT", 0x0DC, _WO, "write: bit 0 valid (0 removes the table)"),
    *_queue("lookup"),
    *_queue("move"),
)}
REGISTER_SPACE = 0x200  # bytes


def registers_of(config) -> dict[str, Register]:
    """Those of `REGISTERS` that a card of that Config has."""
    return {name: register for name, register in REGISTERS.items()
            if register.needs is None or getattr(config, register.needs)}


def packed_address(handle: int, offset: int) -> int:
    """Pack a handle and a byte offset into one address operand."""
    if not 0 <= handle < 1 << 16:
        raise ValueError(f"handle must be 0 to 65535, not {handle}")
    if not 0 <= offset < 1 << OFFSET_WIDTH:
        raise ValueError(f"offset must be below 2**{OFFSET_WIDTH}, not {offset}")
    return handle << OFFSET_WIDTH | offset
