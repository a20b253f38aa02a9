"""A trainer that is killed at any moment leaves its last commit, to the bit, and resumes there."""

import os
import signal
import time

import numpy as np
import pytest
from hotrow.tables import Store, Table, open

TABLES = [Table("item", 2000, 8, seed=1, bound=0.5, state="row"),
          Table("user", 300, 8, state="row")]
FIRST = [0, 2000]


def batch(step):
    random = np.random.default_rng(step)
    flat = np.unique((2300 * random.random(150) ** 2).astype(np.int64))
    return random.permutation(flat), random.random((len(flat), 8), np.float32)


def train(folder, acknowledge, cleaning):
    """Train and commit until the end of the process."""
    store = Store(folder, TABLES, tail_bytes=1 << 16, segment_blocks=4)
    rows = store.rows(["item", "user"], FIRST)
    step = int(store.dense() or b"0")
    while True:
        step += 1
        flat, values = batch(step)
        rows.append(flat, values, values[:, 0].copy())
        if cleaning:
            store.clean()
        if not cleaning or step % 3 == 0:
            store.commit(str(step).encode(), step, keep="ten" if step % 10 == 0 else None)
            os.write(acknowledge, b"%08d" % step)


@pytest.mark.slow
@pytest.mark.parametrize("kills, cleaning", [
    (4, False), (4, True),
    pytest.param(200, False, marks=[pytest.mark.long, pytest.mark.nightly]),
    pytest.param(50, True, marks=[pytest.mark.long, pytest.mark.nightly])])
def test_killed_at_any_moment(tmp_path, kills, cleaning):
    seed, done, step, whole = os.getpid(), 0, 0, {}
    random, known, side = np.random.default_rng(seed), np.zeros((2300, 8)), np.zeros(2300)
    print("seed", seed)
    with Store(tmp_path, TABLES, tail_bytes=1 << 16, segment_blocks=4) as store:
        rows, out = store.rows(["item", "user"], FIRST), np.empty((2300, 8), np.float32)
        rows.finish(rows.begin(np.arange(2300)), out, np.empty(2300, np.float32))
        known = out.copy()
    while done < kills:
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            try:
                train(tmp_path, writing, cleaning)
            finally:
                os._exit(3)
        os.close(writing)
        last = int(os.read(reading, 8))  # it trains
        time.sleep(random.random() * .1)
        os.kill(child, signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        while acknowledged := os.read(reading, 8):
            last = int(acknowledged)
        os.close(reading)
        with open(tmp_path) as reader:
            dense = int((tmp_path / f"commit-{reader.number:012d}.dense").read_bytes())
            assert last <= dense <= last + 3, (seed, done)
            while step < dense:
                step += 1
                flat, values = batch(step)
                known[flat], side[flat] = values, values[:, 0]
                if step % 10 == 0:
                    whole = {step: known.copy()}
            for name, first in zip(("item", "user"), FIRST, strict=True):
                count = reader.tables[name].rows
                found, state = reader.rows(name, np.arange(count), state=True)
                assert (found == known[first:first + count]).all(), (seed, done)
                assert (state == side[first:first + count]).all(), (seed, done)
        with Store(tmp_path, TABLES) as store:
            for commit in store.commits():
                if commit.keep and commit.step in whole:
                    store.rollback(commit.number)
                    rows = store.rows(["item", "user"], FIRST)
                    out = np.empty((2300, 8), np.float32)
                    rows.finish(rows.begin(np.arange(2300)), out, np.empty(2300, np.float32))
                    assert (out == whole[commit.step]).all(), (seed, done)
        done += 1
