"""Buffer of reads between the stages of bags."""

from ...config import ROW_ALIGNMENT, Config
from ...primitives.single_entry_fifo import SingleEntryFifo
from ...primitives.skid_buffer import SkidBuffer


def read_buffer(config: Config, shape):
    """Return a buffer of reads: the smaller one if every row takes two cycles of the bus."""
    return (SingleEntryFifo if config.bus_bytes < ROW_ALIGNMENT else SkidBuffer)(shape)
