"""Plants single faults in a copy of the source and runs the tests that should notice.

    make mutants ARGS="--sample 40 --seed 1 --json"
    make mutants ARGS="--since main"

The faults are those that an engineer makes: see `mutations`. Each is drawn by package, then by
kind, so that every engine and every kind has its share. The tests are those that import the file,
the nearest first, until one fails or their time is over; `--device` adds those of the Verilated
device, which each fault of the hardware builds once: minutes. A test that hangs has noticed, by the
time of the processor; a process that the clock ends has no verdict, and its fault is counted apart.
A fault that changes nothing is listed, with the reason, in tests/equivalent_mutants.txt and is not
planted.
"""

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import SimpleQueue
from statistics import mean, median
from threading import Timer

import pytest

from .mutant_tests import tests_of
from .mutations import Mutation, mutations

TREES = ("rtl", "sim", "boards", "sw_driver", "tests")
RTL = "rtl/hotrow_rtl"
SOURCES = (*(f"{RTL}/{name}" for name in (
    "arithmetic", "float", "host", "interfaces", "lists", "lookup", "memory", "mover",
    "primitives", "top.py")), "sim/hotrow_sim/golden", "sw_driver/hotrow")
# Folders of the tests for each tree.
FOLDERS = {"rtl": ("rtl",), "sim": ("sim", "support", "rtl", "driver"),
           "sw_driver": ("driver", "engine", "ids", "kernels", "rtl", "torch")}
# Of sw_driver/hotrow: tools, and a text that must equal what is generated.
LEFT_OUT = ("bench", "doctor.py", "cli.py", "extras.py", "traces", "generated.py")
TIER = "not long and not formal"
NEAREST = 4  # test files of a first process, which need not collect the others
FIRST_SECONDS, SECONDS = 100, 40  # of the processor, for the nearest tests and for all others
PATIENCE = 20  # times as many on the clock, until a process that sleeps is ended
FOREMOST = {"missing restart": "restart|reset|clear|drop"}  # names of tests, by kind of fault
OUT_OF_TIME = "OUT OF TIME"  # instead of the name of a test
EQUIVALENT = Path("tests/equivalent_mutants.txt")


def unit_of(path: Path):
    """The engine that a figure is reported for: a package of the hardware, or of the software."""
    parts = path.with_suffix("").parts
    if parts[0] == "sw_driver" and len(parts) == 3:
        return parts[1]
    return "/".join(parts[2:4] if len(parts) > 4 else parts[1:3])


def collect(root: Path, changed=None) -> list[Mutation]:
    """Every fault that could be planted in the tree, or in its `changed` lines by path."""
    equivalent = {line.rsplit(" | ", 1)[0] for line in (
        root / EQUIVALENT).read_text().splitlines()} if (root / EQUIVALENT).exists() else set()
    paths = sorted(path.relative_to(root) for source in SOURCES
                   for path in ((root / source).rglob("*.py") if (root / source).is_dir()
                                else [root / source])
                   if not set(LEFT_OUT) & set(path.parts))
    return [each for path in paths
            if changed is None or str(path) in changed
            for each in mutations(path, (root / path).read_text(), path.parts[0] == "rtl")
            if each.key not in equivalent
            and (changed is None or each.number in changed[str(path)])]


def lines_since(repository: Path, revision):
    """Lines that differ from a git revision, by path."""
    text = subprocess.run(["git", "diff", "--unified=0", revision, "--", "*.py"], cwd=repository,
                          check=True, text=True, capture_output=True).stdout
    changed, path = defaultdict(set), None
    for line in text.splitlines():
        if line.startswith("+++ "):
            path = line.removeprefix("+++ b/")
        elif found := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            first, count = int(found[1]), int(found[2] or 1)
            changed[path].update(range(first, first + count))
    return changed


