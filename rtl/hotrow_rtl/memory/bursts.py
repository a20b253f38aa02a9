"""AXI4 bursts of lists and results.

A burst ends where the memory beyond is a multiple of `burst_beats` bus words. Such a boundary is
found by looking at a few address bits, and no burst ever crosses 4 KiB, because a full burst's
size divides that.
"""

from amaranth import Mux
from amaranth.lib import data

from ..config import Config, log2
from ..interfaces.records import FAULT_DECERR, FAULT_SLVERR, LIST_BYTES_WIDTH
from .axi import DECERR, SLVERR


def word_width(config: Config) -> int:
    """Bits of the number of a bus word in memory, its byte address divided by `bus_bytes`."""
    return config.address_width - log2(config.bus_bytes)


def words_width(config: Config) -> int:
    """Bits of a count of bus words: as many as the longest list has."""
    return LIST_BYTES_WIDTH - log2(config.bus_bytes) + 1


def less_width(config: Config) -> int:
    """Bits of such a count less one."""
    return words_width(config) - 1


def burst(config: Config) -> data.StructLayout:
    """`less` + 1 (1 to `burst_beats`) bus words from number `word`."""
    return data.StructLayout({"word": word_width(config), "less": log2(config.burst_beats)})


def fault_of(response):
    """The `fault` that an AXI response stands for; 0 for OKAY."""
    return Mux(response == SLVERR, FAULT_SLVERR, Mux(response == DECERR, FAULT_DECERR, 0))
