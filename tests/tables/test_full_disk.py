"""A full disk stops training after a commit, which takes the space that the store holds for it."""

import errno
import os
import subprocess

import numpy as np
import pytest
from hotrow import Error
from hotrow.kernels import native
from hotrow.tables import Store, Table

from tests.support.power_loss import CREATE, HOOK

TABLE = Table("item", 3000, 8, seed=5, bound=0.25, state="row", initial_state=0.5)


def everything(store):
    out, side = np.empty((TABLE.rows, TABLE.dim), np.float32), np.empty(TABLE.rows, np.float32)
    view = store.rows(["item"], [0])
    view.finish(view.begin(np.arange(TABLE.rows)), out, side)
    return out.tobytes() + side.tobytes()


def opened(path, **more):
    return Store(path, [TABLE], **{"tail_bytes": 1 << 16, "segment_blocks": 4, **more})


def train(store, random, count=120):
    rows = random.permutation(TABLE.rows)[:count]
    store.rows(["item"], [0]).append(rows, random.random((count, 8), np.float32),
                                     random.random(count, np.float32))


@pytest.fixture
def refuse():
    """Let the disk have no room for new files after so many more."""
    left = [1 << 30]

    def called(operation, *_):
        left[0] -= operation == CREATE
        return errno.ENOSPC if operation == CREATE and left[0] < 0 else 0
    hook = HOOK(called)
    native.native_library().tables_hook(hook)
    yield lambda files: left.__setitem__(0, files)
    native.native_library().tables_hook(None)


@pytest.mark.parametrize("after", range(6))
def test_rows_in_memory_are_committed_and_training_stops(tmp_path, refuse, after):
    random = np.random.default_rng(after)
    with opened(tmp_path) as store:
        for _ in range(3):
            train(store, random)
        store.commit(b"before")
        store.reserve(500)
        refuse(after)
        for _ in range(60):
            train(store, random)
            try:
                store.check_room()
            except Error as error:
                assert "is full: call commit()" in str(error)
                break
        else:
            pytest.fail("the disk is full, and training goes on")
        for _ in range(2):
            train(store, random)  # what was on its way, and slots that changed
        kept = everything(store)
        number = store.commit(b"after")
        assert everything(store) == kept
    with opened(tmp_path) as again:
        assert (again.number, again.dense()) == (number, b"after")
        assert everything(again) == kept
        refuse(1 << 30)
        again.check_room()
        train(again, random)
        again.commit()


def test_more_rows_than_are_held_leave_the_last_commit(tmp_path, refuse):
    random = np.random.default_rng(1)
    with opened(tmp_path) as store:
        train(store, random)
        store.commit()
        kept = everything(store)
        refuse(0)
        with pytest.raises(Error, match=r"seg-\d+.log could not be made: No space .* last commit"):
            for _ in range(20):
                train(store, random)
        with pytest.raises(Error, match="No space"):
            store.commit()
    with opened(tmp_path) as again:
        assert everything(again) == kept


def test_cleaning_takes_nothing_of_what_is_held(tmp_path, refuse):
    random = np.random.default_rng(2)
    with opened(tmp_path) as store:
        for _ in range(4):
            train(store, random, 800)
        store.commit()
        held = sorted(tmp_path.glob("spare-[0-9]*"))
        refuse(0)
        with pytest.raises(Error, match="is full: call commit"):
            for _ in range(3):
                store.clean()
        assert sorted(tmp_path.glob("spare-[0-9]*")) == held
        kept = everything(store)
        refuse(1 << 30)
        store.commit()
        store.clean()
        assert everything(store) == kept


@pytest.mark.parametrize("name", ["fsync", "rename"])
@pytest.mark.parametrize("after", range(3))
def test_what_is_beside_the_rows_takes_what_is_held(tmp_path, monkeypatch, name, after):
    real, left = getattr(os, name), [after]
    with opened(tmp_path) as store:
        store.commit(b"first" * 1000)
        train(store, np.random.default_rng(0))
        kept = everything(store)

        def failing(*arguments):
            left[0] -= 1
            if left[0] < 0 and (tmp_path / "spare-commit").exists():
                raise OSError(errno.ENOSPC, "No space left on device")
            real(*arguments)
        monkeypatch.setattr(os, name, failing)
        assert store.commit(b"second" * 1000) == 2
        monkeypatch.undo()
    with opened(tmp_path) as again:
        assert again.dense() == b"second" * 1000 and everything(again) == kept


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 3 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "none", folder],
                                      capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a file system")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize("left", [0, 5000, 70000, 300000])
def test_a_disk_that_is_full(small_disk, left):
    random, folder = np.random.default_rng(left), small_disk / "t"
    with opened(folder) as store:
        train(store, random)
        store.commit(b"first")
        free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
        with open(small_disk / "other", "wb") as other:
            os.posix_fallocate(other.fileno(), 0, free - left)
        for _ in range(200):
            train(store, random)
            try:
                store.check_room()
            except Error:
                break
        kept = everything(store)
        number = store.commit(b"second" * 1000)
        for _ in range(20):  # what the commit before held may be room enough, once it is gone
            try:
                store.check_room()
            except Error as error:
                assert "no room to keep more steps" in str(error)
                break
            train(store, random)
            number, kept = store.commit(b"second" * 1000), everything(store)
    with opened(folder) as again:
        assert (again.number, again.dense()) == (number, b"second" * 1000)
        assert everything(again) == kept
        (small_disk / "other").unlink()
        train(again, random)
        again.commit()
        again.check_room()
