"""Memory of the directory and its lists."""

from hotrow_rtl.config import Config, log2


def partition_width(config: Config):
    """Bits of log2 of the parts, and of the part."""
    most = log2(config.directory_partitions)
    return max(1, most.bit_length()) + max(1, most)


def directory_bank_bits(config: Config):
    """A valid bit and a tag per slot of one bank: `slots` / `banks` * (1 +
    `directory_tag_width`)."""
    return config.slots // config.banks * (1 + config.directory_tag_width)


def directory_bits(config: Config):
    """All banks."""
    return config.banks * directory_bank_bits(config)


def directory_list_bits(config: Config):
    """A valid bit, the last row and the partition per table."""
    return config.tables * (1 + config.row_width + partition_width(config))
