"""Huge pages under large arrays."""

import mmap

import numpy as np
import pytest
from hotrow.system import huge_pages
from hotrow.system.huge_pages import advise_huge_pages, huge_page_bytes, huge_page_setting


def test_large_arrays_get_huge_pages_where_the_system_gives_them():
    if huge_page_setting() not in ("madvise", "always"):
        pytest.skip(f"the system gives no huge pages: {huge_page_setting()}")
    before, size = huge_page_bytes(), 64 << 20
    memory = mmap.mmap(-1, size)  # which no earlier array has used
    array = np.frombuffer(memory, np.uint8)
    advise_huge_pages(array.ctypes.data, array.nbytes)
    array.fill(1)
    assert (array == 1).all()
    if huge_page_bytes() == before:
        pytest.skip("the system has no huge page free")
    assert huge_page_bytes() - before > size // 2


def test_the_advice_is_for_whole_huge_pages_within_the_array(monkeypatch):
    calls = []
    monkeypatch.setattr(huge_pages, "_madvise", lambda: lambda *call: calls.append(call))
    page = 2 << 20
    advise_huge_pages(page + 64, 3 * page)
    assert calls == [(2 * page, 2 * page, mmap.MADV_HUGEPAGE)]
    for address, size in ((page + 64, page), (64, page), (0, 0)):
        advise_huge_pages(address, size)
    assert len(calls) == 1


@pytest.mark.parametrize("text, expected", [
    ("always [madvise] never\n", "madvise"), ("always madvise [never]\n", "never"), ("", "none")])
def test_settings_of_systems(tmp_path, monkeypatch, text, expected):
    (tmp_path / "enabled").write_text(text)
    monkeypatch.setattr(huge_pages, "_SETTING", tmp_path / "enabled")
    assert huge_page_setting() == expected
    monkeypatch.setattr(huge_pages, "_SETTING", tmp_path / "none")
    assert huge_page_setting() == "none"
