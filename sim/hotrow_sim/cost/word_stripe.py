"""Memory of the word stripe."""

from hotrow_rtl.config import Config


def word_stripe_bits(config: Config):
    """For each of two sides `burst_beats` pairs of words with their strobes, and two flags."""
    return 2 * config.burst_beats * (2 * (config.bus_width + config.bus_bytes) + 2)
