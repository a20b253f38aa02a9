import stat
import sys

import pytest

# Stand-ins for the tools. They write the files that the real tools write, and log their arguments.
YOSYS = """\
import json, pathlib, re
top = re.search(r"-top (\\S+)", pathlib.Path("synthesis.ys").read_text())[1]
counts = json.loads(pathlib.Path(r"FOLDER/cells.json").read_text())
cells = {f"{kind}{number}": {"type": kind}
         for kind, count in counts.items() for number in range(count)}
pathlib.Path("netlist.json").write_text(json.dumps({"modules": {top: {"cells": cells}}}))
"""
NEXTPNR = """\
import json, pathlib, sys, time
seed = sys.argv[sys.argv.index("--seed") + 1]
with open(r"FOLDER/asked", "a") as asked:
    print(*sys.argv[1:], file=asked)
report = sys.argv[sys.argv.index("--report") + 1]
by_seed = json.loads(pathlib.Path(r"FOLDER/fmax.json").read_text())
fmax = by_seed.get(seed, [*by_seed.values()][-1])  # the last one for other seeds
if fmax is None:
    print("Info: placing")
    print("ERROR: unable to place cell 'core.x'")
    sys.exit(1)
if fmax == "unroutable":
    for number in range(1, 1000):
        print(f"Info:     iter={number} wires=900 overused={1000 - number} overuse=900", flush=True)
        if number > 310:
            time.sleep(60)
clocks = fmax if isinstance(fmax, dict) else {"clk": [fmax, 50]}
pathlib.Path(report).write_text(json.dumps({"fmax": {
    name: {"achieved": achieved, "constraint": constraint}
    for name, (achieved, constraint) in clocks.items()}}))
if "--textcfg" in sys.argv:
    pathlib.Path(sys.argv[sys.argv.index("--textcfg") + 1]).write_text("routed")
"""
ECPPACK = """\
import pathlib, sys
pathlib.Path(sys.argv[-1]).write_bytes(b"bits of " + pathlib.Path(sys.argv[-2]).read_bytes())
"""
LOADER = """\
import pathlib, sys
with open(r"FOLDER/asked", "a") as asked:
    print(*sys.argv[1:], file=asked)
if pathlib.Path(r"FOLDER/absent").exists():
    print("unable to open ftdi device: -3 (device not found)")
    sys.exit(1)
"""


class Tools:
    """Results of the stand-ins.

    `cells`: cells of the netlist by type. `fmax`, by seed: MHz of the only clock, or {clock:
    (achieved, required)}, or None for an error, or "unroutable" for rounds without end.
    """

    def __init__(self, folder):
        self.folder = folder
        self.answer({"LUT4": 100, "CCU2C": 10, "TRELLIS_DPR16X4": 5, "TRELLIS_FF": 77,
                     "DP16KD": 3, "MULT18X18D": 2, "PFUMX": 9}, {"1": 120.04, "2": 90, "3": 101.26})

    def answer(self, cells=None, fmax=None):
        import json

        for name, value in (("cells", cells), ("fmax", fmax)):
            if value is not None:
                (self.folder / f"{name}.json").write_text(json.dumps(value))

    @property
    def asked(self):
        """Arguments of every call of the router and the loader."""
        asked = self.folder / "asked"
        return asked.read_text().splitlines() if asked.exists() else []


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """Stand-ins for the tools, on the path."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for name, body in (("yosys", YOSYS), ("nextpnr-ecp5", NEXTPNR), ("ecppack", ECPPACK),
                       ("openFPGALoader", LOADER)):
        path = folder / name
        path.write_text(f"#!{sys.executable}\n{body.replace('FOLDER', str(folder))}")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    return Tools(folder)


@pytest.fixture
def no_tools(tmp_path, monkeypatch):
    """No tool is installed."""
    from hotrow_boards import tools

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(tools.sysconfig, "get_path", lambda name: str(tmp_path))
