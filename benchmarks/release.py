"""The figures of a release in one JSON file, and their plot: `python -m benchmarks.release`.

Area and depth are those of Yosys, not placed; cycles are counted by the Verilated card and by the
benches of the units; seconds and minutes are those of one machine.
"""

import argparse
import contextlib
import importlib.metadata
import io
import json
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from xml.etree import ElementTree

from hotrow.command import cli
from hotrow_boards.tools import tool
from hotrow_rtl.emit.unit import unit_files
from hotrow_rtl.units.catalog import UNITS, unit
from hotrow_sim.bench import simulate_unit
from hotrow_sim.bench.runner import SIMULATORS
from hotrow_sim.toolchain import find_verilator

from tests.support.unit_files import CASES, files_of

from .synthesis.depth import deepest
from .synthesis.xilinx import DEVICES, map_modules, resources, total

DEVICE = DEVICES["xc7a200t"]
_COCOTB = Path(__file__).parents[1] / "tests" / "cocotb"
BENCH_FOLDERS = [str(_COCOTB), str(_COCOTB / "units"), str(_COCOTB.parents[1])]
BENCHES = ("observe --preset tiny --trace zipf:1.05 --json",
           "split --preset tiny --trace zipf:1.05 --json",
           "gather --preset tiny --row-bytes 64 --json")


PLOTTED = {
    f"LUTs, {DEVICE.name}, by Yosys": lambda unit: unit["luts"],
    "levels of LUTs between registers": lambda unit: unit["levels"],
    "lines of Verilog": lambda unit: unit["verilog_lines"],
    "seconds of hotrow generate": lambda unit: unit["generate_seconds"],
    "seconds of cocotb, Icarus": lambda unit: unit["cocotb"]["icarus"]["seconds"],
    "seconds of cocotb, Verilator": lambda unit: unit["cocotb"]["verilator"]["seconds"],
}


def unit_figures(name: str) -> dict:
    """LUTs, flip-flops, block RAMs and levels of a unit with its default parameters, the seconds
    that its files take, and messages of lint by tool."""
    chosen, start = unit(name), time.perf_counter()
    files, _ = unit_files(chosen, chosen.config({}))
    seconds = time.perf_counter() - start
    verilog = files[f"{chosen.module}.v"]
    with tempfile.TemporaryDirectory(prefix="hotrow-release-") as folder:
        for file, text in files.items():
            Path(folder, file).write_text(text)
        messages = lint(Path(folder), chosen.module)
        modules = map_modules(verilog, chosen.module, Path(folder), DEVICE)
    return {**total(resources(modules, chosen.module)),
            "levels": deepest(modules, chosen.module, 1)[0]["levels"],
            "verilog_lines": verilog.count("\n"), "generate_seconds": round(seconds, 1),
            "lint_messages": messages}


def lint(folder: Path, top: str) -> dict[str, int]:
    """Lines that Verilator (with the waivers), Icarus and Yosys print about a unit, by tool."""
    verilator = find_verilator()
    commands = {
        "verilator": ([verilator.program, "--lint-only", "-Wall", f"{top}.vlt", f"{top}.v"],
                      verilator.environment()),
        "icarus": (["iverilog", "-g2012", "-Wall", "-t", "null", f"{top}.v"], None),
        "yosys": ([tool("yosys"), "-q", "-p", f"read_verilog -sv {top}.v; hierarchy -check -top "
                                              f"{top}; proc; check -assert"], None)}
    counts = {}
    for name, (command, environment) in commands.items():
        done = subprocess.run(command, cwd=folder, env=environment, text=True, capture_output=True)
        printed = done.stdout + done.stderr
        if done.returncode:
            raise ValueError(f"{command[0]} refuses {top}.v:\n{printed[-2000:]}")
        counts[name] = sum(not line.startswith("- ") for line in printed.splitlines())
    return counts


