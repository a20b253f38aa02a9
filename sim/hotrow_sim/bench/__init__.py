"""Drivers, monitors and memories for cocotb benches of the units of `hotrow generate --unit`.

`simulate` builds and runs a bench; within it, `UnitBench` drives every stream and AXI4 port.
"""

from .runner import simulate, simulate_unit

__all__ = ["simulate", "simulate_unit"]
