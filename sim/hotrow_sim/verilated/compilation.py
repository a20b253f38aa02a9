"""Verilog text, the harness and the memory model become one shared library."""

import json
import os
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ..litedram import dram_bytes

TOP = "hotrow"
HERE = Path(__file__).parent
MEMORY = HERE.parent / "memory"
LITEDRAM = HERE.parent / "litedram"
HARNESS = HERE / "harness.cpp"
SOURCES = (HARNESS, HERE / "memory_ports.hpp", *sorted(MEMORY.glob("*.hpp")))
LITEDRAM_SOURCES = tuple(sorted(LITEDRAM.rglob("*.h*")))

VERILATOR_FLAGS = (
    "-O3", "--x-assign", "fast", "--x-initial", "fast", "--no-assert", "-Wno-fatal", "-Wno-lint",
    # Small functions in small files: the compilers' time grows faster than a function's length.
    "--output-split", "60000", "--output-split-cfuncs", "500",
)
COMPILER_FLAGS = ("-std=c++20", "-fPIC", "-w", "-pthread", "-fvisibility=hidden")
RUNS_ALWAYS, RUNS_ONCE = "-O1", "-O0"  # with -O2 a build takes a seventh more processor time
FLAGS = (VERILATOR_FLAGS, COMPILER_FLAGS, RUNS_ALWAYS, RUNS_ONCE)


class BuildError(RuntimeError):
    """A tool failed; the message holds its command and what it said."""


def compile_device(verilog, config, library, verilator, compiler, trace, progress, litedram=None):
    """Compile Verilog text with the harness.

    Parameters
    ----------
    verilog : str
    config : Config
        From which the Verilog was made.
    library : Path
        Where to put the result.
    verilator : Verilator
    compiler : list of str
        Command of a C++ compiler.
    trace : bool
        Whether the library can record its signals.
    progress : callable
        Given a text at every step.
    litedram : litedram.Core, optional
        The controller behind the row ports.

    Raises
    ------
    BuildError
    """
    with tempfile.TemporaryDirectory(prefix="hotrow-") as folder:
        folder = Path(folder)
        progress("translating Verilog to C++")
        sources = _translate(TOP, verilog, folder, verilator, trace)
        of_litedram = ()
        if litedram:
            sources += _translate("litedram", litedram.verilog, folder, verilator, False)
            for name, text in litedram.headers.items():
                (folder / name).parent.mkdir(exist_ok=True)
                (folder / name).write_text(text)
            of_litedram = ("-DHOTROW_LITEDRAM=1", f"-DHOTROW_LITEDRAM_BYTES={dram_bytes(config)}",
                           f"-I{LITEDRAM}", f"-I{LITEDRAM / 'include'}")
        flags = (f"-DHOTROW_BUS_BYTES={config.bus_bytes}",
                 f"-DHOTROW_ROW_PORTS={config.row_ports}",
                 f"-DHOTROW_RESULT_PORTS={config.result_ports}",
                 f"-DVM_TRACE={int(trace)}", f"-DVM_TRACE_VCD={int(trace)}", *of_litedram,
                 f"-I{MEMORY}")
        _compile(sources, HARNESS, flags, folder, library, verilator, compiler, progress)


def compile_model(top, verilog, harness, library, verilator, compiler, progress):
    """Compile the Verilog of any module with a harness of its own, which includes `Vtop.h`.

    Parameters, Raises
    ------------------
    As of `compile_device`.
    """
    with tempfile.TemporaryDirectory(prefix="hotrow-") as folder:
        folder = Path(folder)
        progress("translating Verilog to C++")
        sources = _translate(top, verilog, folder, verilator, False)
        _compile(sources, harness, (), folder, library, verilator, compiler, progress)


def _compile(sources, harness, flags, folder, library, verilator, compiler, progress):
    """Compile what `_translate` returned, link it with the harness."""
    # The largest first: nobody then waits long for the last one. Both models of a device with a
    # controller name the run-time library of Verilator.
    sources = sorted({*sources, (harness, RUNS_ALWAYS)},
                     key=lambda file: (-file[0].stat().st_size, file))
    command = [
        *compiler, *COMPILER_FLAGS, *private_symbols(compiler), *flags,
        *(f"-I{place}" for place in (folder, verilator.root / "include",
                                     verilator.root / "include" / "vltstd"))]

    def compile_one(job):
        path, level = job
        made = folder / f"{path.stem}.o"
        run_tool([*command, level, "-c", path, "-o", made])
        return made

    objects = []
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        if not _is_clang(compiler):
            list(pool.map(lambda job: _precompile(command, *job), [
                (header, level) for header in sorted(folder.glob("V*__pch.h"))
                for level in (RUNS_ALWAYS, RUNS_ONCE)]))
        for made in pool.map(compile_one, sources):
            objects.append(made)
            progress(f"compiled {len(objects)} of {len(sources)} files")
    run_tool([*compiler, "-shared", "-pthread", "-o", library, *objects])


def _translate(top, verilog, folder, verilator, trace):
    """Run Verilator; return the C++ files and the optimisation that each deserves."""
    source = folder / f"{top}.v"
    source.write_text(verilog)
    run_tool([verilator.program, "--cc", source, "--Mdir", folder, "--prefix", f"V{top}",
              "--top-module", top, "--make", "json", *VERILATOR_FLAGS,
              *(("--trace-vcd",) if trace else ())], verilator.environment())
    listed = json.loads((folder / f"V{top}.json").read_text())["sources"]
    return [(Path(path), RUNS_ONCE if kind.endswith("slow") else RUNS_ALWAYS)
            for kind, paths in listed.items() if kind != "deps"
            for path in paths if path.endswith(".cpp")]


def _precompile(command, header, level):
    """Compile a model's header, megabytes that every file of it begins with, once for each level:
    of those in such a folder GCC takes by itself the one that suits."""
    folder = header.with_name(f"{header.name}.gch")
    folder.mkdir(exist_ok=True)
    run_tool([*command, level, "-x", "c++-header", header, "-o", folder / level])


def private_symbols(compiler):
    """Flags that keep two devices in one process from sharing C++ statics."""
    return () if _is_clang(compiler) else ("-fno-gnu-unique",)


def _is_clang(compiler):
    said = subprocess.run([*compiler, "--version"], capture_output=True, text=True).stdout
    return "clang" in said


def run_tool(command, environment=None):
    """Run a command to its end.

    Raises
    ------
    BuildError
    """
    command = [str(part) for part in command]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        said = (done.stderr + done.stdout).strip().splitlines()
        raise BuildError(f"{Path(command[0]).name} failed with exit code {done.returncode}:\n"
                         + "\n".join(said[:30]) + "\ncommand: " + " ".join(command))
