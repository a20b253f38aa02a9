"""The compiled library: the engine of the transport `cpu`, and the passes over a batch.

A wheel carries it once per level of x86-64, of which the highest that the processor has serves, or
once for other processors. A checkout compiles it for its own processor at the first use.
"""

import ctypes
import platform
import sys
from functools import cache
from pathlib import Path

from ..contract.errors import Error
from . import compiler

_FOLDER = Path(__file__).parent
_SHIPPED = _FOLDER / "lib"
_X86_64 = {  # best level first; the flags in /proc/cpuinfo of what it adds to the next
    "x86-64-v4": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
    "x86-64-v3": {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"},
    "x86-64-v2": {"cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"},
}


def sources() -> list[Path]:
    """The C++ sources of the library."""
    return sorted(_FOLDER.glob("*.cpp")) + sorted(_FOLDER.glob("engine/*.cpp")) + sorted(
        _FOLDER.glob("tables/*.cpp"))


def headers() -> list[Path]:
    """What the sources include."""
    return [*sorted(_FOLDER.glob("*.hpp")), *sorted(_FOLDER.glob("engine/*.h*")),
            *sorted(_FOLDER.glob("tables/*.hpp"))]


def levels(flags: set[str] | frozenset[str]) -> list[str]:
    """Levels that a processor with these flags of /proc/cpuinfo has, best first."""
    if platform.machine() != "x86_64":
        return [platform.machine()]
    names = list(_X86_64)
    return [name for at, name in enumerate(names)
            if all(_X86_64[below] <= flags for below in names[at:])]


def ship(folder: Path) -> list[Path]:
    """Compile the library for every level that the compiler knows, without this processor's own
    instructions, and return the files.

    Raises
    ------
    Error
        There is no compiler, or it failed at the lowest level: with its message.
    """
    command = compiler.required()
    built: list[Path] = []
    names = list(_X86_64) if platform.machine() == "x86_64" else [platform.machine()]
    for name in reversed(names):
        target = [f"-march={name}"] if name in _X86_64 else []
        flags = [*target, "-s", *(flag for flag in compiler.FLAGS if flag != "-march=native")]
        library = folder / f"hotrow-{name}.so"
        try:
            compiler.compile_library(command, flags, sources(), headers(), library,
                                     folder / "objects")
        except Error as error:
            if not built:
                raise
            print(f"hotrow: without {name}: {error}", file=sys.stderr)
            continue
        built.append(library)
    return built


@cache
def _loaded() -> tuple[ctypes.CDLL | None, str]:
    """(library or None, where it is from or what is wrong)"""
    wrong = ""
    for name in levels(compiler.processor_flags()):
        path = _SHIPPED / f"hotrow-{name}.so"
        try:
            return compiler.open_library(path), f"{name} (wheel)"
        except FileNotFoundError:
            continue
        except OSError as error:
            wrong += f"{path} does not load ({error}); "
    try:
        command = compiler.required()
        loaded = compiler.load("hotrow", sources(), headers())
    except Error as error:
        return None, f"{wrong}{error}"
    return loaded, f"this processor's, by {compiler.version(command)} (cache)"


def native_library() -> ctypes.CDLL:
    """The library, compiled by the first call where neither the wheel nor the cache has it.

    Raises
    ------
    Error
        There is no compiler, or it failed: with its message. Another call does not try again.
    """
    loaded, wrong = _loaded()
    if loaded is None:
        raise Error(wrong)
    return loaded


def about() -> tuple[str, str]:
    """What the library is, or "" and a remedy; compiles nothing."""
    known = [name for name in levels(compiler.processor_flags())
             if (_SHIPPED / f"hotrow-{name}.so").exists()]
    if known or (compiler.find_compiler() and compiler.cached("hotrow", sources(), headers())):
        loaded, found = _loaded()
        return (found, "") if loaded else ("", found)
    try:
        return f"to be compiled at first use by {compiler.version(compiler.required())}", ""
    except Error as error:
        return "", str(error)
