"""What a run needs, refused before it begins."""

from types import SimpleNamespace

import pytest
from hotrow import Error
from hotrow.command.limits import check_batch, check_folder, check_writable
from hotrow.contract.geometry import PRESETS


def test_a_batch_that_another_card_takes():
    trace = SimpleNamespace(samples=None, cardinalities=[10])
    largest = max(PRESETS.values(), key=lambda card: card.batch_samples)
    with pytest.raises(Error, match=r"tiny takes at most 1,024 .*; --preset \S+ takes as many$"):
        check_batch(trace, 1025, "tiny")
    with pytest.raises(Error, match=r"samples in a batch$"):
        check_batch(trace, largest.batch_samples + 1, largest.name)


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
