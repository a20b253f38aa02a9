"""The registers of the device contract."""

from dataclasses import dataclass
from enum import IntEnum

from .encoding import IDENTITY, NO_BATCH, VERSION, Element, documented


class Access(IntEnum):
    READ_ONLY = 0
    READ_WRITE = 1
    WRITE_ONLY = 2


class ControlBits(IntEnum):
    """Fields of CONTROL, as masks."""

    __new__ = documented

    SOFT_RESET = 1 << 0, (
        "reads 0; write 1 to reset queues (which it disables), engines and ports; regions, tables, "
        "events, counters, directory and the planner's batches keep their contents, but the lists "
        "of a PLAN under way are lost: submit a REMOVE with ALL before the next PLAN; wait for "
        "STATUS ready, at most TIMEOUT cycles after the last answer of a memory; a port whose "
        "memory still owes answers then has stopped again")
    INTERRUPT_LOOKUP = 1 << 1, "interrupt enable of the lookup queue"
    INTERRUPT_MOVE = 1 << 2, "interrupt enable of the move queue"


class StatusBits(IntEnum):
    """Fields of STATUS, as masks."""

    __new__ = documented

    READY = 1 << 0, "memories cleared after reset, ports drained or stopped after a soft reset"
    LIST_PORT = 1 << 1, "the list port has stopped after a time-out"
    RESULT_PORTS = 1 << 2, "a result port has stopped"
    ROW_READS = 1 << 3, "the reads of a row port have stopped"
    ROW_WRITES = 1 << 4, "the writes of a row port have stopped"


class FaultBits(IntEnum):
    """Fields of FAULT, as masks."""

    __new__ = documented

    DOORBELL_LOOKUP = 1 << 0, "doorbell of the lookup queue refused"
    DOORBELL_MOVE = 1 << 1, "doorbell of the move queue refused"
    UNKNOWN = 1 << 2, ("access to an unknown register, region, table or event (answered with "
                       "SLVERR)")
    RETIREMENT = 1 << 3, "write to PLAN_RETIRED refused"


class InterruptBits(IntEnum):
    """Fields of INTERRUPT, as masks."""

    __new__ = documented

    LOOKUP = 1 << 0, "a completion of the lookup queue landed"
    MOVE = 1 << 1, "a completion of the move queue landed"


class RegionCommitBits(IntEnum):
    """Fields of REGION_COMMIT, as masks."""

    __new__ = documented

    VALID = 1 << 0, "0 removes the region"
    WRITABLE = 1 << 1, "commands may write to the region"


class TableRowBits(IntEnum):
    """Fields of TABLE_ROW, as masks."""

    __new__ = documented

    BYTES = 0x0000_FFFF, "bytes of a row, a multiple of 16"
    STRIDE = 0xFFFF_0000, "stride in bytes, a multiple of 16"


class TableFormatBits(IntEnum):
    """Fields of TABLE_FORMAT, as masks."""

    __new__ = documented

    STATE_BYTES = 0x0FF, "bytes of state per row: 0, 4, 8, 16 or 32"
    TYPE = 0x300, ("element type: "
                   + ", ".join(f"{each.value} {each.name.lower()}" for each in Element)
                   + " (POOL, UPDATE)")


class TablePartitionBits(IntEnum):
    """Fields of TABLE_PARTITION, as masks."""

    __new__ = documented

    PARTS_LOG2 = 0x00FF, "log2 of the number of equal parts"
    PART = 0xFF00, "the part"


class TableCommitBits(IntEnum):
    """Fields of TABLE_COMMIT, as masks."""

    __new__ = documented

    VALID = int(RegionCommitBits.VALID), "0 removes the table"


class QueueControlBits(IntEnum):
    """Fields of LOOKUP_CONTROL and MOVE_CONTROL, as masks."""

    __new__ = documented

    ENABLE = 1 << 0, ("0 to 1 restarts at entry 0 with TAIL, HEAD and COMPLETED zero; clear only "
                      "an idle queue")
    HALT_ON_ERROR = 1 << 1, "halt on error"
    ABORT = 1 << 2, "reads 0; write 1 to abort the WAIT in progress"
    RESUME = 1 << 3, "reads 0; write 1 to resume a halted queue"


