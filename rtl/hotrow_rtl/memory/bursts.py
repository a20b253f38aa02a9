"""AXI4 bursts of lists and results.

A burst ends at each address that is a multiple of `burst_beats` bus words. A few address bits show
such a boundary, and no burst crosses 4 KiB, because a full burst's size divides that.
"""

from amaranth import Mux
from amaranth.lib import data

from ..config import Config, log2
from ..interfaces.records import FAULT_DECERR, FAULT_SLVERR, LIST_BYTES_WIDTH
from .axi import DECERR, SLVERR


def word_width(config: Config) -> int:
    """Bits of the index of a bus word in memory, its byte address divided by `bus_bytes`."""
    return config.address_width - log2(config.bus_bytes)


def list_len_width(config: Config) -> int:
    """Bits of the number of bus words of a list, minus one."""
    return LIST_BYTES_WIDTH - log2(config.bus_bytes)


def burst(config: Config) -> data.StructLayout:
    """`len_minus_1` + 1 (1 to `burst_beats`) bus words, the first of index `word`."""
    return data.StructLayout({"word": word_width(config), "len_minus_1": log2(config.burst_beats)})


def fault_of(response):
    """The `fault` of an AXI response; 0 for OKAY."""
    return Mux(response == SLVERR, FAULT_SLVERR, Mux(response == DECERR, FAULT_DECERR, 0))
