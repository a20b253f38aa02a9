"""A real memory controller for the simulated accelerator: LiteDRAM, from its own generator."""

from .core import Core, Unsuitable, dram_bytes, generate

__all__ = ["Core", "Unsuitable", "dram_bytes", "generate"]