class QueueStateBits(IntEnum):
    """Fields of LOOKUP_STATE and MOVE_STATE, as masks."""

    __new__ = documented

    BUSY = 1 << 0, "a command runs"
    HALTED = 1 << 1, "halted by an error"
    WAITING = 1 << 2, "waiting for an event"
    FAULTED = 1 << 3, (
        "the ring cannot be read or written, or with status STALLED the engine makes no progress "
        "and needs a soft reset")
    STATUS = 0xFF00, "why it halted or is faulted"


def shift(field: int) -> int:
    """The lowest bit of a field."""
    return (field & -field).bit_length() - 1


def place(field: IntEnum, value: int) -> int:
    """`value` at the bits of a field of a register."""
    return value << shift(field) & field


def extract(field: IntEnum, word: int) -> int:
    """The value of a field of a register."""
    return (word & field) >> shift(field)


@dataclass(frozen=True)
class Register:
    """One 32-bit register of the AXI4-Lite slave at byte `offset`.

    Only a card whose Config has the attribute `needs` set has the register; None for every card.
    The members of `fields` are masks. `reset` is the value after a reset of the card, or the
    attribute of Config that has it; None for what the card's state sets. Bits of `pulses` read 0,
    and writing 1 acts once. Writing 1 to a bit clears it where `clears` is set.
    """

    name: str
    offset: int
    access: Access
    doc: str
    fields: type[IntEnum] | None = None
    needs: str | None = None
    reset: int | str | None = 0
    pulses: int = 0
    clears: bool = False


QUEUE_OFFSETS = {"lookup": 0x100, "move": 0x140}
_RO, _RW, _WO = Access.READ_ONLY, Access.READ_WRITE, Access.WRITE_ONLY

# Geometry that the driver reads from the card: (register, offset, attribute of Config).
GEOMETRY = tuple((f"{name.upper()}", 0x010 + 4 * i, name) for i, name in enumerate((
    "bus_bytes", "handles", "tables", "counter_sets", "counter_ways", "counter_bits",
    "directory_choices", "directory_sets", "directory_ways", "directory_partitions",
    "batch_samples", "miss_entries", "row_bytes", "events", "clock_mhz", "arithmetic",
    "planner", "batch_lookups", "lookup_lanes", "address_width", "card_memory_log2")))


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
        Register(f"{name}_CONTROL", base + 0x14, _RW, "runs the queue", QueueControlBits,
                 pulses=QueueControlBits.ABORT | QueueControlBits.RESUME),
        Register(f"{name}_TAIL", base + 0x18, _RW,
                 "doorbell: commands submitted since the queue was enabled, modulo 2**32. The card "
                 "refuses a lower value, one that is ahead of COMPLETED by more than the ring's "
                 "entries, and any value while the queue is not enabled, and sets FAULT"),
        Register(f"{name}_HEAD", base + 0x1C, _RO, "commands fetched, modulo 2**32"),
        Register(f"{name}_COMPLETED", base + 0x20, _RO,
                 "completions that have landed in memory, modulo 2**32"),
        Register(f"{name}_STATE", base + 0x24, _RO, "state of the queue", QueueStateBits),
    )


