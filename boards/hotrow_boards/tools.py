"""Find and run the open tools."""

import shutil
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path


def tool(name: str) -> str:
    """Path of the native tool if installed, else of its YoWASP build.

    Raises
    ------
    ValueError
        Naming the tool and how to install it.
    """
    for candidate in (name, f"yowasp-{name}"):
        if found := (shutil.which(candidate)
                     or shutil.which(candidate, path=sysconfig.get_path("scripts"))):
            return found
    raise ValueError(f"{name} is not installed: pip install 'hotrow[boards]', or the OSS CAD Suite")


def run(command: list, folder: Path, log: str,
        watch: Callable[[str], None] = lambda line: None) -> None:
    """Run a tool in `folder` and write its output to the file `log` there.

    Parameters
    ----------
    command : list of str
    folder : Path
    log : str
    watch : callable
        Receives each line of output. If it raises, the tool is killed.

    Raises
    ------
    ValueError
        If the tool fails, with its own errors.
    """
    path = folder / log
    with path.open("wb") as output, subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT) as process:
        try:
            for line in process.stdout:
                output.write(line)
                output.flush()  # readable while the tool runs
                watch(line.decode(errors="replace"))
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        lines = path.read_text(errors="replace").splitlines()
        errors = [line for line in lines if line.startswith("ERROR")] or lines[-3:]
        raise ValueError(f"{Path(command[0]).name} failed with status {process.returncode}: "
                         f"{'; '.join(errors)}")
