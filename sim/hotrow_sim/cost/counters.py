"""Memory of the access counters."""

from hotrow_rtl.config import Config


def counters_bits(config: Config):
    """A count and a tag per entry, and a hand per set."""
    hand = (config.counter_ways - 1).bit_length()
    entry = config.counter_bits + config.counter_tag_width
    return config.counter_entries * entry + config.counter_sets * hand
