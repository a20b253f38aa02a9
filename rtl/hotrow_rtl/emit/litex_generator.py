"""Cores of the LiteX project as Verilog, from their own generators.

Each generator runs as a subprocess, so that this process imports none of its packages.
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

MODULES = ("litex", "migen", "yaml")  # what every generator imports
_DESCRIPTION = "core.yml"
_KEPT = ("*.v", "*.json", "*.h", "*.init", "*.tcl")


class GeneratorMissing(ImportError):
    """A generator is not installed; the message names what is missing."""


class GeneratorFailed(RuntimeError):
    """A generator ended with an error; the message has the end of its output."""


def generate(program: list, modules, description: dict, options=()) -> dict[str, str]:
    """Run a generator.

    Parameters
    ----------
    program : list
        Arguments of the Python interpreter: `-m` and a module, or a script.
    modules : sequence of str
        Modules that the generator imports in addition to `MODULES`.
    description : dict
        The core's description, see the generator's manual.
    options : sequence of str
        Arguments before the name of the description's file.

    Returns
    -------
    dict of str to str
        The files by path; the same description gives the same text.

    Raises
    ------
    GeneratorMissing, GeneratorFailed
    """
    missing = [each for each in (*modules, *MODULES) if importlib.util.find_spec(each) is None]
    if missing:
        raise GeneratorMissing(f"{', '.join(missing)} is not installed")
    with tempfile.TemporaryDirectory(prefix="hotrow-") as folder:
        folder = Path(folder)
        (folder / _DESCRIPTION).write_text(json.dumps(description))  # JSON is YAML
        done = subprocess.run([sys.executable, *map(str, program), *options, _DESCRIPTION],
                              capture_output=True, text=True, cwd=folder,
                              env={**os.environ, "GIT_DIR": os.devnull})  # no commit in the text
        if done.returncode:
            raise GeneratorFailed(f"{' '.join(map(str, program))} failed:\n"
                                  + done.stderr.strip()[-2000:])
        return {str(path.relative_to(folder)): _cleaned(path)
                for suffix in _KEPT
                for path in sorted(folder.rglob(suffix))}


def _cleaned(path):
    """Text without dates, and without assignments that repeat the line before, which would drive a
    signal twice."""
    before, kept = "", []
    for line in path.read_text().splitlines(keepends=True):
        dated = "enerated by LiteX" in line or line.startswith("// Date")
        if not dated and not (line == before and line.startswith("assign ")):
            kept.append(line)
        before = line
    return "".join(kept)
