"""What a run needs, refused before it begins."""

import argparse
from types import SimpleNamespace

import numpy as np
import pytest
from hotrow import Error
from hotrow.command import limits
from hotrow.command.limits import check_batch, check_folder, check_memory, check_writable
from hotrow.command.options import HotBudget, natural, rate, window
from hotrow.contract.geometry import PRESETS

TINY = PRESETS["tiny"]


def trace_of(tables=1, lookups=1, samples=None):
    """A trace whose first batch has so many lookups a sample."""
    return SimpleNamespace(
        samples=samples, cardinalities=[10] * tables, columns=[*map(str, range(tables))],
        rows=10 * tables, synthetic=True,
        batch=lambda _, size: SimpleNamespace(ids=np.zeros((size, lookups), np.uint32)))


def test_a_batch_that_another_card_takes():
    trace = SimpleNamespace(samples=None, cardinalities=[10])
    largest = max(PRESETS.values(), key=lambda card: card.batch_samples)
    with pytest.raises(Error, match=r"tiny takes at most 1,024 .*; --preset \S+ takes as many$"):
        check_batch(trace, 1025, "tiny")
    with pytest.raises(Error, match=r"samples in a batch$"):
        check_batch(trace, largest.batch_samples + 1, largest.name)


def test_a_run_may_take_all_that_a_card_has():
    most = TINY.batch_lookups // TINY.batch_samples
    for size in (TINY.batch_samples, TINY.batch_samples // 2):
        check_batch(trace_of(TINY.tables, TINY.batch_lookups // size), size, "tiny")
    check_batch(trace_of(lookups=most, samples=TINY.batch_samples), 10**9, "tiny")
    for trace, message in (
            (trace_of(TINY.tables + 1), f"{TINY.tables + 1} tables: .* at most {TINY.tables} "),
            (trace_of(lookups=most + 1), f"about .* takes at most {TINY.batch_lookups:,} in a")):
        with pytest.raises(Error, match=message):
            check_batch(trace, TINY.batch_samples, "tiny")
    exact = next(card for card in PRESETS.values() if card.batch_samples > TINY.batch_samples)
    with pytest.raises(Error, match=f"--preset {exact.name} takes as many"):
        check_batch(trace_of(), exact.batch_samples, "tiny")


def test_tables_may_take_all_free_memory(monkeypatch):
    monkeypatch.setattr(limits, "free_memory", lambda: 2 * 20 * 64)
    check_memory(trace_of(2), 64, copies=2)
    with pytest.raises(Error, match="2 x 20 rows of 65 bytes need"):
        check_memory(trace_of(2), 65, copies=2)


def test_numbers_at_the_ends_of_their_ranges():
    assert HotBudget.parse("100%").share == 1 and HotBudget.parse("0").bytes == 0
    with pytest.raises(ValueError, match="a share of the rows is at most 100%"):
        HotBudget.parse("100.5%")
    assert window("0,12") == (0, 12)
    for text in ("1", "1,2,3", "1,-2"):
        with pytest.raises(argparse.ArgumentTypeError, match="expected PAST,FUTURE"):
            window(text)
    assert natural("0") == 0 and natural("3", 3) == 3 and rate("0.5") == 0.5
    assert [HotBudget("--slots", rows=rows).resolve(500, 64, 100) for rows in (1, 100)] == [1, 100]
    for rows in (0, 101):
        with pytest.raises(Error, match="holds 1 to 100: ask for at most 6,400 bytes"):
            HotBudget("--slots", rows=rows).resolve(500, 64, 100)
    assert HotBudget().resolve(3, 64, 100) == 1 and HotBudget().resolve(4000, 64, 100) == 100


def test_places_for_results(tmp_path, monkeypatch):
    check_writable(tmp_path / "file")
    check_folder(tmp_path / "a" / "b")
    with pytest.raises(Error, match=r"there is no folder .*/a; make it, or name another"):
        check_writable(tmp_path / "a" / "file")
    with pytest.raises(Error, match="it is a folder; name a file in it"):
        check_writable(tmp_path)
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "a"):
        with pytest.raises(Error, match=r"cannot be a folder: .*/file is a file; name another"):
            check_folder(path)
    monkeypatch.setattr("os.access", lambda path, mode: False)
    for check in (check_writable, check_folder):
        with pytest.raises(Error, match=r"permission denied; name a (file|folder) elsewhere"):
            check(tmp_path / "a")
