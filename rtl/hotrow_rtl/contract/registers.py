"""The registers of the device contract."""

from dataclasses import dataclass
from enum import IntEnum

from .encoding import Element


class Access(IntEnum):
    READ_ONLY = 0
    READ_WRITE = 1
    WRITE_ONLY = 2


@dataclass(frozen=True)
class Register:
    """One 32-bit register of the AXI4-Lite slave at byte `offset`.

    Only a card whose Config has the attribute `needs` set has the register; None for every card.
    """

    name: str
    offset: int
    access: Access
    doc: str
    needs: str | None = None


QUEUE_OFFSETS = {"lookup": 0x100, "move": 0x140}
_RO, _RW, _WO = Access.READ_ONLY, Access.READ_WRITE, Access.WRITE_ONLY

# Geometry that the driver reads from the card: (register, offset, attribute of Config).
GEOMETRY = tuple((f"{name.upper()}", 0x010 + 4 * i, name) for i, name in enumerate((
    "bus_bytes", "handles", "tables", "counter_sets", "counter_ways", "counter_bits",
    "directory_choices", "directory_sets", "directory_ways", "directory_partitions",
    "batch_samples", "miss_entries", "row_bytes", "events", "clock_mhz", "arithmetic",
    "planner", "batch_lookups", "lookup_lanes")))


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
                 "doorbell: commands submitted since the queue was enabled, modulo 2**32. The card "
                 "refuses a lower value, one that is ahead of COMPLETED by more than the ring's "
                 "entries, and any value while the queue is not enabled, and sets FAULT"),
        Register(f"{name}_HEAD", base + 0x1C, _RO, "commands fetched, modulo 2**32"),
        Register(f"{name}_COMPLETED", base + 0x20, _RO,
                 "completions that have landed in memory, modulo 2**32"),
        Register(f"{name}_STATE", base + 0x24, _RO,
                 "bit 0 busy, bit 1 halted by an error, bit 2 waiting for an event, bit 3 "
                 "faulted: the ring cannot be read or written, or with status STALLED the engine "
                 "makes no progress and needs a soft reset; status in bits 15..8"),
    )


REGISTERS = {register.name: register for register in (
    Register("IDENTITY", 0x000, _RO, "0x484F5452"),
    Register("VERSION", 0x004, _RO, "version of this contract"),
    *(Register(name, offset, _RO, f"geometry: {parameter}")
      for name, offset, parameter in GEOMETRY),
    Register("CONTROL", 0x080, _RW,
             "bit 0 (reads 0): soft reset of queues (which it disables), engines and ports; "
             "regions, tables, events, counters, directory and the planner's batches keep their "
             "contents, but the lists of a PLAN under way are lost: submit a REMOVE with ALL "
             "before the next PLAN; wait for STATUS ready. Bits 1, 2: interrupt enable of the "
             "lookup and the move queue"),
    Register("STATUS", 0x084, _RO,
             "bit 0 ready (memories cleared after reset, ports drained after a soft reset); bits 1 "
             "to 4 stopped after a time-out: the list port, a result port, the reads of a row "
             "port, the writes of a row port"),
    Register("FAULT", 0x088, _RW,
             "sticky, write 1 to clear: bit 0 doorbell refused (lookup), bit 1 (move), bit 2 "
             "access to an unknown register, region, table or event (answered with SLVERR), bit 3 "
             "write to PLAN_RETIRED refused"),
    Register("INTERRUPT", 0x08C, _RW,
             "bit per queue (0 lookup, 1 move): a completion landed; write 1 to clear"),
    Register("TIMEOUT", 0x090, _RW,
             "cycles without progress after which a memory port stops; 0 for no limit. A queue "
             "whose engine does not use a port for many times as long is faulted"),
    Register("CYCLE_LOW", 0x094, _RO, "cycles since reset; reading latches CYCLE_HIGH"),
    Register("CYCLE_HIGH", 0x098, _RO, "upper half of the cycle counter"),
    Register("EVENT_SELECT", 0x09C, _RW, "event that EVENT_VALUE reads and writes"),
    Register("EVENT_VALUE", 0x0A0, _RW, "value of the selected event counter"),
    Register("PLAN_RETIRED", 0x0A4, _RW,
             "newest retired batch, NO_BATCH after reset and after a REMOVE with ALL. This batch "
             "and all earlier ones have trained. Their victims were read from their slots and "
             "their bypassed rows are back in their tables, or both will be before the rows of a "
             "later PLAN are fetched. A PLAN or MARK uses the value from when it started. The card "
             "refuses a lower value, and one beyond the last planned batch, and sets FAULT. Cards "
             "with a planner only", needs="planner"),
    Register("PLAN_WINDOW", 0x0A8, _RO,
             "largest number of batches that are planned or marked and not retired. Cards with a "
             "planner only", needs="planner"),
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
             "bits 15..0 bytes of a row, bits 31..16 stride in bytes; multiples of 16"),
    Register("TABLE_STATE_LOW", 0x0F4, _RW,
             "packed address of the state of row 0, its offset a multiple of 4"),
    Register("TABLE_STATE_HIGH", 0x0F8, _RW, "its upper half"),
    Register("TABLE_FORMAT", 0x0FC, _RW,
             "bits 7..0 bytes of state per row: 0, 4, 8, 16 or 32; bits 9..8 element type: "
             + ", ".join(f"{each.value} {each.name.lower()}" for each in Element)
             + " (POOL, UPDATE)"),
    Register("TABLE_PARTITION", 0x0D8, _RW,
             "part of the directory that serves the table: bits 7..0 log2 of the number of equal "
             "parts, bits 15..8 the part. The card finds a row only in the part in which it got "
             "its slot: the part must not change while a row of the table has a slot"),
    Register("TABLE_COMMIT", 0x0DC, _WO, "write: bit 0 valid (0 removes the table)"),
    *_queue("lookup"),
    *_queue("move"),
)}
REGISTER_SPACE = 0x200  # bytes


def registers_of(config) -> dict[str, Register]:
    """The registers of a card of that Config."""
    return {name: register for name, register in REGISTERS.items()
            if register.needs is None or getattr(config, register.needs)}
