"""The figures of a release in one JSON file, and their plot: `python -m benchmarks.release`.

Area and depth are those of Yosys, not placed; cycles are counted by the Verilated card; minutes are
those of one machine.
"""

import argparse
import contextlib
import importlib.metadata
import io
import json
import shlex
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from hotrow.command import cli
from hotrow_rtl.emit.unit import unit_files
from hotrow_rtl.units.catalog import UNITS, unit

from .synthesis.depth import deepest
from .synthesis.xilinx import DEVICES, map_modules, resources, total

DEVICE = DEVICES["xc7a200t"]
BENCHES = ("observe --preset tiny --trace zipf:1.05 --json",
           "split --preset tiny --trace zipf:1.05 --json",
           "gather --preset tiny --row-bytes 64 --json")


def unit_figures(name: str) -> dict:
    """LUTs, flip-flops, block RAMs and levels of a unit with its default parameters."""
    chosen = unit(name)
    files, _ = unit_files(chosen, chosen.config({}))
    verilog = files[f"{chosen.module}.v"]
    with tempfile.TemporaryDirectory(prefix="hotrow-release-") as folder:
        modules = map_modules(verilog, chosen.module, Path(folder), DEVICE)
    return {**total(resources(modules, chosen.module)),
            "levels": deepest(modules, chosen.module, 1)[0]["levels"],
            "verilog_lines": verilog.count("\n")}


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
    """LUTs and levels of every unit, a bar for each release."""
    import matplotlib
    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(10, 3.5), sharey=True)
    height, names = 0.8 / len(releases), list(releases[-1]["units"])
    for axis, key, label in ((axes[0], "luts", f"LUTs, {DEVICE.name}, by Yosys"),
                             (axes[1], "levels", "levels of LUTs between registers")):
        for number, release in enumerate(releases):
            axis.barh([place + number * height for place in range(len(names))],
                      [release["units"].get(name, {}).get(key, 0) for name in names], height,
                      label=release["version"])
        axis.set_yticks(range(len(names)), names)
        axis.set_xlabel(label)
    axes[0].legend()
    figure.tight_layout()
    matplotlib.rcParams["svg.hashsalt"] = "hotrow"
    figure.savefig(path, metadata={"Date": None})


def main(arguments=None) -> int:
    """Write the figures, and plot those of every release in their folder."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.release", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/releases"), metavar="DIR")
    parser.add_argument("--units", default=",".join(UNITS), help="by default all")
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
    for name in options.units.split(","):
        print(f"mapping {name} ...", file=sys.stderr, flush=True)
        figures["units"][name] = unit_figures(name)
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
