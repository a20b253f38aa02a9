"""The parameters of an accelerator, for hardware, golden models, cycle models and cost models."""

from dataclasses import dataclass, fields
from typing import Any

ROW_NUMBER_WIDTH = 32  # bits of a row number in memory: up to 2**32 rows a table
LIST_ALIGNMENT = 64  # bytes: rings, batches, lists and results start on such a byte address
ROW_ALIGNMENT = 16  # bytes: regions, weights, row strides and row destinations
STATE_ALIGNMENT = 4  # bytes: packed per-row optimizer state
MISS_WAYS = 2  # ways of a set of the miss table
# Eviction credit of the counters: a row survives 2**CREDIT_LOG2 competing lookups per previous hit;
# hits that fit CREDITED_WIDTH bits count.
CREDIT_LOG2 = 5
CREDITED_WIDTH = 2
CREDIT_WIDTH = CREDIT_LOG2 + CREDITED_WIDTH
EPOCH_WIDTH = 8  # bits of the batch number in the miss table, which is cleared when it wraps
SLOT_NUMBER_WIDTH = 8  # bits of a saturating number by which a replacement policy orders slots
BYPASS_STAMPS = 512  # entries of the planner's bypass table in one bank: one block RAM
RING_BEATS = 32  # beats in flight in the banks of counters and directory
NUMBER_BEATS = 16  # beats in flight in the banks of the miss table, whose latency is shorter
LARGEST_ROW = 4096  # bytes
PAGE_BYTES = 4096  # no AXI4 burst crosses a multiple of it
BURST_BEATS = 256  # of the longest AXI4 burst
LARGEST_STRIDE = 65536 - ROW_ALIGNMENT  # bytes
PORT_INTERLEAVE = 256  # consecutive bytes of a table at one row port


def log2(value: int) -> int:
    """Exponent of a power of two."""
    return value.bit_length() - 1


