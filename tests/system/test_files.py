"""Saves leave the older file or the whole new one, whatever stops them."""

import os
import resource
import stat
from pathlib import Path

import numpy as np
import pytest
import torch
from hotrow.contract.errors import Error, FileError
from hotrow.ids import Expiry, IdMap
from hotrow.ids.log import EventLog
from hotrow.system.files import replaced
from hotrow.tables import Store, Table
from hotrow.tables import open as open_tables
from hotrow.timeline import Slices
from hotrow.torch import Checkpoint
from hotrow.torch.collection.id_batches import TableChanges


def id_map(ids):
    made = IdMap(len(ids) + 1, expiry=Expiry(age=1))
    made.done(made.plan(ids).number)
    return made


def changes(ids):
    numbers = torch.arange(len(ids))
    return TableChanges(0, len(ids), numbers, numbers + 1, torch.ones(len(ids), 4), numbers[:0])


def timeline(ids):
    made = Slices("title", ["lane"])
    for number in ids:
        made.add("lane", "slice", number, number + 1)
    return made.write


def arrays_of(path):
    with np.load(path, allow_pickle=False) as found:
        return {name: found[name].tolist() for name in found.files}


# How to save so many ids, and how to read them; None for files that other programs read.
KINDS = {
    "map.npz": (lambda ids: id_map(ids).save, lambda path: IdMap.load(path).digest()),
    "log.npy": (lambda ids: id_map(ids).log.save, lambda path: EventLog.load(path).tolist()),
    "changes.npz": (lambda ids: changes(ids).save, arrays_of),
    "changes.safetensors": (lambda ids: changes(ids).save, None),
    "run.pt": (lambda ids: lambda path: Checkpoint(path).save(ids=torch.arange(len(ids))),
               lambda path: Checkpoint(path).load()["ids"].tolist()),
    "trace.json": (timeline, None),
}


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param, *KINDS[request.param]


def test_a_full_disk_keeps_the_older_file(tmp_path, kind):
    name, saving, _ = kind
    path = tmp_path / name
    saving(range(3))(path)
    before, save = path.read_bytes(), saving(range(3000))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 100, limits[1]))
    try:
        with pytest.raises(FileError, match=f"{name} could not be written .*as it was"):
            save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before and os.listdir(tmp_path) == [name]
    save(path)
    assert path.read_bytes() != before and os.listdir(tmp_path) == [name]


def test_a_folder_that_cannot_be_written_is_named(tmp_path, kind):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="file"):
        kind[1](range(3))(tmp_path / "file" / kind[0])


def stopped(save, path, stop):
    """Save in a child that ends before call number `stop` of the system; whether it did."""
    left = [stop]

    def dying(call):
        def called(*arguments, **named):
            left[0] -= 1
            if not left[0]:
                os._exit(9)
            return call(*arguments, **named)
        return called
    child = os.fork()
    if not child:
        try:
            for call in ("fsync", "fchmod", "replace", "open", "close", "stat", "fstat"):
                setattr(os, call, dying(getattr(os, call)))
            save(path)
            os._exit(0)
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 9)
    return code == 9


@pytest.mark.slow
@pytest.mark.parametrize("name", ["map.npz", "log.npy", "changes.npz", "run.pt"])
def test_a_killed_save_leaves_one_of_the_two(tmp_path, name):
    """Killed before each call of the system; the next save removes what that one left."""
    saving, read = KINDS[name]
    path, other, ends, left = tmp_path / name, tmp_path / "other", set(), False
    other.mkdir()
    saving(range(300))(other / name)
    new, save, killed = read(other / name), saving(range(300)), 0
    saving(range(3))(path)
    old = read(path)
    while True:
        saving(range(3))(path)
        if not stopped(save, path, killed + 1):
            break
        killed += 1
        assert read(path) in (old, new)
        ends.add(read(path) == new)
        left |= len(os.listdir(tmp_path)) > 2
    assert ends == {False, True} and left and killed > 5 and read(path) == new
    saving(range(3))(path)
    assert sorted(os.listdir(tmp_path)) == sorted(["other", name])


