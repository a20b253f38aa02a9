"""Memory of the combiner."""

from hotrow_rtl.config import Config
from hotrow_rtl.interfaces.lookup_payloads import combined_beat, combined_lookup
from hotrow_rtl.lookup.combiner.combiner import DECISIONS
from hotrow_rtl.lookup.combiner.pipeline_depth import latency


def combiner_bits(config: Config):
    """Of every beat inside, what stays as it came: all but what is decided of its lookups."""
    decided = sum(combined_lookup(config)[name].width for name in DECISIONS)
    beats = 1 << (latency(config) - 1).bit_length()
    return beats * (combined_beat(config).size - config.lanes * decided)
