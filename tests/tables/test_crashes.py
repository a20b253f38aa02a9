"""Every prefix of writes, syncs, renames and unlinks of a run opens at a commit, to the bit."""

import os
from random import Random

import numpy as np
import pytest
from hotrow.contract.errors import Error
from hotrow.tables import Store, Table

from tests.support.power_loss import CREATE, SYNC, WRITE, Recorder, on_disk

TABLE = Table("item", 600, 12, seed=3, bound=0.5, state="row", initial_state=0.25)


@pytest.fixture
def recorder(monkeypatch):
    made = Recorder(monkeypatch)
    yield made
    made.end()


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


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long)
                                      for seed in range(1, 20))])
def test_every_prefix_opens_at_a_commit(tmp_path, recorder, seed):
    run, more = Run(tmp_path / "run", recorder, seed), np.random.default_rng(seed + 1000)
    first = len(recorder.operations)
    script = ["a", None, "b", "release a", "rollback", None, "release b", None]
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
        for unsynced in ("lost", "torn" if end % 2 else "kept", Random(end)):
            folder = tmp_path / f"{end}-{tried}"
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
    assert tried > 200


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
