"""The open tools: where they are, and what they say when they fail."""

import shutil
import subprocess
import sysconfig
from collections.abc import Callable
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


def run(command: list, folder: Path, log: str,
        watch: Callable[[str], None] = lambda line: None) -> None:
    """Run a tool in `folder`; what it says goes to the file `log` there.

    Parameters
    ----------
    command : list of str
    folder : Path
    log : str
    watch : callable
        Takes every line that it says. If it raises, the tool is ended.

    Raises
    ------
    ValueError
        With the tool's own errors, if it fails.
    """
    path = folder / log
    with path.open("wb") as said, subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT) as process:
        try:
            for line in process.stdout:
                said.write(line)
                said.flush()  # to be read while it runs
                watch(line.decode(errors="replace"))
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        lines = path.read_text(errors="replace").splitlines()
        errors = [line for line in lines if line.startswith("ERROR")] or lines[-3:]
        raise ValueError(f"{Path(command[0]).name} failed with status {process.returncode}: "
                         f"{'; '.join(errors)}")
