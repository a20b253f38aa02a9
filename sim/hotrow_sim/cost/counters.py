"""Memory of the access counters."""

from hotrow_rtl.config import Config


def counters_bits(config: Config):
    """A count and a tag per entry: `counter_entries` * (`counter_bits` + `counter_tag_width`)."""
    return config.counter_entries * (config.counter_bits + config.counter_tag_width)
