"""Cores of the LiteX project as Verilog, from their own generators.

The generators run as programs of their own: what they import stays out of this process.
"""

import importlib.util
import json
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
    """A generator ended with an error; the message holds what it said."""


def generate(program: list, modules, description: dict, options=()) -> dict[str, str]:
    """Run a generator.

    Parameters
    ----------
    program : list
        Arguments of the Python interpreter: `-m` and a module, or a script.
    modules : sequence of str
        What the generator imports beside `MODULES`.
    description : dict
        Of the core, as the generator's manual has it.
    options : sequence of str
        Arguments before the file of the description.

    Returns
    -------
    dict of str to str
        What it wrote, by path. One description gives one text.

    Raises
    ------
    GeneratorMissing, GeneratorFailed
    """
    missing = [each for each in (*modules, *MODULES) if importlib.util.find_spec(each) is None]
    if missing:
        raise GeneratorMissing(f"{', '.join(missing)} is not installed")
    with tempfile.TemporaryDirectory(prefix="hotrow-") as folder:
        folder = Path(folder)
        (folder / _DESCRIPTION).write_text(json.dumps(description))  # YAML takes JSON as it is
        done = subprocess.run([sys.executable, *map(str, program), *options, _DESCRIPTION],
                              capture_output=True, text=True, cwd=folder)
        if done.returncode:
            raise GeneratorFailed(f"{' '.join(map(str, program))} failed:\n"
                                  + done.stderr.strip()[-2000:])
        return {str(path.relative_to(folder)): _cleaned(path)
                for suffix in _KEPT
                for path in sorted(folder.rglob(suffix))}


def _cleaned(path):
    """Text without the day, and without assignments that say again what the line before said:
    they would be two drivers of one signal."""
    before, kept = "", []
    for line in path.read_text().splitlines(keepends=True):
        dated = "enerated by LiteX" in line or line.startswith("// Date")
        if not dated and not (line == before and line.startswith("assign ")):
            kept.append(line)
        before = line
    return "".join(kept)
