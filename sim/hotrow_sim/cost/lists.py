"""Memory bits of the units of `hotrow_rtl.lists`."""

from hotrow_rtl.config import Config
from hotrow_rtl.lists.striped_writer import ANY_BYTES


def striped_writer_bits(config: Config, element=ANY_BYTES):
    """For each of two ports `burst_beats` pairs of words, each element with a strobe bit, and two
    flags."""
    elements = config.bus_bytes // element.nbytes
    return 2 * config.burst_beats * (2 * elements * (element.width + 1) + 2)
