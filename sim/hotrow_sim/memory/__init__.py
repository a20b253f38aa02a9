"""One memory model for the Amaranth simulator, cocotb and the Verilated device."""

from .library import CompilerError
from .model import DECERR, SLVERR, Behaviour, MemoryModel, ReadPort, Statistics, WritePort

__all__ = [
    "DECERR",
    "SLVERR",
    "Behaviour",
    "CompilerError",
    "MemoryModel",
    "ReadPort",
    "Statistics",
    "WritePort",
]
