"""Memory of the sample marks."""

from hotrow_rtl.config import Config, log2
from hotrow_rtl.lookup.splitter.sample_partition import UNDER_WAY


def sample_marks_bits(config: Config):
    """A bit per sample for each of two batches, and the sizes of those under way."""
    return 2 * config.batch_samples + UNDER_WAY * (log2(config.batch_samples) + 1)
