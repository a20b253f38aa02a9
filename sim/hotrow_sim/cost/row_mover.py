"""Memory of the row mover."""

from hotrow_rtl.config import LARGEST_ROW, Config, log2

from ..cycles.row_mover import buffer_words
from .row_arithmetic import row_arithmetic_bits

PACKED_ADDRESS = 64
ROW_SIZES = 9 + 12  # of a row and its stride, in 16 bytes
STATE = PACKED_ADDRESS + 4  # and its size, in 4 bytes
PARTITION = 9
COPY_BYTES = LARGEST_ROW.bit_length()
IDENTITY = 32 + 2 * PACKED_ADDRESS + COPY_BYTES + 1
QUEUE = 32  # copies from one lane that wait for one port


def table_bits(config: Config):
    """A descriptor per table: with row numbers of 32 bits, 1 + 32 + 64 + 21 + 68 + 9 = 195, and 2
    of the type."""
    descriptor = (1 + config.row_width + PACKED_ADDRESS + ROW_SIZES + STATE + PARTITION
                  + 2 * config.arithmetic)
    return config.tables * descriptor


def region_bits(config: Config):
    """A region per handle: two flags, 48 bits of size, a base in 16 bytes."""
    return config.handles * (2 + 48 + config.address_width - 4)


def row_buffer_bits(config: Config):
    """Bus words in flight; per id two positions, four bits of its burst and three of the former."""
    words = buffer_words(config)
    return words * config.bus_width + max(2, config.outstanding) * (2 * log2(words) + 4 + 3)


def row_port_bits(config: Config):
    """The buffer, and queues of copies: those whose reads, whose writes, and any whose end is
    awaited."""
    word_count = (LARGEST_ROW // config.bus_bytes).bit_length()
    placed = word_count + 3 * log2(config.lanes) + 2 + config.address_width + COPY_BYTES + 2
    writes = max(8, config.outstanding)
    return (row_buffer_bits(config) + max(4, config.outstanding) * placed
            + writes * (3 + 2 * IDENTITY))


def exchange_bits(config: Config):
    """A queue of copies from each lane to each port, where there are several."""
    if config.row_ports == 1:
        return 0
    return config.row_ports ** 2 * QUEUE * (2 * config.address_width + 2 + IDENTITY)


def row_mover_bits(config: Config):
    """In each lane the tables, and the regions twice (reads and writes are checked at once); the
    exchange; the ports; what computes on rows."""
    lane = table_bits(config) + 2 * region_bits(config)
    arithmetic = row_arithmetic_bits(config) if config.arithmetic else 0
    return (config.row_ports * (lane + row_port_bits(config)) + exchange_bits(config)
            + arithmetic)
