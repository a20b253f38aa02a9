"""Memory bits of the units of `hotrow_rtl.mover`."""

from hotrow_rtl.config import LARGEST_ROW, Config, log2
from hotrow_rtl.interfaces.records import packed_address, region, table
from hotrow_rtl.mover.addressing.crossbar import QUEUE
from hotrow_rtl.mover.bags.pipeline import BAGS_COMPUTED, READS_CHECKED, STATES
from hotrow_rtl.mover.bags.read_collect import READS_AHEAD
from hotrow_rtl.mover.port.payloads import BYTES_WIDTH

from ..cycles.mover import buffer_words
from .arithmetic import bag_arithmetic_bits

ADDRESS = packed_address.size
COPY = 32 + 2 * ADDRESS + BYTES_WIDTH + 1  # fields that identify a copy in its completion
WEIGHT, INDEX, STATUS, KIND = 32, 32, 8, 2


def row_buffer_bits(config: Config):
    """Bus words in flight; per id two positions, four bits of its burst and three of the one
    before."""
    words = buffer_words(config)
    return words * config.bus_width + max(2, config.outstanding) * (2 * log2(words) + 4 + 3)


def row_port_bits(config: Config):
    """The buffer, and the queues of copies that wait for reads, for writes and for answers."""
    word_count = (LARGEST_ROW // config.bus_bytes).bit_length()
    placed = word_count + 3 * log2(config.word_lanes) + 2 + config.address_width + BYTES_WIDTH + 2
    writes = max(8, config.outstanding)
    return (row_buffer_bits(config) + max(4, config.outstanding) * placed
            + writes * (3 + 2 * COPY))


def address_crossbar_bits(config: Config):
    """With several ports, a queue of copies from each lane to each port."""
    if config.row_ports == 1:
        return 0
    return config.row_ports ** 2 * QUEUE * (2 * config.address_width + 2 + COPY)


def row_arithmetic_bits(config: Config):
    """The queues of entries under check, of reads in flight, of bags and of states; the units of
    `hotrow_rtl.arithmetic`."""
    port = max(1, log2(config.row_ports))
    item = KIND + WEIGHT + 3 + INDEX + STATUS + 2
    read = (port + 1 + KIND + 3 + WEIGHT + INDEX + STATUS + ADDRESS + 1
            + STATUS + config.address_width + 1 + ADDRESS)
    end = 3 + STATUS + INDEX + ADDRESS + config.address_width + 1 + ADDRESS
    words = (LARGEST_ROW // config.bus_bytes).bit_length()
    return (READS_CHECKED * item + max(16, config.outstanding) * read
            + READS_AHEAD * (WEIGHT + 2 + KIND + words) + BAGS_COMPUTED * end + STATES * 32
            + bag_arithmetic_bits(config.units))


def row_mover_bits(config: Config):
    """Per lane the tables, and the regions twice (reads and writes are checked in one cycle); the
    crossbar, the ports and the arithmetic."""
    lane = config.tables * table(config).size + 2 * config.handles * region(config).size
    arithmetic = row_arithmetic_bits(config) if config.arithmetic else 0
    return (config.row_ports * (lane + row_port_bits(config)) + address_crossbar_bits(config)
            + arithmetic)
