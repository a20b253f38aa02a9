"""C++ sources as shared libraries, built once by the system's compiler."""

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from ..contract.errors import Error

# Options that keep the bits: products and sums are fused only where the source says so.
FLAGS = ("-O3", "-march=native", "-std=c++17", "-ffp-contract=off", "-fno-math-errno",
         "-fno-trapping-math", "-Wno-psabi", "-fPIC", "-pthread")


def find_compiler():
    """Command of a C++ compiler: `CXX`, or the first that is installed; None if there is none."""
    if os.environ.get("CXX"):
        return shlex.split(os.environ["CXX"])
    found = next(filter(shutil.which, ("g++", "c++", "clang++")), None)
    return [found] if found else None


def cache_folder():
    """Where built libraries are kept: `HOTROW_CACHE`, by default ~/.cache/hotrow."""
    return Path(os.environ.get("HOTROW_CACHE") or Path.home() / ".cache" / "hotrow")


def load(name, sources, headers=(), command=None):
    """Load the library of some sources, compiled unless the cache has it.

    Parameters
    ----------
    name : str
        The library's name in the cache.
    sources, headers : sequence of Path
    command : list of str, optional
        The compiler; `find_compiler()` by default.

    Returns
    -------
    ctypes.CDLL
        Calls release the interpreter lock.

    Raises
    ------
    Error
        There is no compiler, or it failed: with its message.
    """
    command = command or find_compiler()
    if not command:
        raise Error("no C++ compiler was found: install g++ or clang++, or name one in CXX")
    library = cache_folder() / f"{name}-{_digest(command, (*sources, *headers))}.so"
    if not library.exists():
        _build(command, sources, library)
    return ctypes.CDLL(str(library))


def _digest(command, files):
    """Name for all that a library depends on."""
    content = hashlib.sha256("\0".join((*command, _version(tuple(command)), _processor(),
                                        *FLAGS)).encode())
    for file in files:
        content.update(file.read_bytes())
    return content.hexdigest()[:24]


@cache
def _version(command):
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, text=True)
    except OSError as error:
        raise Error(f"the C++ compiler {command[0]!r} could not be run ({error}): install g++ or "
                    f"clang++, or name another in CXX") from error
    return done.stdout


@cache
def _processor():
    """The instructions of this machine, which `-march=native` uses."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.machine()} {platform.processor()} {flags}"


def _build(command, sources, library):
    try:
        library.parent.mkdir(parents=True, exist_ok=True)
        # Another process may build the same: each writes its own file, the last rename wins.
        with tempfile.TemporaryDirectory(dir=library.parent) as folder:
            compile_library(command, FLAGS, sources, Path(folder) / library.name)
            (Path(folder) / library.name).replace(library)
    except OSError as error:
        raise Error(f"{library} could not be written ({error}): name a folder in HOTROW_CACHE"
                    ) from error


def compile_library(command, flags, sources, library):
    """Compile sources to a shared library, several at the same time.

    Raises
    ------
    Error
        With the compiler's message.
    """
    objects = [library.parent / f"{library.stem}-{number}.o" for number in range(len(sources))]
    compiling = [[*command, *flags, "-c", str(source), "-o", str(built)]
                 for source, built in zip(sources, objects, strict=True)]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        steps = list(pool.map(_run, compiling))
    linking = [*command, *flags, "-shared", *map(str, objects), "-o", str(library)]
    for done in (*steps, _run(linking)):
        if done.returncode:
            raise Error(f"{command[0]} could not build {library.stem}:\n{done.stderr.strip()}")
    for built in objects:
        built.unlink()


def _run(command):
    return subprocess.run(command, capture_output=True, text=True)