def draw(found, count, seed):
    """`count` different faults: a package, then a kind, then a place."""
    rng, groups = random.Random(seed), defaultdict(lambda: defaultdict(list))
    for each in found:
        groups[unit_of(each.path)][each.kind].append(each)
    drawn = []
    while groups and len(drawn) < count:
        unit = rng.choice(sorted(groups))
        kind = rng.choice(sorted(groups[unit]))
        places = groups[unit][kind]
        drawn.append(places.pop(rng.randrange(len(places))))
        if not places:
            del groups[unit][kind]
        if not groups[unit]:
            del groups[unit]
    return drawn


def tests_for(repository: Path, mutation: Mutation, device=False):
    """Test files for a fault by stage: the nearest, all others and those of the device."""
    tests = [each for each in tests_of(repository, mutation.path)
             if each.split("/")[1] in FOLDERS[mutation.path.parts[0]]]
    near = len(tests) if mutation.kind in FOREMOST else NEAREST
    last = (tests_of(repository, mutation.path, device=True)
            if device and mutation.path.parts[0] == "rtl" else [])
    return tests[:near], tests[near:], last


class PytestFailed(Exception):
    """Pytest itself has failed; the message has the end of its output."""


class Runner:
    """Runs tests over the copy at `root`.

    `cache` is the folder in which pytest keeps the time of each test. `seconds` is the sum of
    the processor time of all runs.
    """

    def __init__(self, root: Path, cache: Path):
        self.root, self.cache, self.seconds = root, cache, 0.0

    def noticed(self, tests, seconds=SECONDS, foremost=""):
        """Name of the test that fails or hangs, `OUT_OF_TIME`, or None.

        Raises
        ------
        PytestFailed
            If pytest itself has failed.
        """
        report, output = self.root / "noticed", self.root / "output"
        report.unlink(missing_ok=True)
        path = os.pathsep.join((*(str(self.root / tree) for tree in TREES if tree != "tests"),
                                *filter(None, (os.environ.get("PYTHONPATH"),))))
        with open(output, "w") as stream:
            process = subprocess.Popen(
                [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-m", TIER,
                 "--tb=native",  # the others fail where a hanging test has no line number
                 "-p", "tests.support.mutant_plugin", "-o", f"cache_dir={self.cache}",
                 "--seconds", str(seconds), "--noticed", str(report), "--foremost", foremost,
                 *tests], cwd=self.root, stdout=stream, stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
                start_new_session=True)
        ended = []
        clock = Timer(PATIENCE * seconds, lambda: (ended.append(True), os.killpg(process.pid, 9)))
        clock.start()
        _, status, usage = os.wait4(process.pid, 0)
        clock.cancel()
        process.returncode = status = os.waitstatus_to_exitcode(status)
        self.seconds += usage.ru_utime + usage.ru_stime
        if ended:
            return OUT_OF_TIME
        if report.exists():
            return report.read_text()
        if status == pytest.ExitCode.INTERNAL_ERROR:
            raise PytestFailed("\n".join(output.read_text().splitlines()[-40:]))
        # Else a file that all tests load does not load, or a signal has ended the process.
        passed = (pytest.ExitCode.OK, pytest.ExitCode.INTERRUPTED,
                  pytest.ExitCode.NO_TESTS_COLLECTED)  # interrupted when its time was over
        return None if status in passed else tests[0]

    def plant(self, mutation: Mutation, stages):
        """Plant a fault; return the name of the test that noticed it, `OUT_OF_TIME`, or None.

        `stages` are the test files of `tests_for`. Of a stage in which pytest itself fails the
        output is shown, and nothing was noticed.
        """
        path = self.root / mutation.path
        before = path.read_text()
        foremost = FOREMOST.get(mutation.kind, "")
        path.write_text(mutation.apply(before))
        try:
            for tests, seconds in zip(stages, (FIRST_SECONDS, SECONDS, 10 * SECONDS), strict=True):
                try:
                    if tests and (by := self.noticed(tests, seconds, foremost)):
                        return by
                except PytestFailed as failed:
                    print(mutation.key, failed, sep="\n", file=sys.stderr, flush=True)
        finally:
            path.write_text(before)
        return None

    def check(self, tests):
        """Raise SystemExit if one of the tests fails without any fault."""
        if tests and (by := self.noticed(sorted(tests), 10 * SECONDS * len(tests))):
            raise SystemExit(f"{by}: fails or does not end without any fault")


