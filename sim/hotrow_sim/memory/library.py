"""The memory model as a shared library, built once by the system's C++ compiler.

The library is kept in a cache under the hash of its sources, flags and compiler, in `HOTROW_CACHE`
or, by default, ~/.cache/hotrow.
"""

import ctypes
import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).with_name("memory_c_api.cpp")
FLAGS = ("-std=c++17", "-O2", "-fPIC", "-shared")


class CompilerError(RuntimeError):
    """There is no usable C++ compiler, or it failed."""


def cache_folder() -> Path:
    """Where built libraries are kept."""
    return Path(os.environ.get("HOTROW_CACHE") or Path.home() / ".cache" / "hotrow")


def compiler() -> list[str]:
    """The command of the C++ compiler: `CXX`, or g++.

    Raises
    ------
    CompilerError
        Saying how to install one.
    """
    command = shlex.split(os.environ.get("CXX") or "g++")
    if shutil.which(command[0]) is None:
        raise CompilerError(
            f"the C++ compiler {command[0]!r} was not found on PATH; it builds the memory model "
            "of the simulated device. Install it with `apt install g++` (Debian, Ubuntu), "
            "`dnf install gcc-c++` (Fedora) or `xcode-select --install` (macOS), or name another "
            "in the environment variable CXX")
    return command


def build() -> Path:
    """Path of the shared library; compiles it unless the cache has it.

    Raises
    ------
    CompilerError
    """
    command = compiler()
    version = subprocess.run([*command, "--version"], capture_output=True, text=True).stdout
    content = hashlib.sha256("\0".join((*command, version, *FLAGS)).encode())
    for source in (SOURCE, *sorted(SOURCE.parent.glob("*.hpp"))):
        content.update(source.read_bytes())
    library = cache_folder() / f"memory-{content.hexdigest()[:24]}.so"
    if library.exists():
        return library
    library.parent.mkdir(parents=True, exist_ok=True)
    # Another process may build the same: each makes its own file, the last rename wins.
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        made = Path(folder) / library.name
        result = subprocess.run([*command, *FLAGS, str(SOURCE), "-o", str(made)],
                                capture_output=True, text=True)
        if result.returncode:
            raise CompilerError(f"{command[0]} could not build the memory model:\n"
                                f"{result.stderr.strip()}")
        made.replace(library)
    return library


@cache
def load() -> ctypes.CDLL:
    """The library with its functions' types declared."""
    library = ctypes.CDLL(str(build()))
    pointer, u64, u32, u8 = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint8

    def declare(name, result, *arguments):
        function = getattr(library, f"hotrow_{name}")
        function.restype, function.argtypes = result, arguments

    declare("map_create", pointer, pointer)
    declare("map_dram", None, pointer, pointer)
    declare("bare", u64, pointer, pointer, u32, pointer, pointer, u32, u64)
    declare("map_free", None, pointer)
    declare("map_add", ctypes.c_int, pointer, u64, u64, pointer, ctypes.c_int)
    declare("map_remove", ctypes.c_int, pointer, u64)
    for kind in ("read", "write"):
        declare(f"{kind}_create", pointer, pointer, u32, pointer)
        declare(f"{kind}_free", None, pointer)
        declare(f"{kind}_reset", None, pointer, pointer)
        declare(f"{kind}_tick", None, pointer, pointer, pointer)
        declare(f"{kind}_idle", ctypes.c_int, pointer)
        declare(f"{kind}_statistics", None, pointer, pointer)
        declare(f"{kind}_violation", ctypes.c_char_p, pointer, u32)
        declare(f"{kind}_fail_range", None, pointer, u64, u64, u8)
        declare(f"{kind}_fail_beat", None, pointer, u64, u8)
        declare(f"{kind}_silence", None, pointer, u64, u64, ctypes.c_int)
    return library
