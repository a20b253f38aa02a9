"""Real memory controllers behind the simulated accelerator: LiteDRAM, from its own generator."""

from .core import Core, Unsuitable, dram_bytes, generate
from .levelled import levelled_program

__all__ = ["Core", "Unsuitable", "dram_bytes", "generate", "levelled_program"]
