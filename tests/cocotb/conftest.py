"""Runs the cocotb test benches of this folder on the installed simulators."""

from pathlib import Path

import pytest
from hotrow_sim import bench
from hotrow_sim.toolchain import ToolMissing

HERE = Path(__file__).parent
VERILATOR = pytest.param("verilator", marks=pytest.mark.long)  # it compiles each bench


@pytest.fixture(params=[VERILATOR, "icarus"])
def simulator(request, monkeypatch):
    """The name of a simulator; skips without cocotb. The simulation finds this folder's benches."""
    pytest.importorskip("cocotbext.axi", reason="cocotbext-axi is not installed")
    for folder in (HERE, HERE / "units"):
        monkeypatch.syspath_prepend(folder)  # the simulation inherits sys.path
    return request.param


@pytest.fixture
def simulate(simulator, tmp_path):
    """A function that runs one bench on a Verilog text; skips without the simulator."""
    def run(verilog, toplevel, module, **environment):
        source = tmp_path / f"{toplevel}.v"
        source.write_text(verilog)
        run_or_skip(bench.simulate, source, toplevel, module, simulator=simulator,
                    folder=tmp_path, environment=environment)
    return run


@pytest.fixture
def simulate_unit(simulator, tmp_path):
    """A function that runs the bench of a unit, given its files; skips without the simulator."""
    def run(files, module, **environment):
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        description, = tmp_path.glob("hotrow_*.json")
        run_or_skip(bench.simulate_unit, description, module, simulator=simulator,
                    folder=tmp_path, environment=environment)
    return run


def run_or_skip(run, *arguments, **named):
    try:
        run(*arguments, **named)
    except ToolMissing as missing:
        pytest.skip(str(missing))
