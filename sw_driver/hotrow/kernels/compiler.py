"""C++ sources as shared libraries, built once by the system's compiler."""

import ctypes
import fcntl
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
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


def cache_folder() -> Path:
    """Where built libraries are kept: `HOTROW_CACHE`, by default ~/.cache/hotrow."""
    return _cache_folders()[0]


def _cache_folders() -> list[Path]:
    """Folders to try: the one that is asked for, or the home's and then a private temporary one."""
    if os.environ.get("HOTROW_CACHE"):
        return [Path(os.environ["HOTROW_CACHE"])]
    temporary = Path(tempfile.gettempdir()) / f"hotrow-{os.getuid()}"
    with suppress(RuntimeError):  # no HOME, and no entry in the passwd file
        return [Path.home() / ".cache" / "hotrow", temporary]
    return [temporary]


def load(name, sources, headers=(), command=None):
    """Load the library of some sources, compiled unless the cache has it.

    A file that does not load is compiled again. One process compiles, others wait for it.

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
        There is no compiler, it failed, with its message, or no folder can hold the library.
    """
    command = command or find_compiler()
    if not command:
        raise Error("no C++ compiler was found: install g++ or clang++, or name one in CXX")
    file = f"{name}-{_digest(command, (*sources, *headers))}.so"
    refusals = []
    for folder in _cache_folders():
        try:
            return _load(command, sources, folder / file)
        except OSError as error:
            refusals.append(f"{folder / file} could not be written or loaded ({error})")
    raise Error(f"{'; '.join(refusals)}: name a folder that allows programs in HOTROW_CACHE")


def _load(command, sources, library):
    with suppress(OSError):
        return ctypes.CDLL(str(library))
    _make_private(library.parent)
    with open(library.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with suppress(OSError):  # another process has built it meanwhile
            return ctypes.CDLL(str(library))
        _build(command, sources, library)
        return ctypes.CDLL(str(library))


def _make_private(folder):
    """Make a folder that only this user writes to; raises PermissionError if others can."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    about = folder.stat()
    if about.st_uid != os.getuid() or about.st_mode & 0o002:
        raise PermissionError(f"{folder} belongs to user {about.st_uid} or others can write to it")


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
    print(f"hotrow: compiling {library.stem.partition('-')[0]} with {command[0]}, once",
          file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        compile_library(command, FLAGS, sources, Path(folder) / library.name)
        (Path(folder) / library.name).replace(library)


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
