"""What the tests execute: docs/coverage.md.

    make coverage

Lines, branches and toggles of the Verilated card, over the tests of the device and a session of
each fuzzer; the functional points of `points`; lines and branches of the driver's Python. The card
is `covered.CARD`. The page has the holes.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

from hotrow_rtl.emit.verilog import emit

from . import points

PAGE = Path("docs/coverage.md")
BARS = {"line": 0.95, "branch": 0.90, "toggle": 0.90}
COVERED = "tests.support.covered"
FUZZ = ("import sys; from tests.support import covered; from tests.support.fuzz import {0}; "
        "sys.exit({0}.main({1}))")
CARD = (
    ["-m", "pytest", "-q", "-n", "0", "-p", COVERED, "-m", "slow and not long", "tests/sim/device",
     "--ignore=tests/sim/device/test_command_cycles.py",  # these expect the cycles of `tiny`
     "--ignore=tests/sim/device/test_litedram.py",  # these are of a card with several row ports
     "--deselect=tests/sim/device/test_queues.py::"
     "test_wait_holds_a_queue_until_the_other_signals"],
    ["-c", FUZZ.format("hostile", ["--accesses", "12000", "--seed", "1", "--card", "tiny"])],
    ["-c", FUZZ.format("soak", ["--rows", "1500", "--card", "covered"])],
    # More batches than stamps have numbers.
    ["-c", "from tests.support import covered; from tests.support.fuzz import plan_soak; "
     "plan_soak.soak(1, seed=4, batches=264, card='covered')"],
)
HIGH = 16  # bits of a signal from here on are beyond the sizes of most tests
POINT = re.compile(rb"C '(.*)' (\d+)$")

SOURCE = "sw_driver/hotrow"
TESTS = ("tests/driver", "tests/ids", "tests/kernels", "tests/torch")
INTERRUPTS = "tests/driver/test_driver_interrupts.py"  # one within coverage's lock would keep it
TIER = "not slow and not long and not formal"
FEW = 0.9  # of a Python file's lines: files below are listed
COUNTS = {"line": ("covered_lines", "num_statements"),
          "branch": ("covered_branches", "num_branches")}


def read_counts(octets: bytes) -> Counter:
    """Counts by (kind, module, line, name, column) from a file of Verilator."""
    found = Counter()
    for line in octets.splitlines():
        if match := POINT.match(line):
            fields = dict(part.split(b"\2", 1) for part in match[1].split(b"\1") if part)
            kind, _, module = fields[b"page"].decode().partition("/")
            found[kind.removeprefix("v_"), module, int(fields[b"l"]),
                  fields.get(b"o", b"").decode(), int(fields[b"n"])] += int(match[2])
    return found


def measure_card(folder: Path):
    """Run the tests of the card, all of which must pass; return the counts and the notes."""
    total = Counter()
    for command in CARD:
        subprocess.run([sys.executable, *command], check=True,
                       env={**os.environ, "HOTROW_COVERAGE": str(folder)})
        for path in folder.glob("*.dat"):
            total.update(read_counts(path.read_bytes()))
            path.unlink()
    return total, {path.stem for path in folder.glob("*.point")}


def unit_of(module):
    """The unit of a module: the first parts of its name, without numbers of instances."""
    parts = module.split(".")
    depth = 3 if parts[:2] in (["hotrow", "engines"], ["hotrow", "mover"]) else 2
    return ".".join(re.sub(r"__\w+$|_?\d+$", "", part) for part in parts[:depth])


def shares(counts):
    """Reached and all points by unit and kind."""
    result = defaultdict(lambda: {kind: [0, 0] for kind in BARS})
    for (kind, module, *_), count in counts.items():
        if kind in BARS:
            share = result[unit_of(module)][kind]
            share[0] += count > 0
            share[1] += 1
    return dict(sorted(result.items()))


def measure_python(folder: Path) -> dict:
    """Run the driver's tests; coverage.py's summary of every file by its path in the package."""
    environment = {**os.environ, "COVERAGE_FILE": str(folder / "data")}
    tool = [sys.executable, "-m", "coverage"]
    subprocess.run([*tool, "run", "--branch", f"--source={SOURCE}", "-m", "pytest", "-q", "-n", "0",
                    "-m", TIER, *TESTS, f"--ignore={INTERRUPTS}"], env=environment, check=True)
    subprocess.run([*tool, "json", "-q", "-o", folder / "files.json"], env=environment, check=True)
    return summaries(json.loads((folder / "files.json").read_text()))


def summaries(report) -> dict:
    """Summary of every file of a report, by its path in the package."""
    return {str(Path(path).relative_to(Path(SOURCE).parent)): entry["summary"]
            for path, entry in report["files"].items()}


def python_page(files: dict):
    """The tables of the driver's Python."""
    packages = defaultdict(list)
    for path, summary in files.items():
        packages[str(Path(path).parent)].append(summary)
    few = {path: summary for path, summary in sorted(files.items())
           if summary["num_statements"] and _share([summary], "line") < FEW}
    return [
        "## Python", "",
        "Lines and branches of the driver that the quick tests of driver, ids, kernels and "
        "`hotrow.torch` execute. Processes that tests start do not count: commands of the terminal "
        "and training on several ranks run in such processes and in the slow tests.", "",
        *_table("package", COUNTS, (
            (name, [_share(each, kind) for kind in COUNTS]) for name, each in (
                *sorted(packages.items()), ("all", list(files.values()))))), "",
        f"Files of which less than {FEW:.0%} of the lines ran:", "",
        *_table("file", COUNTS, ((path, [_share([summary], kind) for kind in COUNTS])
                                 for path, summary in few.items())), ""]