def copy_of(repository: Path, target: Path):
    """Copy what the tests need."""
    for tree in TREES:
        shutil.copytree(repository / tree, target / tree,
                        ignore=shutil.ignore_patterns("__pycache__", ".pytest_cache"))
    for name in ("pyproject.toml", "docs", "README.md", "benchmarks", "examples", "Makefile"):
        if (repository / name).exists():
            os.symlink(repository / name, target / name)


def plant_all(repository: Path, drawn, jobs, device):
    """Yield each fault with what `Runner.plant` returns and its processor seconds, as they end.

    When all have ended, the tests that noticed one run without any fault.
    """
    idle, tests = SimpleQueue(), set()
    with tempfile.TemporaryDirectory(prefix="hotrow-mutants-") as folder, \
            ThreadPoolExecutor(jobs) as pool:
        for number in range(jobs):
            root = Path(folder, str(number))
            copy_of(repository, root)
            idle.put(Runner(root, repository / ".pytest_cache"))

        def plant(mutation, stages):
            runner = idle.get()
            before = runner.seconds
            try:
                return mutation, runner.plant(mutation, stages), runner.seconds - before
            finally:
                idle.put(runner)

        for future in as_completed([
                pool.submit(plant, each, tests_for(repository, each, device)) for each in drawn]):
            mutation, by, seconds = future.result()
            yield mutation, by, seconds
            tests |= {by} - {None, OUT_OF_TIME}
        idle.get().check(tests)


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, default=20, help="faults to plant")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--under", default="", help="only files below this folder")
    parser.add_argument("--match", default="", help="only faults whose name contains this text")
    parser.add_argument("--since", help="only lines that differ from this git revision")
    parser.add_argument("--device", action="store_true",
                        help="run the Verilated device where no other test notices")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)),
                        help="faults at a time; default one per processor")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    options = parser.parse_args(arguments)
    repository = Path.cwd()
    changed = lines_since(repository, options.since) if options.since else None
    found = [each for each in collect(repository, changed)
             if str(each.path).startswith(options.under) and options.match in each.key]
    drawn = draw(found, options.sample, options.seed)
    planted, killed = (defaultdict(Counter) for _ in range(2))
    survivors, late, times, untrue = [], [], [], 0
    try:
        for number, (mutation, by, seconds) in enumerate(
                plant_all(repository, drawn, options.jobs, options.device), 1):
            for name, value in (("kind", mutation.kind), ("unit", unit_of(mutation.path))):
                planted[name][value] += by != OUT_OF_TIME
                killed[name][value] += by not in (None, OUT_OF_TIME)
            if by in (None, OUT_OF_TIME):
                (late if by else survivors).append(mutation.key)
            times.append(seconds)
            print(f"{number}/{len(drawn)} {mutation.key}: {by or 'SURVIVES'}, {seconds:.0f} s",
                  file=sys.stderr, flush=True)
    except SystemExit as failed:  # a test that fails without any fault
        untrue = failed.code
    survivors.sort()
    verdicts = len(drawn) - len(late)
    report = {"planted": len(drawn), "killed": verdicts - len(survivors)} | {
        f"by_{name}": {value: [killed[name][value], count]
                       for value, count in sorted(planted[name].items())}
        for name in ("kind", "unit")} | {"survivors": survivors, "out_of_time": sorted(late),
                  "seconds": {"median": round(median(times), 1), "mean": round(mean(times), 1)}}
    for key in survivors:
        print("repeat with: make mutants ARGS='--sample 1 --match "
              f"{json.dumps(key)}'", file=sys.stderr)
    if options.json:
        print(json.dumps(report))
    else:
        print(f"{report['killed']} of {verdicts} planted faults were noticed; of {len(late)} more "
              "the time on the clock ended the tests; processor seconds a fault: "
              f"{median(times):.0f} at the median, {mean(times):.0f} at the mean")
        print("\n".join([*survivors, *(f"{key}: {OUT_OF_TIME}" for key in sorted(late))]))
    return untrue


if __name__ == "__main__":
    sys.exit(main())
