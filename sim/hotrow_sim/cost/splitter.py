"""Memory of the splitter."""

from hotrow_rtl.config import Config, log2

STAMP_WIDTH = 8
ORDER_DEPTH, MISS_DEPTH = 16, 8


def miss_list_bits(config: Config):
    """2 * `miss_entries` places of a stamp, an index and a key."""
    return 2 * config.miss_entries * (STAMP_WIDTH + log2(config.miss_entries) + config.key_width)


def splitter_bits(config: Config):
    """The miss list, a bit per sample, and short queues: slots of 4 + log2(`slots`) bits in
    order, keys of misses, and the same with an index and a bit of their own."""
    return (miss_list_bits(config) + config.batch_samples
            + ORDER_DEPTH * (4 + log2(config.slots)) + MISS_DEPTH * (2 * config.key_width + 33))