def card_page(counts, notes):
    """The tables of the card."""
    units = shares(counts)
    total = {kind: [sum(unit[kind][part] for unit in units.values()) for part in (0, 1)]
             for kind in BARS}
    rows = [(f"`{name}`", [share[0] / share[1] if share[1] else None for share in unit.values()])
            for name, unit in (*units.items(), ("all", total))]
    lines = ["## The card", "",
             f"{total['line'][1]:,} lines, {total['branch'][1]:,} branches and "
             f"{total['toggle'][1]:,} toggles (of each bit in each direction) of the Verilog; "
             "modules with several instances count once.", "",
             "A toggle is counted at registers, memories and outputs of modules: inputs and other "
             "nets repeat or connect these. Nothing is excluded.", "",
             *_table("unit", BARS, rows), "", _holes(counts), "", "## Functional points", "",
             "| points | reached | all |", "|---|---|---|"]
    groups = points.noted() | {"state of the hardware": list(points.SIGNALS)}
    reached = notes | {point for point, where in points.SIGNALS.items()
                       if _toggles(counts, *where)}
    for group, each in groups.items():
        lines.append(f"| {group} | {len(set(each) & reached)} | {len(each)} |")
    missed = [point for each in groups.values() for point in each if point not in reached]
    return [*lines, "", f"Missed: {', '.join(missed) or 'none'}.", ""]


def _holes(counts):
    """Where the toggles are that do not occur."""
    missed = [(module, name) for (kind, module, _, name, _), count in counts.items()
              if kind == "toggle" and not count]
    memories = sum(module.startswith("hotrow_ram") for module, _ in missed)
    high = sum(not module.startswith("hotrow_ram") and any(
        int(bit) >= HIGH for bit in re.findall(r"\[(\d+)\]:", name)) for module, name in missed)
    return (f"Of the {len(missed):,} toggles that did not occur, {high:,} are bits {HIGH} and "
            "above of a signal: the tests' tables, lists and regions have few rows and bytes, and "
            "upper halves of 64-bit registers exceed the addresses of this card; "
            f"{memories:,} are in words of memories that few commands fill; the others are single "
            "cases.")


def _toggles(counts, module, toggle):
    """Whether that toggle occurred in a module whose name ends so."""
    return any(count for (kind, where, _, name, _), count in counts.items()
               if kind == "toggle" and where.endswith(module) and name == toggle)


def _share(summaries, kind):
    covered, every = (sum(each[name] for each in summaries) for name in COUNTS[kind])
    return covered / every if every else None


def _table(head, kinds, rows):
    yield f"| {head} | {' | '.join(kinds)} |"
    yield "|---" * (1 + len(kinds)) + "|"
    for name, shares_ in rows:
        yield f"| {name} | " + " | ".join(
            "-" if share is None else f"{share:.1%}" for share in shares_) + " |"


def head(verilog):
    """The first lines of the page."""
    digest = hashlib.sha256(verilog.encode()).hexdigest()[:16]
    return ["# Coverage", "",
            "By the commands of `make coverage`, of the card `covered.CARD`, whose Verilog has the "
            f"SHA-256 {digest}.", ""]


def main():
    with tempfile.TemporaryDirectory(prefix="hotrow-coverage-") as name:
        card = card_page(*measure_card(Path(name)))
        python = python_page(measure_python(Path(name)))
    PAGE.write_text("\n".join((*head(emit(points.CARD)), *card, *python)))
    print(PAGE)


if __name__ == "__main__":
    main()
