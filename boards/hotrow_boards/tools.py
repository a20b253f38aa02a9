"""The open tools: where they are, and what they say when they fail."""

import shutil
import subprocess
import sysconfig
from pathlib import Path


def tool(name: str) -> str:
    """The native tool where there is one, else its build from the package registry.

    Raises
    ------
    ValueError
        Naming the tool and how to get it.
    """
    for candidate in (name, f"yowasp-{name}"):
        if found := (shutil.which(candidate)
                     or shutil.which(candidate, path=sysconfig.get_path("scripts"))):
            return found
    raise ValueError(f"{name} is not installed: pip install 'hotrow[boards]', or the OSS CAD Suite")


def run(command: list, folder: Path, log: str) -> None:
    """Run a tool in `folder`; what it says goes to the file `log` there.

    Raises
    ------
    ValueError
        With the tool's own errors, if it fails.
    """
    path = folder / log
    with path.open("wb") as said:
        done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=said,
                              stderr=subprocess.STDOUT)
    if done.returncode:
        lines = path.read_text(errors="replace").splitlines()
        errors = [line for line in lines if line.startswith("ERROR")] or lines[-3:]
        raise ValueError(f"{Path(command[0]).name} failed with status {done.returncode}: "
                         f"{'; '.join(errors)}")
