import stat
import sys

import pytest

# Stand-ins for the tools: they leave the files that the real ones would, and what they were asked.
YOSYS = """\
import itertools, json, pathlib, re
top = re.search(r"-top (\\S+)", pathlib.Path("synthesis.ys").read_text())[1]
counts = json.loads(pathlib.Path(r"FOLDER/cells.json").read_text())
wires = itertools.count(2)
pins = {"TRELLIS_DPR16X4": {"RAD": 4, "WAD": 4, "WRE": 1, "WCK": 1, "DI": 4, "DO": 4},
        "TRELLIS_FF": {"DI": 1, "Q": 1}}
outputs = ("DO", "Q")
cells = {f"{kind}{number}": {
    "type": kind, "parameters": {}, "connections": {
        pin: [next(wires) for _ in range(width)] for pin, width in pins.get(kind, {}).items()},
    "port_directions": {pin: "output" if pin in outputs else "input"
                        for pin in pins.get(kind, {})}}
    for kind, count in counts.items() for number in range(count)}
pathlib.Path("netlist.json").write_text(json.dumps({
    "modules": {top: {"cells": cells, "netnames": {}, "ports": {}}}}))
"""
NEXTPNR = """\
import json, pathlib, sys, time
seed = sys.argv[sys.argv.index("--seed") + 1]
with open(r"FOLDER/asked", "a") as asked:
    print(*sys.argv[1:], file=asked)
if "--no-route" in sys.argv:
    pathlib.Path(sys.argv[sys.argv.index("--write") + 1]).write_text("placed")
    sys.exit()
report = sys.argv[sys.argv.index("--report") + 1]
assert "--no-place" not in sys.argv or (
    pathlib.Path(sys.argv[sys.argv.index("--json") + 1]).read_text() == "placed, refined")
fmax = json.loads(pathlib.Path(r"FOLDER/fmax.json").read_text())[seed]
if fmax is None:
    print("Info: placing")
    print("ERROR: unable to place cell 'core.x'")
    sys.exit(1)
if fmax == "late" and "--tmg-ripup" not in sys.argv:
    fmax = {"clk": [77, 100]}
if fmax in ("unroutable", "late"):
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
    """The stand-ins' answers: cells of the netlist by type; by seed the clock, or clocks by name
    with what each has to reach (None: an error; "unroutable": rounds without end; "late":
    only while it tries to keep to the clock)."""

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
    """The tools on the path are stand-ins, and so is what refines a placement."""
    def refine(placed, refined, *_):
        refined.write_text(f"{placed.read_text()}, refined")
        return {"before": {"mhz": 70.0}, "after": {"mhz": 90.0}}

    monkeypatch.setattr("hotrow_boards.refine.schedule.refine", refine)
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
    """There are no tools."""
    from hotrow_boards import tools

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(tools.sysconfig, "get_path", lambda name: str(tmp_path))
