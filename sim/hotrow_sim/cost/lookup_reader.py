"""Memory of the lookup reader."""

from hotrow_rtl.config import ROW_NUMBER_WIDTH, Config

PARTITION_WIDTH = 9  # log2 of the parts, and the part
LENGTH_WIDTH = 16


def lookup_reader_bits(config: Config):
    """The last row and the partition of every table, once per lane, and the lengths kept."""
    tables = config.lanes * config.tables * (ROW_NUMBER_WIDTH + PARTITION_WIDTH)
    return tables + config.stored_lengths * LENGTH_WIDTH
