"""The memory model as a shared library, built once by the system's C++ compiler."""

import ctypes
from functools import cache
from pathlib import Path

from ..native import cached_file, compiler, compiler_version, run_tool

SOURCE = Path(__file__).with_name("memory_c_api.cpp")
FLAGS = ("-std=c++17", "-O2", "-fPIC", "-shared")


def build() -> Path:
    """Path of the shared library.

    Raises
    ------
    CompilerError, BuildError
    """
    command = compiler()
    sources = (SOURCE, *sorted(SOURCE.parent.glob("*.hpp")))
    return cached_file(
        "memory", (command, compiler_version(*command), FLAGS, *sources),
        lambda path: run_tool([*command, *FLAGS, SOURCE, "-o", path]))


@cache
def load() -> ctypes.CDLL:
    """The library with the types of its functions."""
    library = ctypes.CDLL(str(build()))
    pointer, u64, u32, u8 = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint8

    def declare(name, result, *arguments):
        function = getattr(library, f"hotrow_{name}")
        function.restype, function.argtypes = result, arguments

    declare("map_create", pointer, pointer)
    declare("map_dram", None, pointer, pointer)
    declare("map_free", None, pointer)
    declare("map_add", ctypes.c_int, pointer, u64, u64, pointer, ctypes.c_int)
    declare("map_remove", ctypes.c_int, pointer, u64)
    declare("bare", u64, pointer, pointer, u32, pointer, pointer, u32, u64)
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
