"""Commits that are kept, released and returned to, and what of them is on disk."""

import numpy as np
import pytest
from hotrow.contract.errors import Error
from hotrow.tables import Commit, Store, Table

TABLE = Table("item", 400, 8, seed=1, bound=0.5)


class Trainer:
    """A store whose rows have the same value in a step."""

    def __init__(self, path, **more):
        self.store = Store(path, [TABLE], tail_bytes=1 << 16, segment_blocks=2, **more)
        self.rows = self.store.rows([TABLE.name], [0])

    def train(self, value, flat=None):
        flat = np.arange(TABLE.rows) if flat is None else flat
        self.rows.append(flat, np.full((len(flat), TABLE.dim), value, np.float32))

    def values(self):
        out = np.empty((TABLE.rows, TABLE.dim), np.float32)
        self.rows.finish(self.rows.begin(np.arange(TABLE.rows)), out)
        return set(out[:, 0].tolist()) if (out == out[0]).all() else None

    def step(self, value, **more):
        self.train(value)
        return self.store.commit(str(value).encode(), value, **more)


def files(path):
    return {each.name for each in path.iterdir()} - {"LOCK"}


def test_kept_commits_stay_until_they_are_released(tmp_path):
    trainer = Trainer(tmp_path)
    for value in (1, 2, 3, 4):
        trainer.step(value, keep={1: "a", 3: "b"}.get(value))
    assert trainer.store.commits() == [Commit(1, 1, "a"), Commit(3, 3, "b"), Commit(4, 4, None)]
    many = len(files(tmp_path))
    trainer.step(5, keep="a")  # the name goes from commit 1 to 5
    assert trainer.store.commits() == [Commit(3, 3, "b"), Commit(5, 5, "a")]
    for _ in range(2):
        trainer.store.clean()
        trainer.step(6)
    trainer.store.close()
    for commit, value in ((3, 3), (5, 5), (None, 6)):
        trainer = Trainer(tmp_path, commit=commit)
        assert (trainer.values(), trainer.store.dense()) == ({value}, str(value).encode())
        trainer.store.close()
    trainer = Trainer(tmp_path)
    with pytest.raises(Error, match="keeps no commit 'c'"):
        trainer.store.release("c")
    trainer.store.release("b")
    trainer.store.release("a")
    trainer.store.clean()
    trainer.step(7)
    assert len(trainer.store.commits()) == 1 and len(files(tmp_path)) < many
    named = {f"seg-{each[0]:08d}.log" for each in trainer.store._commits.manifest["segments"]}
    assert {name for name in files(tmp_path) if name.startswith("seg")} == named
    for name in ("", 5):
        with pytest.raises(Error, match="expected a name"):
            trainer.store.commit(keep=name)
    trainer.store.close()


def test_a_commit_that_is_held_stays_until_the_next_one(tmp_path):
    """Of several stores some may end before they have the next."""
    trainer = Trainer(tmp_path)
    for value in range(1, 6):
        trainer.step(value, keep="third" if value == 3 else None,
                     hold=3 if value == 5 else value - 1)
        trainer.store.clean()
    assert trainer.store.commits() == [Commit(3, 3, "third"), Commit(5, 5, None)]
    trainer.step(6, hold=5)
    for hold in (1, 9):
        with pytest.raises(Error, match=f"expected a commit up to 6 for hold, got {hold}"):
            trainer.step(7, hold=hold)
    trainer.store.close()
    for commit in (3, 5, 6):  # it can be opened, too, and the next one drops those after it
        trainer = Trainer(tmp_path, commit=commit)
        assert trainer.values() == {commit}
        trainer.store.close()
    trainer = Trainer(tmp_path, commit=5)
    with pytest.raises(Error, match="expected a commit up to 5 for hold, got 6"):
        trainer.step(7, hold=6)
    assert trainer.step(7, hold=5) == 7
    assert [each.number for each in trainer.store.commits()] == [3, 5, 7]
    with pytest.raises(Error, match=r"keeps no commit '': it keeps \['third'\]"):
        trainer.store.release("")
    trainer.step(8)
    assert [each.number for each in trainer.store.commits()] == [3, 8]
    trainer.store.close()


