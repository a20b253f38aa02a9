"""Every prefix of writes, syncs, renames and unlinks of a run opens at a commit, to the bit."""

import ctypes
import os
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hotrow.contract.errors import Error
from hotrow.kernels import native
from hotrow.tables import Store, Table

TABLE = Table("item", 600, 12, seed=3, bound=0.5, state="row", initial_state=0.25)
HOOK = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32, ctypes.c_char_p, ctypes.c_uint64,
                        ctypes.c_void_p, ctypes.c_uint64)
WRITE, SYNC, CREATE, UNLINK = range(4)


class Recorder:
    """Operations on a folder in order, those of Python and of the compiled library."""

    def __init__(self, monkeypatch):
        self.operations = []
        self.failing = None  # (operation, how many succeed before, errno)
        self._hook = HOOK(self._called)
        native.native_library().tables_hook(self._hook)
        real = {name: getattr(os, name) for name in ("fsync", "rename", "unlink")}

        def fsync(handle):
            path = Path(os.readlink(f"/proc/self/fd/{handle}"))
            if path.is_dir():
                self.operations.append(("folder",))
            else:
                content = path.read_bytes()
                self.operations += [("create", path.name, 0), ("write", path.name, 0, content),
                                    ("sync", path.name)]
            real["fsync"](handle)

        def rename(old, new):
            self.operations.append(("rename", Path(old).name, Path(new).name))
            real["rename"](old, new)

        def unlink(path, **options):
            if Path(path).exists():
                self.operations.append(("unlink", Path(path).name))
            real["unlink"](path, **options)
        monkeypatch.setattr(os, "fsync", fsync)
        monkeypatch.setattr(os, "rename", rename)
        monkeypatch.setattr(os, "unlink", unlink)

    def _called(self, operation, path, offset, data, size):
        name = Path(os.fsdecode(path)).name
        if self.failing and self.failing[0] == operation:
            self.failing = (operation, self.failing[1] - 1, self.failing[2])
            if self.failing[1] < 0:
                return self.failing[2]
        self.operations.append({
            WRITE: lambda: ("write", name, offset, ctypes.string_at(data, size)),
            SYNC: lambda: ("sync", name), CREATE: lambda: ("create", name, size),
            UNLINK: lambda: ("unlink", name)}[operation]())
        return 0

    def end(self):
        native.native_library().tables_hook(None)


@pytest.fixture
def recorder(monkeypatch):
    made = Recorder(monkeypatch)
    yield made
    made.end()


def settle(content, writes):
    for offset, data in writes:
        content.extend(bytes(max(0, offset + len(data) - len(content))))
        content[offset:offset + len(data)] = data


def on_disk(operations, unsynced):
    """Files after a power loss: unsynced data and names are "kept", "lost", or "torn".

    Of torn data the first half of the last write is kept, of torn names the removals, or the
    renames.
    """
    files, durable, pending, names, waiting = {}, {}, defaultdict(list), {}, []
    torn = "rename" if len(operations) % 2 else "unlink"
    for number, (kind, *rest) in enumerate(operations):
        match kind:
            case "create":
                files[rest[0]] = number
                durable[number] = bytearray(rest[1])
                waiting.append((kind, rest[0], number))
            case "write":
                pending[files[rest[0]]].append(tuple(rest[1:]))
            case "sync":
                settle(durable[files[rest[0]]], pending.pop(files[rest[0]], []))
            case "rename":
                files[rest[1]] = files.pop(rest[0])
                waiting += [(kind, rest[0], None), (kind, rest[1], files[rest[1]])]
            case "unlink":
                files.pop(rest[0])
                waiting.append((kind, rest[0], None))
            case "folder":
                names.update(each[1:] for each in waiting)
                waiting.clear()
    if unsynced != "lost":
        names.update(each[1:] for each in waiting if unsynced == "kept" or each[0] == torn)
    for identity, writes in pending.items():
        if unsynced == "torn":
            offset, data = writes[-1]
            writes = [*writes[:-1], (offset, data[:len(data) // 2 // 512 * 512])]
        settle(durable[identity], writes if unsynced != "lost" else [])
    return {name: bytes(durable[identity]) for name, identity in names.items()
            if identity is not None}


def rows_of(store):
    return store.rows([TABLE.name], [0])


def everything(store):
    rows = np.arange(TABLE.rows)
    out, side = np.empty((TABLE.rows, TABLE.dim), np.float32), np.empty(TABLE.rows, np.float32)
    view = rows_of(store)
    view.finish(view.begin(rows), out, side)
    return out.tobytes() + side.tobytes()


def opened(path):
    return Store(path, [TABLE], tail_bytes=1 << 16, segment_blocks=4)


def trained(store, random):
    rows = np.unique((TABLE.rows * random.random(150) ** 2).astype(np.int64))
    rows_of(store).append(rows, random.random((len(rows), TABLE.dim), np.float32),
                          random.random(len(rows), np.float32))


class Run:
    """Commits of a store, some kept for a while, with what each of them must hold."""

    def __init__(self, folder, recorder, seed):
        self.random, self.recorder = np.random.default_rng(seed), recorder
        self.store = opened(folder)
        self.states = {0: everything(self.store)}
        # Operations until it is durable, number, and sets of kept commits that may be there.
        self.commits = [(len(recorder.operations), 0, {frozenset()})]
        self.kept = {}

    def step(self, keep=None):
        for _ in range(3):
            trained(self.store, self.random)
        if self.random.random() < .6:
            self.store.clean()
        number = self.commits[-1][1] + 1
        self.states[number] = everything(self.store)
        assert self.store.commit(f"dense {number}".encode(), keep=keep) == number
        self.kept = {name: each for name, each in self.kept.items()
                     if each in {commit.number for commit in self.store.commits()}}
        if keep:
            self.kept[keep] = number
        self.commits.append((len(self.recorder.operations), number,
                             {frozenset(self.kept.values())}))

    def release(self, name):
        self.store.release(name)
        self.kept.pop(name)
        self.commits[-1][2].add(frozenset(self.kept.values()))

    def rollback(self, number):
        trained(self.store, self.random)
        self.store.rollback(number)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long)
                                      for seed in range(1, 20))])
