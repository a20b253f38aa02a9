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


class GeneratorMissing(ImportError):
    """A generator is not installed; the message names what is missing."""


class GeneratorFailed(RuntimeError):
    """A generator ended with an error; the message holds what it said."""


def generate(program: list, modules, description: dict, name: str) -> dict[str, str]:
    """Run a generator.

    Parameters
    ----------
    program : list
        Arguments of the Python interpreter: `-m` and a module, or a script, and options.
    modules : sequence of str
        What the generator imports beside `MODULES`.
    description : dict
        Of the core, as the generator's manual has it.
    name : str
        Of the Verilog module.

    Returns
    -------
    dict of str to str
        What it wrote, by path: `gateware/NAME.v`, `csr.json`, `software/include/...`. One
        description gives one text: lines that tell the day are left out.

    Raises
    ------
    GeneratorMissing, GeneratorFailed
    """
    missing = [each for each in (*modules, *MODULES) if importlib.util.find_spec(each) is None]
    if missing:
        raise GeneratorMissing(f"{', '.join(missing)} is not installed")
    with tempfile.TemporaryDirectory(prefix="hotrow-") as folder:
        folder = Path(folder)
        (folder / "core.yml").write_text(json.dumps(description))  # YAML takes JSON as it is
        done = subprocess.run(
            [sys.executable, *map(str, program), "--name", name, "--output-dir", folder,
             folder / "core.yml"], capture_output=True, text=True, cwd=folder)
        if done.returncode:
            raise GeneratorFailed(f"the generator of {name} failed:\n"
                                  + done.stderr.strip()[-2000:])
        return {str(path.relative_to(folder)): _undated(path)
                for suffix in ("*.v", "*.json", "*.h", "*.init", "*.xdc", "*.tcl")
                for path in sorted(folder.rglob(suffix))}


def _undated(path):
    return "".join(line for line in path.read_text().splitlines(keepends=True)
                   if "enerated by LiteX" not in line and not line.startswith("// Date"))