@dataclass(frozen=True)
class ArithmeticUnits:
    """Sizes of the arithmetic units: those of a `Config` whose bus is as wide as they are.

    Parameters
    ----------
    lanes, row_bytes : int
        As for `Config`.
    """

    lanes: int
    row_bytes: int

    @property
    def bus_bytes(self) -> int:
        """Bytes of one word of a row."""
        return 4 * self.lanes

    @property
    def bus_width(self) -> int:
        """Bits of one word of a row."""
        return 32 * self.lanes

    @property
    def squares(self) -> int:
        """Elements of a gradient that row-wise Adagrad squares per cycle."""
        return max(1, self.lanes // 4)


def check_geometry(config: Any) -> None:
    """Check the parameters of a card, of a `Config` or a driver's preset.

    Raises
    ------
    ValueError
        A parameter is beyond its limits, or two do not go together.
    """
    def within(name: str, low: int, high: int, power_of_two: bool = False) -> None:
        value = getattr(config, name, None)
        if not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"{name} must be {low} to {high}, not {value!r}")
        if power_of_two and value & (value - 1):
            raise ValueError(f"{name} must be a power of two, not {value}")

    within("bus_bytes", 8, 64, power_of_two=True)
    within("lookup_lanes", 0, 1)
    within("lane_banks", 1, 2)
    lanes = config.lookup_lanes or config.bus_bytes // 4
    banks = config.lane_banks * lanes
    if lanes < config.lane_banks:
        raise ValueError("one lane takes one request per cycle, which one bank serves: "
                         f"lane_banks must be 1 with lookup_lanes=1, not {config.lane_banks}")
    within("address_width", 32, 64)
    within("card_memory_log2", 12 if config.card_memory_log2 else 0, config.address_width - 1)
    within("handles", 8, 1 << 16, power_of_two=True)
    within("tables", 2, 1024, power_of_two=True)
    within("counter_sets", 16, 1 << 24, power_of_two=True)
    within("counter_ways", 2, 64)
    within("counter_bits", 4, 32)
    within("directory_choices", 1, 2)
    within("directory_partitions", 1, 64, power_of_two=True)
    within("directory_sets", 16, 1 << 24, power_of_two=True)
    within("directory_ways", 2, 16, power_of_two=True)
    within("stamp_bits", 4, 16)
    within("batch_samples", 64, 1 << 20, power_of_two=True)
    within("batch_lookups", config.batch_samples, 1 << 31, power_of_two=True)
    within("miss_entries", 32, 1 << 20, power_of_two=True)
    # Stripes of a list start on a multiple of LIST_ALIGNMENT.
    within("burst_beats", 8 if config.bus_bytes == 8 else 2,
           min(BURST_BEATS, PAGE_BYTES // config.bus_bytes), power_of_two=True)
    within("outstanding", 1, 1024, power_of_two=True)
    within("row_bytes", 64, LARGEST_ROW, power_of_two=True)
    most = BURST_BEATS // 2 * config.bus_bytes
    if config.row_bytes > most and PAGE_BYTES // config.bus_bytes > BURST_BEATS:
        raise ValueError(f"row_bytes must be at most 128 * bus_bytes = {most}, as a row from "
                         f"any byte is read in one AXI4 burst of at most {BURST_BEATS} beats, "
                         f"not {config.row_bytes}: use a wider bus or shorter rows")
    within("window_beats", 1, 15)
    within("events", 2, 256, power_of_two=True)
    within("arithmetic", 0, 2)
    planner = getattr(config, "planner", None)
    if not isinstance(planner, bool):
        raise ValueError(f"planner must be True or False, not {planner!r}")
    within("clock_mhz", 1, 2000)
    for name, most, why in (
            ("row_ports", 8, "1, 2, 4 or 8, as bits of a row's address select its port and a bus "
             "word lists up to eight rows"),
            ("result_ports", 4, "1 for all results, 2 with a port for missed rows, or 4 with two "
             "for missed rows and one for slots")):
        value = getattr(config, name, None)
        if type(value) is not int or value not in (1, 2, 4, most):
            raise ValueError(f"{name} must be {why}, not {value!r}")
    if config.row_ports > 1 and config.bus_bytes == 8:
        raise ValueError("a bus word of 8 bytes lists one row, which one port moves: row_ports "
                         f"must be 1 with bus_bytes=8, not {config.row_ports}")
    within("arithmetic_lanes", 0, config.bus_bytes // 4, power_of_two=True)
    within("bag_units", 1, config.row_ports if config.arithmetic else 1, power_of_two=True)
    _check_sets(config, lanes, banks)


def _check_sets(config: Any, lanes: int, banks: int) -> None:
    if config.counter_sets < 2 * banks:
        raise ValueError(f"counter_sets must be at least {2 * banks}, two in each of the "
                         f"{banks} banks of {lanes} lanes, not {config.counter_sets}")
    least = banks * max(2, config.directory_partitions)
    if config.directory_sets < least:
        raise ValueError(f"directory_sets must be at least {least}, one of each partition in "
                         f"each of the {banks} banks, not {config.directory_sets}")
    least = 2 * banks * MISS_WAYS
    if config.miss_entries < least:
        raise ValueError(f"miss_entries must be at least {least}, two sets in each of the "
                         f"{banks} banks, not {config.miss_entries}")


@dataclass(frozen=True, kw_only=True)
class Config:
    """Geometry of one accelerator.

    Parameters
    ----------
    name : str
        Name of the preset, or of the user's own variant.
    bus_bytes : int
        Data width of every AXI4 port in bytes: 8, 16, 32 or 64.
    lookup_lanes : int
        Lookups per cycle: 1, or 0 for one for every 4 bytes of the bus. One lane has one bank and
        no crossbar.
    lane_banks : int
        Banks of counters, directory and miss table for every lane, 1 or 2. With 1 lanes stall more
        often, because two hot rows may share a bank.
    address_width : int
        Bits of an AXI4 byte address, 32 to 64.
    card_memory_log2 : int
        Logarithm of the bytes of a memory of the card's own, where the upper half of its addresses
        begins, 12 to `address_width` - 1; 0 if it has none and all addresses are the host's.
    handles : int
        Memory regions that the host can register at the same time (power of two, 8 to 65536).
    tables : int
        Embedding tables that the host can register at the same time (power of two, 2 to 1024).
    counter_sets, counter_ways, counter_bits : int
        Access counters: sets (power of two), ways of a set, bits of one count.
    directory_choices, directory_sets, directory_ways : int
        Row directory: hash choices (1 or 2), sets of each choice (power of two), ways of a set.
    directory_partitions : int
        Largest number of equal parts of the directory, for groups of tables with different strides
        (power of two).
    stamp_bits : int
        Bits of the batch numbers that the planner keeps with every slot, 4 to 16. At most
        2**(stamp_bits - 2) batches may be planned or marked and not retired.
    batch_samples : int
        Largest number of samples in a batch; the card keeps one bit per sample (power of two).
    batch_lookups : int
        Largest number of lookups in a batch (power of two, up to 2**31); sets the width of the
        index of a missed row.
    miss_entries : int
        Entries of the miss table, which finds repeated misses of a SPLIT (power of two).
    burst_beats : int
        Longest AXI4 burst on lists and results, in beats (power of two, at most 256 and 4 KiB; on a
        bus of 8 bytes at least 8).
    outstanding : int
        Rows in flight on each row port, each with an AXI id of its own (power of two, at most
        1024). Full rate on rows of w words needs (latency + w + 5) / w of them.
    row_bytes : int
        Longest row that the row mover moves, 64 to 4096 bytes (power of two); on a bus of 8 bytes
        at most 1024, as an AXI4 burst has 256 beats and an unaligned row one word more.
    row_ports : int
        AXI4 ports of the row mover, each with a read and a write bus: 1, 2, 4 or 8.
    result_ports : int
        AXI4 write ports for results: 1, 2 or 4. With 4, on a card of one lane with 2, a SPLIT in
        which every lookup misses is as fast as one in which every lookup hits.
    window_beats : int
        Earlier beats, 1 to 15, with whose lookups a lookup of the same row is combined. A bank
        without planner accepts a row every 5 cycles, for which 4 beats suffice. A bank with planner
        needs 4 + log2(`directory_choices` * `directory_ways`), also between two rows of one set.
    events : int
        Event counters shared by the two command queues (power of two).
    arithmetic : int
        0 for a card without POOL and UPDATE, 1 for one with both, 2 for one that also pools
        batches of ids.
    arithmetic_lanes : int
        fp32 elements of a row that POOL and UPDATE process per cycle: a power of two, at most one
        for every 4 bytes of the bus; 0 for as many.
    bag_units : int
        Units that pool or update bags of rows in parallel, each `arithmetic_lanes` wide: 1, 2, 4 or
        8, at most `row_ports`; 1 without `arithmetic`.
    planner : bool
        The card has PLAN and MARK, which give slots to the rows of coming batches and hold them.
    clock_mhz : int
        Clock that converts cycles to projected times. An assumption, not a measurement.
    """

    name: str
    bus_bytes: int
    lookup_lanes: int = 0
    lane_banks: int = 2
    address_width: int = 64
    card_memory_log2: int = 0
    handles: int
    tables: int
    counter_sets: int
    counter_ways: int
    counter_bits: int = 16
    directory_choices: int = 2
    directory_sets: int
    directory_ways: int
    directory_partitions: int = 8
    stamp_bits: int = 8
    batch_samples: int
    batch_lookups: int = 1 << 31
    miss_entries: int
    burst_beats: int
    outstanding: int
    row_bytes: int = 1024
    row_ports: int = 1
    result_ports: int = 4
    window_beats: int = 5
    events: int = 32
    arithmetic: int = 1
    arithmetic_lanes: int = 0
    bag_units: int = 1
    planner: bool = False
    clock_mhz: int

    def __post_init__(self):
        check_geometry(self)

    @property
    def host_address_width(self) -> int:
        """Bits of an address in the host's memory: the upper half is the card's, if it has any."""
        return self.address_width - bool(self.card_memory_log2)

    @property
    def banks(self) -> int:
        """Banks of counters, directory and miss table."""
        return self.lane_banks * self.lanes

    @property
    def word_lanes(self) -> int:
        """4-byte lanes of a bus word: the 32-bit ids in it."""
        return self.bus_bytes // 4

    @property
    def lanes(self) -> int:
        """Lookups per cycle."""
        return self.lookup_lanes or self.word_lanes

    @property
    def striped_misses(self) -> bool:
        """Two write clients take blocks of a miss list in turn, as lanes fill two words a cycle."""
        return self.lanes > 1

    @property
    def bus_width(self) -> int:
        """Bits of one bus word."""
        return 8 * self.bus_bytes

    @property
    def pools_batches(self) -> bool:
        """A POOL takes the ids of a batch."""
        return self.arithmetic == 2

    @property
    def units(self) -> ArithmeticUnits:
        """Sizes of the arithmetic units."""
        return ArithmeticUnits(self.arithmetic_lanes or self.word_lanes, self.row_bytes)

    @property
    def table_width(self) -> int:
        """Bits of a table number."""
        return log2(self.tables)

    @property
    def slot_word_width(self) -> int:
        """Bits of a slot or of an index into the miss list.

        With a planner, bypassed rows have the numbers after the last slot.
        """
        if self.planner:
            return min(31, (self.slots + self.batch_lookups - 1).bit_length())
        return max(log2(self.slots), log2(self.batch_lookups))

    @property
    def count_width(self) -> int:
        """Bits of a number of lookups of a batch."""
        return self.batch_lookups.bit_length()

    @property
    def stored_lengths(self) -> int:
        """Bags whose lengths the card keeps after it has summed them; it reads others twice."""
        return max(self.batch_samples // 2, 4 * self.word_lanes)

    @property
    def miss_sets(self) -> int:
        """Sets of the miss table in one bank."""
        return self.miss_entries // self.banks // MISS_WAYS

    @property
    def sweep_batches(self) -> int:
        """Batches between two sweeps of the planner's stamps.

        It is also the largest number of batches that are planned or marked and not retired.
        """
        return 1 << self.stamp_bits - 2

    @property
    def oldest_stamp(self) -> int:
        """Largest age of a slot's last use in batches; a sweep sets greater ages to this one."""
        return (1 << self.stamp_bits - 1) - 1

    @property
    def bypass_stamps(self) -> int:
        """Entries of the planner's bypass table, indexed by the lowest bits of the hashed key."""
        return BYPASS_STAMPS * self.banks

    @property
    def row_width(self) -> int:
        """Bits of the number of a row that exists, as a table fits the address space."""
        return min(ROW_NUMBER_WIDTH, self.address_width - log2(ROW_ALIGNMENT))

    @property
    def key_width(self) -> int:
        """Bits of a (table, row) pair; the row is the lower part."""
        return self.table_width + self.row_width

    @property
    def entry_width(self) -> int:
        """Bits of a list entry in memory that may be set: row number and table."""
        return ROW_NUMBER_WIDTH + self.table_width

    @property
    def bank_key_width(self) -> int:
        """Bits of a hashed key without its bank bits."""
        return self.key_width - log2(self.banks)

    @property
    def counter_entries(self) -> int:
        return self.counter_sets * self.counter_ways

    @property
    def counter_tag_width(self) -> int:
        return self.key_width - log2(self.counter_sets)

    @property
    def slots(self) -> int:
        """Rows that the directory can hold; slot = (choice * sets + set) * ways + way."""
        return self.directory_choices * self.directory_sets * self.directory_ways

    @property
    def directory_tag_width(self) -> int:
        """Bits of a hashed key without those of its bank and of a set of the smallest partition."""
        return self.key_width - log2(self.directory_sets // self.directory_partitions)

    @property
    def slot_bits(self) -> int:
        """Bits of a slot: tag, two stamps, number, valid, dirty, parity."""
        return self.directory_tag_width + 2 * self.stamp_bits + SLOT_NUMBER_WIDTH + 3

    def describe(self) -> dict:
        """Every parameter by name, for JSON."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


PRESETS = {
    preset.name: preset
    for preset in (
        Config(name="tiny", bus_bytes=16, handles=64, tables=32, counter_sets=64, counter_ways=4,
               directory_sets=64, directory_ways=2, batch_samples=1024, miss_entries=256,
               burst_beats=4, outstanding=4, row_bytes=512, row_ports=2, result_ports=1,
               window_beats=8, events=8, arithmetic=2, planner=True, clock_mhz=50),
        # The card of the boards: every engine on an ECP5-85F.
        Config(name="ecp5", bus_bytes=8, lookup_lanes=1, lane_banks=1, address_width=32,
               handles=64, tables=32, counter_sets=2048, counter_ways=4, directory_choices=1,
               directory_sets=2048, directory_ways=4, directory_partitions=2, batch_samples=2048,
               batch_lookups=1 << 20, miss_entries=1024, burst_beats=8, outstanding=16,
               row_bytes=1024, result_ports=2, window_beats=6, events=8, arithmetic_lanes=1,
               planner=True, clock_mhz=50),
        Config(name="alveo-u55c", bus_bytes=64, handles=1024, tables=1024, counter_sets=262144,
               counter_ways=8, directory_sets=65536, directory_ways=8, batch_samples=65536,
               miss_entries=65536, burst_beats=16, outstanding=1024, row_bytes=4096, row_ports=4,
               window_beats=8, arithmetic=2, planner=True, clock_mhz=250),
    )
}
DEFAULT_PRESET = "ecp5"


def preset(chosen) -> Config:
    """The Config of a preset, or of a variant of one.

    Parameters
    ----------
    chosen : str or object
        The name of a preset, or an object with an attribute for each parameter of a Config, such
        as the driver's presets.

    Raises
    ------
    ValueError
        If there is no such preset, or a parameter is out of its range.
    """
    if not isinstance(chosen, str):
        return Config(**{each.name: getattr(chosen, each.name) for each in fields(Config)})
    if chosen not in PRESETS:
        raise ValueError(f"unknown preset {chosen!r}: expected one of {', '.join(PRESETS)}")
    return PRESETS[chosen]
