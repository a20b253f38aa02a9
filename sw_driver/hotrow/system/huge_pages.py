"""Huge pages for large arrays, where the system gives them: fewer misses of address translation."""

import ctypes
import mmap
from functools import cache
from pathlib import Path

_HUGE = 2 << 20  # bytes of a huge page, and the least that is worth one
_SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def advise_huge_pages(address: int, size: int) -> None:
    """Ask the system for huge pages under memory that nobody has written yet."""
    advice = getattr(mmap, "MADV_HUGEPAGE", None)
    begin, end = -(-address // _HUGE) * _HUGE, (address + size) // _HUGE * _HUGE
    if advice is not None and end > begin:
        _madvise()(begin, end - begin, advice)


def huge_page_setting() -> str:
    """What the system says of huge pages: "always", "madvise", "never", or "none" without any."""
    try:
        return _SETTING.read_text().split("[")[1].split("]")[0]
    except (OSError, IndexError):
        return "none"


def huge_page_bytes() -> int:
    """Bytes of this process that are in huge pages."""
    try:
        text = Path("/proc/self/smaps_rollup").read_text()
        return int(text.split("AnonHugePages:")[1].split()[0]) << 10
    except (OSError, IndexError, ValueError):
        return 0


@cache
def _madvise() -> "ctypes._FuncPointer":
    function = ctypes.CDLL(None).madvise
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return function
