"""Memory of the access counters."""

from hotrow_rtl.config import CREDIT_WIDTH, Config


def counters_bits(config: Config):
    """Per entry a count and a tag, whether it is live, and its credit."""
    entry = config.counter_bits + config.counter_tag_width + 1 + CREDIT_WIDTH
    return config.counter_entries * entry
