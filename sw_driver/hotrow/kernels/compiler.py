"""C++ sources as shared libraries, built once by the system's compiler.

The cache has the objects of every source file too, so that a change compiles what it touches.
"""

import ctypes
import fcntl
import hashlib
import os
import platform
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from struct import unpack

from ..contract.errors import Error

# Options that keep the bits: products and sums are fused only where the source says so. Options in
# CXX come after them.
FLAGS = ("-O3", "-march=native", "-std=c++17", "-ffp-contract=off", "-fno-math-errno",
         "-fno-trapping-math", "-Wno-psabi", "-fPIC", "-pthread")

_SEAL = hashlib.sha256().digest_size


def usable_cores() -> int:
    """Cores that the process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def find_compiler() -> list[str] | None:
    """Command of a C++ compiler: `CXX`, or the first that is installed; None if there is none.

    Raises
    ------
    Error
        `CXX` is no command.
    """
    named = os.environ.get("CXX")
    if named:
        try:
            return shlex.split(named)
        except ValueError as error:
            raise Error(f"expected a command in CXX, got {named!r} ({error})") from error
    found = next(filter(shutil.which, ("g++", "c++", "clang++")), None)
    return [found] if found else None


def required() -> list[str]:
    """Command of a C++ compiler.

    Raises
    ------
    Error
        There is none.
    """
    command = find_compiler()
    if not command:
        raise Error("no C++ compiler was found: install g++ or clang++, or name one in CXX")
    return command


def cache_folder() -> Path:
    """Where built libraries are kept: `HOTROW_CACHE`, by default ~/.cache/hotrow."""
    return _cache_folders()[0]


def _cache_folders() -> list[Path]:
    """Folders to try: the one that is asked for or the home's, and then a private temporary one."""
    temporary = Path(tempfile.gettempdir()) / f"hotrow-{os.getuid()}"
    if os.environ.get("HOTROW_CACHE"):
        return [Path(os.environ["HOTROW_CACHE"]), temporary]
    with suppress(RuntimeError):  # no HOME, and no entry in the passwd file
        return [Path.home() / ".cache" / "hotrow", temporary]
    return [temporary]


def open_library(path: str | Path) -> ctypes.CDLL:
    """Load a shared library.

    Raises
    ------
    OSError
        There is no such file, it is cut short, where a program would crash, or it is no library
        for this machine.
    """
    with open(path, "rb") as file:
        header = file.read(64)
        if header[:5] == b"\x7fELF\x02" and len(header) == 64:  # sections of ELF64 lie at the end
            begin, (each, count) = unpack("Q", header[40:48])[0], unpack("HH", header[58:62])
            if os.fstat(file.fileno()).st_size < begin + each * count:
                raise OSError(f"{path} is cut short")
    return ctypes.CDLL(str(path))


