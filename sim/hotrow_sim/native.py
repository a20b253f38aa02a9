"""C++ libraries for `ctypes`: the system's compiler, and a cache in which each is built once.

The cache is the folder `HOTROW_CACHE`, by default ~/.cache/hotrow. A library has the hash of its
sources, flags and tools in its name.
"""

import fcntl
import hashlib
import os
import shlex
import shutil
import stat
import subprocess
from contextlib import contextmanager
from functools import cache
from pathlib import Path


class CompilerError(RuntimeError):
    """No C++ compiler is installed."""


class BuildError(RuntimeError):
    """A tool failed; the message has its command and its output."""


def cache_folder() -> Path:
    """Folder of built libraries.

    Raises
    ------
    BuildError
        It is a link, or users other than this one and root own it or can write to it.
    """
    folder = Path(os.environ.get("HOTROW_CACHE") or Path.home() / ".cache" / "hotrow")
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    about = folder.lstat()
    if (not stat.S_ISDIR(about.st_mode) or about.st_mode & 0o022
            or about.st_uid not in (0, os.getuid())):
        raise BuildError(f"{folder} is a link, or other users can write to it: name a folder of "
                         f"your own, of mode 755 or less, in HOTROW_CACHE")
    return folder


def compiler() -> list[str]:
    """The command of the C++ compiler: `CXX`, or g++.

    Raises
    ------
    CompilerError
        With advice how to install one.
    """
    command = shlex.split(os.environ.get("CXX") or "g++")
    if shutil.which(command[0]) is None:
        raise CompilerError(
            f"the C++ compiler {command[0]!r} was not found on PATH; it builds the memory model "
            "of the simulated device. Install it with `apt install g++` (Debian, Ubuntu), "
            "`dnf install gcc-c++` (Fedora) or `xcode-select --install` (macOS), or name another "
            "in the environment variable CXX")
    return command


@cache
def compiler_version(*command) -> str:
    """Text that identifies a compiler."""
    return subprocess.run([*command, "--version"], capture_output=True, text=True).stdout


def run_tool(command, environment=None):
    """Run a command.

    Raises
    ------
    BuildError
    """
    command = [str(part) for part in command]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        output = (done.stderr + done.stdout).strip().splitlines()
        raise BuildError(f"{Path(command[0]).name} failed with exit code {done.returncode}:\n"
                         + "\n".join(output[:30]) + "\ncommand: " + " ".join(command))


def digest(*parts):
    """Hash of the parts: texts, objects with a `repr`, or files."""
    total = hashlib.sha256()
    for part in parts:
        octets = part.read_bytes() if isinstance(part, Path) else str(part).encode()
        total.update(f"{len(octets)}\n".encode() + octets)
    return total.hexdigest()[:24]


@contextmanager
def locked(path):
    """Hold the lock file of `path`, which excludes other processes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def publish(path, write):
    """Let `write(temporary path)` make a file, then rename it to `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        write(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def cached_file(name, parts, build, suffix=".so") -> Path:
    """Path of the file of that name and content, which `build(path)` makes unless it exists."""
    cached = cache_folder() / f"{name}-{digest(*parts)}{suffix}"
    if not cached.is_file():
        with locked(cached):
            if not cached.is_file():
                publish(cached, build)
    return cached
