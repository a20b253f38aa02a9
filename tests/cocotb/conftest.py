"""Runs the cocotb test benches of this folder on the installed simulators."""

import os
import shutil
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
# Verilator compiles each bench for half a minute.
VERILATOR = pytest.param("verilator", marks=(
    pytest.mark.long if shutil.which("iverilog") else pytest.mark.slow))


@pytest.fixture(params=[VERILATOR, "icarus"])
def simulate(request, tmp_path, monkeypatch):
    """A function that runs one bench on a Verilog text; skips without the simulator or cocotb."""
    runner_module = pytest.importorskip("cocotb_tools.runner", reason="cocotb is not installed")
    pytest.importorskip("cocotbext.axi", reason="cocotbext-axi is not installed")
    monkeypatch.syspath_prepend(HERE)  # the simulation inherits sys.path
    if request.param == "verilator":
        from hotrow_sim.toolchain import ToolMissing, find_verilator
        try:
            environment = find_verilator().environment()
        except ToolMissing as missing:
            pytest.skip(str(missing))
        if not shutil.which("make") or not shutil.which("perl"):
            pytest.skip("cocotb builds on Verilator with make and perl; one is not installed")
        for name in ("VERILATOR_ROOT", "PATH"):
            if name in environment:
                monkeypatch.setenv(name, environment[name])
        monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)  # python
        # The wheel's makefile lacks an option for precompiled headers. The benches are short, so
        # they compile without optimisation.
        monkeypatch.setenv("MAKEFLAGS", "CFG_CXXFLAGS_PCH_I=-include OPT_FAST=-O0 OPT_GLOBAL=-O0")
        build_args = ["-Wno-fatal", "-Wno-lint", "--x-initial", "fast",
                      "--no-public-flat-rw", "--public-depth", "1"]  # the benches use ports only
    elif not shutil.which("iverilog"):
        pytest.skip("Icarus Verilog (iverilog) is not installed")
    else:
        build_args = ["-g2012"]

    def run(verilog, toplevel, bench, **environment):
        source = tmp_path / f"{toplevel}.v"
        source.write_text(verilog)
        runner = runner_module.get_runner(request.param)
        runner.build(sources=[source], hdl_toplevel=toplevel, build_dir=tmp_path / "build",
                     build_args=build_args, timescale=("1ns", "1ps"), always=True,
                     log_file=tmp_path / "build.log")
        log = tmp_path / "test.log"
        try:
            results = runner.test(
                test_module=bench, hdl_toplevel=toplevel, build_dir=tmp_path / "build",
                test_dir=tmp_path, results_xml=str(tmp_path / "results.xml"),
                timescale=("1ns", "1ps"), log_file=log, extra_env=environment)
            passed, failed = runner_module.get_results(results)
        except SystemExit:  # the simulation ended without a report
            passed, failed = 0, 1
        assert passed and not failed, log.read_text()[-4000:]

    return run