REGISTERS = {register.name: register for register in (
    Register("IDENTITY", 0x000, _RO, f"0x{IDENTITY:X}", reset=IDENTITY),
    Register("VERSION", 0x004, _RO, "version of this contract", reset=VERSION),
    *(Register(name, offset, _RO, f"geometry: {parameter}", reset=parameter)
      for name, offset, parameter in GEOMETRY),
    Register("CONTROL", 0x080, _RW, "soft reset and interrupts", ControlBits,
             pulses=ControlBits.SOFT_RESET),
    Register("STATUS", 0x084, _RO, "whether the card is ready, and which ports stopped",
             StatusBits, reset=None),
    Register("FAULT", 0x088, _RW, "sticky, write 1 to clear", FaultBits, clears=True),
    Register("INTERRUPT", 0x08C, _RW, "sticky, write 1 to clear", InterruptBits,
             clears=True),
    Register("TIMEOUT", 0x090, _RW,
             "cycles without progress after which a memory port stops; 0 for no limit. A queue "
             "whose engine does not use a port for many times as long is faulted"),
    Register("CYCLE_LOW", 0x094, _RO, "cycles since reset; reading latches CYCLE_HIGH",
             reset=None),
    Register("CYCLE_HIGH", 0x098, _RO, "upper half of the cycle counter"),
    Register("EVENT_SELECT", 0x09C, _RW, "event that EVENT_VALUE reads and writes"),
    Register("EVENT_VALUE", 0x0A0, _RW, "value of the selected event counter"),
    Register("PLAN_RETIRED", 0x0A4, _RW,
             "newest retired batch, NO_BATCH after reset and after a REMOVE with ALL. This batch "
             "and all earlier ones have trained. Their victims were read from their slots and "
             "their bypassed rows are back in their tables, or both will be before the rows of a "
             "later PLAN are fetched. A PLAN or MARK uses the value from when it started. The card "
             "refuses a lower value, and one beyond the last planned batch, and sets FAULT. Cards "
             "with a planner only", needs="planner", reset=NO_BATCH),
    Register("PLAN_WINDOW", 0x0A8, _RO,
             "largest number of batches that are planned or marked and not retired. Cards with a "
             "planner only", needs="planner", reset="sweep_batches"),
    Register("REGION_HANDLE", 0x0C0, _RW, "handle that REGION_COMMIT writes"),
    Register("REGION_BASE_LOW", 0x0C4, _RW, "byte address, a multiple of 16"),
    Register("REGION_BASE_HIGH", 0x0C8, _RW, "its upper half"),
    Register("REGION_SIZE_LOW", 0x0CC, _RW, "bytes, at most 2**48 - 1"),
    Register("REGION_SIZE_HIGH", 0x0D0, _RW, "its upper half"),
    Register("REGION_COMMIT", 0x0D4, _WO, "writes the region", RegionCommitBits),
    Register("TABLE_NUMBER", 0x0E0, _RW, "table that TABLE_COMMIT writes"),
    Register("TABLE_LAST_ROW", 0x0E4, _RW, "rows - 1"),
    Register("TABLE_WEIGHTS_LOW", 0x0E8, _RW,
             "packed address of row 0, its offset a multiple of 16"),
    Register("TABLE_WEIGHTS_HIGH", 0x0EC, _RW, "its upper half"),
    Register("TABLE_ROW", 0x0F0, _RW, "size of a row", TableRowBits),
    Register("TABLE_STATE_LOW", 0x0F4, _RW,
             "packed address of the state of row 0, its offset a multiple of 4"),
    Register("TABLE_STATE_HIGH", 0x0F8, _RW, "its upper half"),
    Register("TABLE_FORMAT", 0x0FC, _RW, "state and elements of a row", TableFormatBits),
    Register("TABLE_PARTITION", 0x0D8, _RW,
             "part of the directory that serves the table. The card finds a row only in the part "
             "in which it got its slot: the part must not change while a row of the table has a "
             "slot",
             TablePartitionBits),
    Register("TABLE_COMMIT", 0x0DC, _WO, "writes the table", TableCommitBits),
    *_queue("lookup"),
    *_queue("move"),
)}
REGISTER_SPACE = 0x200  # bytes


def registers_of(config) -> dict[str, Register]:
    """The registers of a card of that Config."""
    return {name: register for name, register in REGISTERS.items()
            if register.needs is None or getattr(config, register.needs)}


def reset_value(register: Register, config) -> int | None:
    """What a card of that Config reads after a reset; None for what the card's state sets."""
    if isinstance(register.reset, str):
        return int(getattr(config, register.reset))
    return register.reset