def load(name: str, sources: Sequence[Path], headers: Sequence[Path] = (),
         command: Sequence[str] | None = None) -> ctypes.CDLL:
    """Load the library of some sources, compiled unless the cache has it.

    A file that does not load is compiled again. One process compiles, others wait for it.

    Parameters
    ----------
    name : str
        The library's name in the cache.
    sources, headers : sequence of Path
        Headers are found by their file names.
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
    command = command or required()
    file = f"{name}-{_digest(command, (*sources, *headers))}.so"
    refusals: list[str] = []
    for folder in _cache_folders():
        if refusals:
            print(f"hotrow: {refusals[-1]}; trying {folder}", file=sys.stderr)
        try:
            return _load(command, sources, headers, folder.absolute() / file)
        except OSError as error:
            refusals.append(f"{folder / file} could not be written or loaded ({error})")
    raise Error(f"{'; '.join(refusals)}: name a folder that allows programs in HOTROW_CACHE")


def cached(name: str, sources: Sequence[Path], headers: Sequence[Path] = ()) -> bool:
    """Whether the cache has a file that `load` tries first."""
    file = f"{name}-{_digest(required(), (*sources, *headers))}.so"
    return any((folder / file).exists() for folder in _cache_folders())


def _load(command: Sequence[str], sources: Sequence[Path], headers: Sequence[Path],
          library: Path) -> ctypes.CDLL:
    with suppress(OSError):
        _check_private(library.parent)
        return _open_kept(library)
    objects = library.parent / "objects"
    _make_private(objects)
    _check_private(library.parent)
    _check_private(objects)
    with open(library.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with suppress(OSError):  # another process has built it meanwhile
            return _open_kept(library)
        print(f"hotrow: compiling {library.stem.partition('-')[0]} with {command[0]}, once",
              file=sys.stderr)
        compile_library(command, FLAGS, sources, headers, library, objects)
        if _digest(command, (*sources, *headers)) not in library.name:
            library.unlink()
            raise Error("the sources changed while they were compiled: start again")
        return _open_kept(library)


def _open_kept(library: Path) -> ctypes.CDLL:
    """Load a library of the cache; raises OSError unless it is as it was written."""
    if not _intact(library):
        raise OSError(f"{library} is damaged")
    return open_library(library)


def _intact(file: Path) -> bool:
    """Whether a file of the cache is there as it was written, with its digest at the end, and can
    be written by this user and root alone."""
    try:
        if not stat.S_ISREG(_own(file).st_mode):
            return False
        content = file.read_bytes()
    except OSError:
        return False
    return hashlib.sha256(content[:-_SEAL]).digest() == content[-_SEAL:]


def _own(path: Path) -> os.stat_result:
    """What lies at a path, a link not followed; raises PermissionError if a user other than this
    one and root owns it, or can write to it or to the names in it."""
    about = path.lstat()
    safe = (stat.S_ISLNK(about.st_mode) or not about.st_mode & 0o022
            or (stat.S_ISDIR(about.st_mode) and about.st_mode & stat.S_ISVTX))
    if about.st_uid not in (0, os.getuid()) or not safe:
        raise PermissionError(f"{path} belongs to user {about.st_uid} and has mode "
                              f"{about.st_mode & 0o7777:o}: only you and root may be able to write "
                              f"to it")
    return about


def _check_private(folder: Path) -> None:
    """Raise PermissionError unless `folder` is a folder in which this user and root alone can put
    files, under a path whose parts they alone can replace."""
    about = _own(folder)
    if not stat.S_ISDIR(about.st_mode) or about.st_mode & 0o022:
        raise PermissionError(f"{folder} is a link, or no folder of mode 755 or less")
    above, links = list(folder.absolute().parents), 0
    while above:
        part = above.pop()
        if stat.S_ISLNK(_own(part).st_mode):
            target = part.parent / os.readlink(part)
            above += [target, *target.parents]
            links += 1
            if links > 40:
                raise PermissionError(f"{folder} has links that lead to each other")


def _make_private(folder: Path) -> None:
    """Make a folder and those above it that are missing, which other users cannot enter."""
    if not folder.parent.exists():
        _make_private(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)


def _digest(command: Sequence[str], files: Iterable[Path],
            flags: Sequence[str] | None = None) -> str:
    """Name for all that a library depends on."""
    content = hashlib.sha256("\0".join((*command, _banner(tuple(command)), _processor(),
                                        *(flags or FLAGS))).encode())
    for file in files:
        content.update(file.read_bytes())
    return content.hexdigest()[:24]


def version(command: Sequence[str]) -> str:
    """Name and version of a compiler."""
    number = re.search(r"\d+(\.\d+)+", _banner(tuple(command)).partition("\n")[0])
    return f"{Path(command[0]).name} {number[0] if number else '(version unknown)'}"


@cache
def _banner(command: tuple[str, ...]) -> str:
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, text=True,
                              errors="replace")
    except OSError as error:
        raise Error(f"the C++ compiler {command[0]!r} could not be run ({error}): install g++ or "
                    f"clang++, or name another in CXX") from error
    return done.stdout


@cache
def _processor() -> str:
    """The instructions of this machine, which `-march=native` uses."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.machine()} {platform.processor()} {flags}"


def processor_flags() -> frozenset[str]:
    """Names of this processor's instructions in /proc/cpuinfo."""
    return frozenset(_processor().split())


def compile_library(command: Sequence[str], flags: Sequence[str], sources: Sequence[Path],
                    headers: Sequence[Path], library: Path, objects: Path) -> None:
    """Compile the sources whose objects are not kept, several at the same time, and link them.

    Parameters
    ----------
    command, flags : sequence of str
    sources, headers : sequence of Path
    library : Path
        Replaced in one step.
    objects : Path
        Folder in which objects are kept, by their content.

    Raises
    ------
    Error
        With the compiler's message.
    """
    options = [*flags, *(option for option in command[1:] if option.startswith("-"))]
    _make_private(objects)

    def kept(source: Path) -> Path:
        digest = _digest(command, _included(source, headers), flags)
        return objects / f"{source.stem}-{digest}.o"
    built = list(map(kept, sources))
    with tempfile.TemporaryDirectory(dir=objects) as folder:
        def build(source: Path, target: Path) -> str | None:
            if _intact(target):
                return None
            failure = _run([*command, *options, "-c", str(source)], Path(folder) / target.name,
                           target)
            if not failure and kept(source) != target:
                target.unlink()
                return f"{source} changed meanwhile: start again"
            return failure
        with ThreadPoolExecutor(usable_cores()) as pool:
            failures = [*pool.map(build, sources, built)]
        if not any(failures):
            failures = [_run([*command, *options, "-shared", *map(str, built)],
                             Path(folder) / library.name, library)]
    for failure in filter(None, failures):
        raise Error(f"{command[0]} could not build {library.stem}:\n{failure}")


def _included(source: Path, headers: Sequence[Path]) -> list[Path]:
    """A source file and those of the headers that it includes, at any depth."""
    named = {header.name: header for header in headers}
    found = dict.fromkeys([source])
    pending = [source]
    while pending:
        for name in re.findall(rb'^ *# *include *"(?:.*/)?(.+)"', pending.pop().read_bytes(), re.M):
            header = named.get(name.decode())
            if header and header not in found:
                found[header] = None
                pending.append(header)
    return list(found)


def _run(command: Sequence[str], output: Path, target: Path) -> str | None:
    """Write a file, with its digest at the end, which linkers ignore, and put it where it belongs;
    returns the message of a failure."""
    done = subprocess.run([*command, "-o", str(output)], capture_output=True, text=True,
                          errors="replace")
    if done.returncode:
        return done.stderr.strip() or f"exit code {done.returncode}"
    with open(output, "r+b") as written:
        written.write(hashlib.sha256(written.read()).digest())
        written.flush()
        os.fchmod(written.fileno(), 0o755)
        os.fsync(written.fileno())
    output.replace(target)
    return None
