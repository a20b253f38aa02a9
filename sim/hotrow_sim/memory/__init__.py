"""One memory model for the Amaranth simulator and the Verilated device."""

from .dram import MEMORIES, Dram, DramTiming, dram_timing
from .model import DECERR, SLVERR, Behaviour, MemoryModel, ReadPort, Statistics, WritePort

__all__ = [
    "DECERR",
    "MEMORIES",
    "SLVERR",
    "Behaviour",
    "Dram",
    "DramTiming",
    "MemoryModel",
    "ReadPort",
    "Statistics",
    "WritePort",
    "dram_timing",
]
