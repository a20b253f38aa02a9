"""Memory of the miss table and of the numbers of its rows."""

from hotrow_rtl.config import EPOCH_WIDTH, Config, log2


def miss_table_bits(config: Config):
    """An epoch and a tag per entry."""
    return config.miss_entries * (EPOCH_WIDTH + config.rest_width - log2(config.miss_sets))


def miss_numbers_bits(config: Config):
    """A number per entry."""
    return config.miss_entries * config.slot_word_width
