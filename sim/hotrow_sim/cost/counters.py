"""Memory of the access counters."""

from hotrow_rtl.config import Config


def counters_bits(config: Config):
    """Per entry a count and a tag, whether it is live, and its part of the hand of its set."""
    hand = (config.counter_ways - 1).bit_length()
    entry = config.counter_bits + config.counter_tag_width + 1 + hand
    return config.counter_entries * entry