def test_what_is_written_is_on_the_disk_before_its_name(tmp_path, monkeypatch):
    """A power loss keeps what was forced to the disk, in any order between."""
    calls = []

    def noted(name, call):
        def called(first, *rest):
            what = first if isinstance(first, (str, Path)) else os.readlink(
                f"/proc/self/fd/{first}")
            calls.append((name, "folder" if os.path.isdir(what) else "file"))
            return call(first, *rest)
        return called
    for name in ("fsync", "replace"):
        monkeypatch.setattr(os, name, noted(name, getattr(os, name)))
    id_map([1, 2]).save(tmp_path / "map.npz")
    assert calls == [("fsync", "file"), ("replace", "file"), ("fsync", "folder")]


def test_modes_links_and_devices_stay(tmp_path):
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_bytes(b"old")
    path.chmod(0o640)
    link.symlink_to(path)
    with replaced(link) as file:
        file.write(b"new")
    assert link.is_symlink() and path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    with replaced("/dev/null") as file:
        file.write(b"new")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    before = os.umask(0o027)
    try:
        with replaced(tmp_path / "another") as file:
            file.write(b"new")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "another").stat().st_mode) == 0o640


def test_two_saves_of_one_file_at_the_same_time(tmp_path):
    """The inner one does not take the outer one's new file for one that a killed process left."""
    with replaced(tmp_path / "file") as outer:
        outer.write(b"outer")
        with replaced(tmp_path / "file") as inner:
            inner.write(b"inner")
        assert (tmp_path / "file").read_bytes() == b"inner"
    assert (tmp_path / "file").read_bytes() == b"outer" and os.listdir(tmp_path) == ["file"]


def test_an_error_in_the_block_is_that_error(tmp_path):
    (tmp_path / "file").write_bytes(b"old")
    with pytest.raises(KeyError), replaced(tmp_path / "file") as file:
        file.write(b"new")
        raise KeyError("of the caller")
    assert (tmp_path / "file").read_bytes() == b"old" and os.listdir(tmp_path) == ["file"]


TABLE, NUMBERS = Table("item", 300, 8, seed=3, bound=0.5), np.arange(300)


def train(rows, value):
    rows.append(NUMBERS, np.full((len(NUMBERS), 8), value, np.float32))


def stored(folder, value=1):
    """A store with one commit of rows of this value; its rows."""
    store = Store(folder, [TABLE], tail_bytes=1 << 16, segment_blocks=4)
    rows = store.rows(["item"], [0])
    train(rows, value)
    store.commit()
    return store, rows


def values(folder):
    with open_tables(folder) as reader:
        return set(reader.rows("item", NUMBERS).reshape(-1).tolist())


def removed(path):
    path.unlink()


def replaced_by_a_copy(path):
    copy = path.with_suffix(".copy")
    copy.write_bytes(path.read_bytes())
    copy.rename(path)


@pytest.mark.parametrize("change", [removed, replaced_by_a_copy])
@pytest.mark.parametrize("name", ["LOCK", "seg-*.log"])
def test_no_commit_names_a_file_that_was_removed_or_replaced(tmp_path, name, change):
    store, rows = stored(tmp_path)
    with store:
        store.commit(keep="before")
        path = max(tmp_path.glob(name))
        kept = tmp_path / "kept"
        os.link(path, kept)
        rows.append(NUMBERS[:9], np.full((9, 8), 2, np.float32))
        change(path)
        with pytest.raises(Error, match=path.name):
            store.commit()
        assert store.number == 2
        os.replace(kept, path)
        if name == "LOCK":  # put back, it lets the rows be committed
            assert store.commit() == 3
    assert values(tmp_path) == {1, 2} if name == "LOCK" else {1}


def test_a_store_whose_folder_was_moved_leaves_another_in_its_place_alone(tmp_path):
    folder, moved = tmp_path / "tables", tmp_path / "moved"
    store, rows = stored(folder)
    with store:
        folder.rename(moved)
        stored(folder, 5)[0].close()
        rows.append(NUMBERS[:9], np.full((9, 8), 2, np.float32))
        with pytest.raises(Error, match="moved or replaced"):
            store.commit()
        assert (values(folder), values(moved)) == ({5}, {1})


def test_a_relative_folder_stays_where_it_is(tmp_path, monkeypatch):
    """A program may change its working directory while it trains."""
    monkeypatch.chdir(tmp_path)
    store, rows = stored("tables")
    reader = open_tables("tables")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with store, reader:
        for value in range(2, 9):
            train(rows, value)
        store.commit()
        reader.refresh()
        assert set(reader.rows("item", NUMBERS).reshape(-1).tolist()) == {8}
    assert values(tmp_path / "tables") == {8} and not os.listdir()
