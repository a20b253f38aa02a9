"""A floating-point unit alone, Verilated, for millions of operations."""

import ctypes
import json
import tempfile
from pathlib import Path

import numpy as np
from amaranth import Cat, Module, Value
from amaranth.hdl import Const
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...memory.library import cache_folder, compiler
from ...verilated import cache
from ...verilated.compilation import COMPILER_FLAGS, VERILATOR_FLAGS, private_symbols, run_tool
from ...verilated.toolchain import find_verilator
from ..cosim.component import component_verilog

HARNESS = Path(__file__).with_name("float_unit.cpp")
LIMIT = 1000  # cycles without a result: it hangs


class FlatUnit(wiring.Component):
    """The streams of a unit as ports of fixed widths.

    Parameters
    ----------
    unit : component with the streams `operands` and `results`

    Members
    -------
    a, b, c : In(32)
        The operands in the order of their layout; a unit with fewer ignores the others.
    given, taken : In(1)
    ready, done : Out(1)
    result : Out(32)
    waits : Out(1)
        Whether results wait until they are taken.
    """

    a: In(32)
    b: In(32)
    c: In(32)
    given: In(1)
    ready: Out(1)
    result: Out(32)
    done: Out(1)
    taken: In(1)
    waits: Out(1)

    def __init__(self, unit):
        self._unit = unit
        super().__init__()

    def elaborate(self, platform):
        m = Module()
        m.submodules.unit = unit = self._unit
        waits = not isinstance(unit.results.ready, Const)
        m.d.comb += [
            Value.cast(unit.operands.p).eq(Cat(self.a, self.b, self.c)),
            unit.operands.valid.eq(self.given),
            self.ready.eq(unit.operands.ready),
            self.result.eq(unit.results.p),
            self.done.eq(unit.results.valid),
            self.waits.eq(waits),
        ]
        if waits:
            m.d.comb += unit.results.ready.eq(self.taken)
        return m


def float_library(unit):
    """Path of the shared library of one unit, built unless the cache has it.

    Raises
    ------
    ToolMissing, CompilerError, BuildError
        As those of a device.
    """
    verilog, verilator, command = (
        component_verilog(FlatUnit(unit), "unit"), find_verilator(), compiler())
    name = cache.digest(verilog, verilator.version, command, VERILATOR_FLAGS, COMPILER_FLAGS,
                        HARNESS)
    library = cache_folder() / f"{type(unit).__name__}-{name}.so"
    with cache.locked(library):
        if not library.is_file():
            cache.publish(library, lambda path: _compile(verilog, path, verilator, command))
    return library


def _compile(verilog, library, verilator, command):
    with tempfile.TemporaryDirectory(prefix="hotrow-") as folder:
        folder = Path(folder)
        (folder / "unit.v").write_text(verilog)
        run_tool([verilator.program, "--cc", folder / "unit.v", "--Mdir", folder,
                  "--prefix", "Vunit", "--top-module", "unit", "--make", "json",
                  *VERILATOR_FLAGS], verilator.environment())
        listed = json.loads((folder / "Vunit.json").read_text())["sources"]
        sources = [path for kind, paths in listed.items() if kind != "deps"
                   for path in paths if path.endswith(".cpp")]
        include = verilator.root / "include"
        run_tool([*command, *COMPILER_FLAGS, *private_symbols(command), "-O2", "-shared",
                  f"-I{folder}", f"-I{include}", f"-I{include / 'vltstd'}", "-o", library,
                  HARNESS, *sources])


def run(unit, *operands, seed=0):
    """Send operands through a unit, as `floatbench.run`.

    Parameters
    ----------
    unit : component
    operands : uint32[n] each
    seed : int
        Of idle cycles at either end; 0 for none.

    Returns
    -------
    results : uint32[n]
    cycles : uint32[n]
    """
    count = len(operands[0])
    given = [np.ascontiguousarray(each, np.uint32) for each in operands]
    given += [np.zeros(count, np.uint32)] * (3 - len(given))
    results, cycles = (np.zeros(count, np.uint32) for _ in range(2))
    library = ctypes.CDLL(str(float_library(unit)))
    library.hotrow_float_run.restype = ctypes.c_uint64
    came = library.hotrow_float_run(
        *(each.ctypes.data_as(ctypes.c_void_p) for each in given), ctypes.c_uint64(count),
        ctypes.c_uint64(LIMIT), ctypes.c_uint64(seed),
        *(each.ctypes.data_as(ctypes.c_void_p) for each in (results, cycles)))
    assert came == count, f"result {came} of {count} did not come within {LIMIT} cycles"
    return results, cycles
