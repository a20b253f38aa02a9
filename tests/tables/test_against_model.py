"""The store against a dict: random appends, reads, cleaning, commits, and openings without one."""

import os

import numpy as np
import pytest
from hotrow.contract.errors import Error
from hotrow.ids import initial_rows
from hotrow.tables import Store, Table

TABLE = Table("item", 3000, 8, seed=5, bound=0.25, state=True, initial_state=0.5)


def opened(path, ring=True):
    return Store(path, TABLE, tail_bytes=1 << 16, segment_blocks=6, ring=ring)


def expected(known, rows):
    start = initial_rows(rows.astype(np.uint64), TABLE.dim, TABLE.seed, TABLE.bound)
    pairs = [known.get(row, (first, 0.5)) for row, first in zip(rows.tolist(), start, strict=True)]
    return np.array([row for row, _ in pairs]), np.array([state for _, state in pairs], np.float32)


def same(store, known, rows, ticket=None):
    out, side = np.empty((len(rows), TABLE.dim), np.float32), np.empty(len(rows), np.float32)
    store.finish(ticket or store.begin(rows), out, side)
    wanted = expected(known, rows)
    assert (out == wanted[0]).all() and (side == wanted[1]).all()


@pytest.mark.parametrize("ring", [True, False])
@pytest.mark.parametrize("seed", range(2))
def test_random_operations(tmp_path, seed, ring):
    random, known, kept = np.random.default_rng(seed), {}, {}
    store = opened(tmp_path, ring)
    for step in range(400):
        match random.choice(["train", "clean", "commit", "kill"], p=[.9, .05, .04, .01]):
            case "train":
                rows = (TABLE.rows * random.random(200) ** 2).astype(np.int64)
                rows = random.permutation(np.unique(rows))  # not in the order of blocks
                coming = random.integers(0, TABLE.rows, 100)
                ahead = store.begin(coming)  # before the append, as a plan
                values = random.random((len(rows), TABLE.dim), np.float32)
                states = random.random(len(rows), np.float32)
                store.append(rows, values, states)
                known |= dict(zip(rows.tolist(), zip(values, states, strict=True), strict=True))
                same(store, known, coming, ahead)
            case "clean":
                coming = random.integers(0, TABLE.rows, 100)
                ahead = store.begin(coming)
                store.clean()
                same(store, known, coming, ahead)
            case "commit":
                store.commit(str(step).encode())
                assert store.dense() == str(step).encode()
                kept = dict(known)
            case "kill":
                store.close()  # nothing that was not committed is there
                store, known = opened(tmp_path, ring), dict(kept)
                same(store, known, np.arange(TABLE.rows))
    same(store, known, np.arange(TABLE.rows))
    store.close()


def test_damage_and_second_trainer(tmp_path):
    store = opened(tmp_path)
    store.append(np.arange(500), np.ones((500, 8), np.float32), np.ones(500, np.float32))
    store.commit()
    with pytest.raises(Error, match="another process"):
        opened(tmp_path)
    child = os.fork()
    if not child:
        try:
            store.begin([1])
        except Error:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    store.close()
    for path in (*tmp_path.glob("seg-*.log"), *tmp_path.glob("commit-*.json")):
        for offset in (0, 30, 4096, 4200, 8191):
            whole = path.read_bytes()
            if offset < len(whole):
                path.write_bytes(whole[:offset] + bytes([whole[offset] ^ 4]) + whole[offset + 1:])
                with pytest.raises(Error, match=path.name):
                    opened(tmp_path)
                path.write_bytes(whole)
        path.write_bytes(whole[:len(whole) // 3])
        with pytest.raises(Error, match=path.name):
            opened(tmp_path)
        path.write_bytes(whole)
    opened(tmp_path).close()
