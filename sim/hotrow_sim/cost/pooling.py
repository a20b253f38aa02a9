"""Memory of the units that compute on rows."""

from hotrow_rtl.config import Config, log2

COUNT = 24  # of the rows in a bag
SLOTS = 32  # of bags, and as many records
WORDS_OUT = 32  # of rows that wait to leave
LARGEST_ROW = 4096


def bag_sums_bits(config: Config):
    """Partial sums of two bags or rows, twice, to accumulate and to read; the sums of two rows,
    put in order; pairs of rows of one level and of the others; bags in both queues."""
    width, longest = config.bus_width, 2 * config.row_bytes // config.bus_bytes
    index = log2(2 * LARGEST_ROW // config.bus_bytes)
    ring = 2 * max(2048 // config.bus_bytes, longest) * width
    order = 2 * longest * width
    pair_beats = 1024 // config.bus_bytes
    tag = log2(2 * longest) + log2(SLOTS) + 1
    entering = 8 * (width + 4 + 1 + log2(pair_beats) + tag)
    pairs = 2 * pair_beats * width + 4 * pair_beats * width + entering
    return (2 * ring + order + pairs + SLOTS * (COUNT + 1 + 4) + SLOTS // 2 * (COUNT + index))


def row_words_bits(config: Config):
    """Words, and which are the last of their rows."""
    return WORDS_OUT * (config.bus_width + 1)


def row_pool_bits(config: Config):
    return bag_sums_bits(config) + row_words_bits(config)


def square_sum_bits(config: Config):
    """Steps and sums that wait, and the pairs of up to 8192 / lanes steps."""
    levels = log2(8192 // config.lanes)
    rise = 32 << 1 + (levels - 1).bit_length()
    return (32 + 8) * 32 + 8 * 32 + rise + 8 * (32 + levels + 1 + 1 + 1)


def row_update_bits(config: Config):
    """Gradients and words of two rows, the squares, and queues of 2 around Adagrad's scalars."""
    longest = 2 * config.row_bytes // config.bus_bytes
    return (2 * longest * (config.bus_width + 1) + longest * config.bus_width
            + 2 * (config.bus_width + 1) + square_sum_bits(config) + 4 * 32
            + row_words_bits(config))
