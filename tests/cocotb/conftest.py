"""Runs the cocotb test benches of this folder on the installed simulators."""

import shutil
from pathlib import Path

import pytest

HERE = Path(__file__).parent
# Verilator compiles each bench for half a minute.
VERILATOR = pytest.param("verilator", marks=(
    pytest.mark.long if shutil.which("iverilog") else pytest.mark.slow))


@pytest.fixture(params=[VERILATOR, "icarus"])
def simulate(request, tmp_path, monkeypatch):
    """A function that runs one bench on a Verilog text; skips without the simulator or cocotb."""
    from hotrow_sim import bench
    from hotrow_sim.toolchain import ToolMissing

    pytest.importorskip("cocotbext.axi", reason="cocotbext-axi is not installed")
    for folder in (HERE, HERE / "units"):
        monkeypatch.syspath_prepend(folder)  # the simulation inherits sys.path

    def run(verilog, toplevel, module, **environment):
        source = tmp_path / f"{toplevel}.v"
        source.write_text(verilog)
        try:
            bench.simulate(source, toplevel, module, simulator=request.param, folder=tmp_path,
                           environment=environment)
        except ToolMissing as missing:
            pytest.skip(str(missing))

    return run