def test_the_last_commit_stays_after_its_name_is_released(tmp_path):
    trainer = Trainer(tmp_path)
    trainer.step(1, keep="a")
    trainer.store.release("a")
    trainer.store.close()
    trainer = Trainer(tmp_path)
    assert trainer.store.commits() == [Commit(1, 1, None)] and trainer.values() == {1}
    trainer.step(2)
    assert trainer.store.commits() == [Commit(2, 2, None)]
    trainer.store.close()


def test_rollback_returns_to_a_commit_and_later_ones_go_with_the_next(tmp_path):
    trainer = Trainer(tmp_path)
    for value in (1, 2, 3):
        trainer.step(value, keep={1: "a"}.get(value))
    trainer.train(4)
    ticket = trainer.rows.begin([1])
    with pytest.raises(Error, match="not ended"):
        trainer.store.rollback(3)
    trainer.rows.cancel(ticket)
    for number, value in ((3, 3), (1, 1), (3, 3), (1, 1)):
        trainer.store.rollback(number)
        assert (trainer.store.number, trainer.values()) == (number, {value})
        assert trainer.store.dense() == str(value).encode()
        trainer.train(9)
    assert [each.number for each in trainer.store.commits()] == [1, 3]
    for number in (0, 2, 4):
        with pytest.raises(Error, match=f"no commit {number}: it has 1, 3"):
            trainer.store.rollback(number)
    with pytest.raises(Error, match="commit before its name"):
        trainer.store.release("a")
    trainer.store.close()  # without a commit: the last one stands
    trainer = Trainer(tmp_path)
    assert (trainer.store.number, trainer.values()) == (3, {3})
    trainer.store.close()
    trainer = Trainer(tmp_path, commit=1)
    trainer.train(5, np.arange(10))
    assert trainer.store.commit() == 4
    assert [each.number for each in trainer.store.commits()] == [1, 4]
    assert trainer.store._commits.manifest["gaps"] == [[2, 3]]
    trainer.store.rollback(1)
    assert trainer.values() == {1}
    trainer.store.close()
    assert not [name for name in files(tmp_path) if name.startswith(("commit-000000000002",
                                                                     "commit-000000000003"))]


def test_a_later_commit_stays_whole_until_the_next_one_drops_it(tmp_path):
    """What is trained after the return to an earlier one lies in files of its own."""
    trainer, some = Trainer(tmp_path), np.arange(90)  # a block of a segment of two
    for value, keep in ((1, "a"), (2, None)):
        trainer.train(value, some)
        trainer.store.commit(keep=keep)
    trainer.store.rollback(1)
    for _ in range(3):
        trainer.train(3)
    trainer.store.clean()  # all blocks of full segments are written
    trainer.store.close()
    trainer = Trainer(tmp_path)
    out = np.empty((90, TABLE.dim), np.float32)
    trainer.rows.finish(trainer.rows.begin(some), out)
    assert trainer.store.number == 2 and (out == 2).all()
    trainer.store.close()


def test_an_earlier_commit_opens_where_the_last_one_is_damaged(tmp_path):
    trainer = Trainer(tmp_path)
    trainer.step(1, keep="a")
    trainer.step(2)
    trainer.store.close()
    path = tmp_path / "commit-000000000002.json"
    path.write_bytes(path.read_bytes()[:-1])
    before = files(tmp_path)
    with pytest.raises(Error, match=r"commit-000000000002.json is damaged.*open commit 1,"):
        Trainer(tmp_path)
    trainer = Trainer(tmp_path, commit=1)
    assert trainer.values() == {1} and files(tmp_path) >= before
    assert trainer.step(3) == 3
    trainer.store.close()
    trainer = Trainer(tmp_path)
    assert (trainer.store.number, trainer.values()) == (3, {3})
    trainer.store.close()
