"""Memory of the row arithmetic."""

from hotrow_rtl.config import LARGEST_ROW, Config, log2

from .pooling import row_pool_bits, row_update_bits

PACKED_ADDRESS = 64
CHECKED, AHEAD, BAGS, STATES = 32, 16, 64, 16  # entries under check, reads told before their words
WEIGHT, INDEX, STATUS, KIND = 32, 32, 8, 2


def row_arithmetic_bits(config: Config):
    """Queues of what is known of reads under check, in order, and before their words; of bags that
    are computed; of states; and the units that compute."""
    port = max(1, log2(config.row_ports))
    item = KIND + WEIGHT + 3 + INDEX + STATUS + 2
    read = (port + 1 + KIND + 3 + WEIGHT + INDEX + STATUS + PACKED_ADDRESS + 1
            + STATUS + config.address_width + 1 + PACKED_ADDRESS)
    end = 3 + STATUS + INDEX + PACKED_ADDRESS + config.address_width + 1 + PACKED_ADDRESS
    words = (LARGEST_ROW // config.bus_bytes).bit_length()
    return (CHECKED * item + max(16, config.outstanding) * read
            + AHEAD * (WEIGHT + 2 + KIND + words) + BAGS * end + STATES * 32
            + row_pool_bits(config) + row_update_bits(config))