def cocotb_figures(name: str) -> dict:
    """Tests and seconds of a unit's bench on each simulator, and the cycles that it counts."""
    sys.path += [path for path in BENCH_FOLDERS if path not in sys.path]  # simulations inherit them
    files, found = files_of(name, CASES[name][0]), {}
    for simulator in SIMULATORS:
        with tempfile.TemporaryDirectory(prefix="hotrow-release-") as folder:
            for file, text in files.items():
                Path(folder, file).write_text(text)
            start = time.perf_counter()
            passed, _ = simulate_unit(Path(folder, f"{unit(name).module}.json"), f"tb_{name}",
                                      folder=folder, simulator=simulator,
                                      environment={"ROUNDS": "1"})
            found[simulator] = {"tests": passed, "seconds": round(time.perf_counter() - start)}
            cycles = re.findall(r" cycles: (.*)", Path(folder, "test.log").read_text())
    return {"cocotb": found, "cycles": cycles}


def bench_figures(line: str) -> dict:
    """What `hotrow bench` prints as JSON."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = cli.main(["bench", *shlex.split(line)])
    if code:
        raise ValueError(f"hotrow bench {line} ended with {code}")
    return json.loads(printed.getvalue())


def test_minutes(report: Path) -> dict:
    """Tests and minutes of a JUnit report of pytest, by the first two folders of their files."""
    found: dict[str, list[float]] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        place = "/".join(case.get("classname", "").split(".")[:2])
        found.setdefault(place, []).append(float(case.get("time", 0)))
    return {place: {"tests": len(times), "minutes": round(sum(times) / 60, 2)}
            for place, times in sorted(found.items())}


def plot(releases: list[dict], path: Path) -> None:
    """Figures of every unit, a bar for each release."""
    import matplotlib
    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, len(PLOTTED) // 2, figsize=(10, 6), sharey=True)
    height, names = 0.8 / len(releases), list(releases[-1]["units"])
    for axis, (label, value) in zip(axes.flat, PLOTTED.items(), strict=True):
        for number, release in enumerate(releases):
            known = release["units"]
            bars = axis.barh([place + number * height for place in range(len(names))],
                             [value(known[name]) if name in known else 0 for name in names],
                             height, label=release["version"])
            axis.bar_label(bars, fmt="{:,.0f}", fontsize=7)
        axis.set_yticks(range(len(names)), names)
        axis.set_xlabel(label)
        axis.margins(x=0.2)
    axes.flat[0].legend()
    figure.tight_layout()
    matplotlib.rcParams["svg.hashsalt"] = "hotrow"
    figure.savefig(path, metadata={"Date": None})


def main(arguments=None) -> int:
    """Write the figures, and plot those of every release in their folder."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.release", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/releases"), metavar="DIR")
    parser.add_argument("--units", default=",".join(UNITS), help="by default all; '' for none")
    parser.add_argument("--benches", action=argparse.BooleanOptionalAction, default=True,
                        help="cycles on the Verilated card tiny")
    parser.add_argument("--tests", type=Path, metavar="XML",
                        help="report of `make test ARGS=--junitxml=XML`")
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    version = importlib.metadata.version("hotrow")
    path = options.output / f"{version}.json"
    figures = json.loads(path.read_text()) if path.exists() else {}
    figures |= {"version": version, "device": DEVICE.name}
    figures.setdefault("units", {})
    for name in filter(None, options.units.split(",")):
        print(f"mapping {name} ...", file=sys.stderr, flush=True)
        figures["units"][name] = unit_figures(name) | cocotb_figures(name)
        path.write_text(json.dumps(figures, indent=1) + "\n")
    if options.benches:
        figures["benches"] = {line: bench_figures(line) for line in BENCHES}
    if options.tests:
        figures["tests"] = test_minutes(options.tests)
    path.write_text(json.dumps(figures, indent=1) + "\n")
    plot([json.loads(each.read_text()) for each in sorted(options.output.glob("*.json"))],
         options.output / "units.svg")
    print(path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
