"""Memory of the lookup reader."""

from hotrow_rtl.config import Config

from .directory import partition_width

LENGTH_WIDTH = 16


def lookup_reader_bits(config: Config):
    """The last row and the partition of every table, once per lane, and the lengths kept."""
    tables = config.lanes * config.tables * (config.row_width + partition_width(config))
    return tables + config.stored_lengths * LENGTH_WIDTH
