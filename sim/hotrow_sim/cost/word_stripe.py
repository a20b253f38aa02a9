"""Memory of the word stripe."""

from hotrow_rtl.config import Config
from hotrow_rtl.lists.striped_writer import ANY_BYTES


def word_stripe_bits(config: Config, element=ANY_BYTES):
    """For each of two sides `burst_beats` pairs of words of elements, `width` + 1 bits each, and
    two flags."""
    elements = config.bus_bytes // element.nbytes
    return 2 * config.burst_beats * (2 * elements * (element.width + 1) + 2)
