"""Lines and branches of the driver's Python that the quick tests execute: docs/coverage.md.

    make coverage
"""

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

PAGE, DATA = Path("docs/coverage.md"), Path("build/coverage")
SOURCE = "sw_driver/hotrow"
TESTS = ("tests/driver", "tests/kernels", "tests/torch")
TRACES = "tests/driver/test_driver_interrupts.py"  # sets a trace function in place of coverage's
TIER = "not slow and not long and not formal"
FEW = 0.9  # of a file's lines: files below are listed
COUNTS = {"line": ("covered_lines", "num_statements"),
          "branch": ("covered_branches", "num_branches")}


def measure() -> dict:
    """Run the tests; coverage.py's summary of every file by its path in the package."""
    DATA.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "COVERAGE_FILE": str(DATA / "data")}
    tool = [sys.executable, "-m", "coverage"]
    subprocess.run([*tool, "run", "--branch", f"--source={SOURCE}", "-m", "pytest", "-q", "-n", "0",
                    "-m", TIER, *TESTS, f"--ignore={TRACES}"], env=environment, check=True)
    subprocess.run([*tool, "json", "-q", "-o", DATA / "files.json"], env=environment, check=True)
    return summaries(json.loads((DATA / "files.json").read_text()))


def summaries(report) -> dict:
    """Summary of every file of a report, by its path in the package."""
    return {str(Path(path).relative_to(Path(SOURCE).parent)): entry["summary"]
            for path, entry in report["files"].items()}


def page(files: dict) -> str:
    """The text of docs/coverage.md."""
    packages = defaultdict(list)
    for path, summary in files.items():
        packages[str(Path(path).parent)].append(summary)
    few = {path: summary for path, summary in sorted(files.items())
           if summary["num_statements"] and _share([summary], "line") < FEW}
    return "\n".join((
        "# Coverage", "",
        "Lines and branches of the driver's Python that the quick tests of driver, kernels and "
        "`hotrow.torch` execute, written by `make coverage`. Processes that tests start do not "
        "count: commands of the terminal and training on several ranks run in such processes and "
        "in the slow tests.", "",
        *_table("package", {name: each for name, each in sorted(packages.items())}
                | {"all": list(files.values())}), "",
        f"Files of which less than {FEW:.0%} of the lines ran:", "",
        *_table("file", {path: [summary] for path, summary in few.items()}), ""))


def _share(summaries, kind):
    covered, every = (sum(each[name] for each in summaries) for name in COUNTS[kind])
    return covered / every if every else None


def _table(head, rows):
    yield f"| {head} | lines | branches |"
    yield "|---|---|---|"
    for name, summaries in rows.items():
        shares = (_share(summaries, kind) for kind in COUNTS)
        yield f"| {name} | " + " | ".join(
            "-" if share is None else f"{share:.1%}" for share in shares) + " |"


if __name__ == "__main__":
    PAGE.write_text(page(measure()))
    print(PAGE)