def test_every_prefix_opens_at_a_commit(tmp_path, recorder, seed):
    run, more = Run(tmp_path / "run", recorder, seed), np.random.default_rng(seed + 1000)
    first = len(recorder.operations)
    script = ["a", None, "b", None, "release a", "a", "rollback", None, None, "release b", None]
    for what in script if seed == 0 else more.permutation(script):
        name = (what or "").removeprefix("release ")
        if what == "rollback":
            run.rollback(int(more.choice([each.number for each in run.store.commits()])))
        elif (what or "").startswith("release"):
            open_ = run.store.number != run.commits[-1][1] and run.store.number
            if name in run.kept and run.kept[name] != open_:
                run.release(name)
        else:
            run.step(what)
    run.store.close()
    recorder.end()
    operations, tried = list(recorder.operations), 0
    for end in range(first, len(operations) + 1):
        at = max(at for at, (position, *_) in enumerate(run.commits) if position <= end)
        possible = {number: names for _, number, names in run.commits[at:at + 2]}
        for unsynced in ("kept", "lost", "torn"):
            folder = tmp_path / f"{end}-{unsynced}"
            folder.mkdir()
            for name, content in on_disk(operations[:end], unsynced).items():
                (folder / name).write_bytes(content)
            message = (seed, end, unsynced)
            with opened(folder) as again:
                number = again.number
                assert number in possible, message
                kept = {each.number for each in again.commits() if each.keep}
                assert kept in possible[number], message
                for each in (number, *(sorted(kept) if end % 7 == 0 else ())):
                    if each != again.number:
                        again.rollback(each)
                    assert everything(again) == run.states[each], (*message, each)
                    assert again.dense() == (f"dense {each}".encode() if each else None), message
            tried += 1
            for path in folder.iterdir():
                path.unlink()
    assert tried > 300


@pytest.mark.parametrize("operation, error", [
    (WRITE, 28), (WRITE, 5), (SYNC, 5), (CREATE, 28)])
@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_failed_operation_is_final_and_the_last_commit_stands(tmp_path, recorder, operation,
                                                                error, after):
    random = np.random.default_rng(after)
    store = opened(tmp_path)
    trained(store, random)
    store.commit()
    kept = everything(store)
    recorder.failing = (operation, after, error)
    with pytest.raises(Error, match=r"seg-\d+\.log.*last commit"):
        for _ in range(60):
            trained(store, random)
            store.commit() if operation == SYNC else None
            kept = everything(store) if operation == SYNC else kept
    recorder.failing = None
    for call in (lambda: trained(store, random), store.commit, lambda: rows_of(store).begin([1])):
        with pytest.raises(Error, match=r"seg-\d+\.log"):
            call()
    store.close()
    with opened(tmp_path) as again:
        if operation != SYNC:
            assert everything(again) == kept
        trained(again, random)
        again.commit()


@pytest.mark.parametrize("name", ["fsync", "rename"])
@pytest.mark.parametrize("after", range(3))
def test_a_commit_that_cannot_be_written_is_final(tmp_path, monkeypatch, name, after):
    random, real, left = np.random.default_rng(after), getattr(os, name), [after]
    store = opened(tmp_path)
    trained(store, random)
    store.commit(b"first")
    states = {1: everything(store)}
    trained(store, random)
    states[2] = everything(store)

    def failing(*arguments):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        real(*arguments)
    monkeypatch.setattr(os, name, failing)
    if name == "rename" and after == 2:  # a commit renames two files
        assert store.commit(b"second") == 2
    else:
        with pytest.raises(Error, match=r"commit 2 .*No space left.*last commit"):
            store.commit(b"second")
    monkeypatch.undo()
    if left[0] < 0:
        for call in (lambda: trained(store, random), store.commit):
            with pytest.raises(Error, match="could not be written"):
                call()
    store.close()
    with opened(tmp_path) as again:
        assert everything(again) == states[again.number]
        assert again.dense() == {1: b"first", 2: b"second"}[again.number]
