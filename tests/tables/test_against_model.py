"""The store against a dict: random appends, reads, cleaning, commits, and openings without one."""

import os
import pickle
import signal
import time
import traceback
from dataclasses import replace

import numpy as np
import pytest
from hotrow.contract.errors import Error
from hotrow.ids import initial_rows
from hotrow.tables import Store, Table

TABLE = Table("item", 3000, 8, seed=5, bound=0.25, state="row", initial_state=0.5)
KINDS = {
    "one table": [TABLE],
    "two tables": [TABLE, replace(TABLE, name="user", rows=700, seed=6)],
    "padded rows": [Table("a", 900, 5, 1, 0.5, width=8), Table("b", 900, 6, 2, 0.5, width=8)],
    "state in rows": [Table("a", 1500, 6, 3, 0.5, state="element", columns=7, width=16,
                            initial_state=0.125), Table("b", 300, 13, 4, 0.5, width=16,
                                                        state="element", columns=3)],
    "bfloat16": [Table("a", 2000, 5, 8, 0.5, "bfloat16", width=8, state="row")],
    "float16": [Table("a", 2000, 8, 9, 0.5, "float16")],
    "long rows": [Table("a", 50, 1500, 2, 0.5), Table("b", 20, 1500, 3, 0.5)],
}


def narrow(values, dtype):
    """The bits of float32 values in a dtype, to the nearest, ties to even."""
    if dtype != "bfloat16":
        return values.astype(dtype)
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def initial(table, rows):
    """Rows in memory as they are before any training."""
    values = initial_rows(rows.astype(np.uint64), table.dim, table.seed, table.bound)
    whole = np.zeros((len(rows), table.width or table.elements), np.float32)
    whole[:, :table.dim] = values
    whole[:, table.dim:table.elements] = table.initial_state
    return narrow(whole, table.dtype)


class Model:
    """Rows of tables, with gaps between them, in plain arrays."""

    def __init__(self, tables):
        self.tables = tables
        self.first = [3 + 8 * at + sum(each.rows for each in tables[:at])
                      for at in range(len(tables))]
        self.names = [table.name for table in tables]
        every = [initial(table, np.arange(table.rows)) for table in tables]
        self.flat = np.concatenate([first + np.arange(table.rows)
                                    for first, table in zip(self.first, tables, strict=True)])
        self.array = np.zeros((self.flat[-1] + 1, every[0].shape[1]), every[0].dtype)
        self.array[self.flat] = np.concatenate(every)
        self.side = None
        if tables[0].state == "row":
            self.side = np.zeros(len(self.array), np.float32)
            for first, table in zip(self.first, tables, strict=True):
                self.side[first:first + table.rows] = table.initial_state

    def copy(self):
        other = Model.__new__(Model)
        other.__dict__ = {**self.__dict__, "array": self.array.copy(),
                          "side": None if self.side is None else self.side.copy()}
        return other

    def open(self, path, **more):
        store = Store(path, self.tables, **{"tail_bytes": 1 << 16, "segment_blocks": 6, **more})
        return store, store.rows(self.names, self.first)

    def random_rows(self, random, count):
        return self.flat[(len(self.flat) * random.random(count) ** 2).astype(np.int64)]

    def train(self, rows, random, count):
        """Append random values of distinct rows, not in the order of blocks."""
        flat = random.permutation(np.unique(self.random_rows(random, count)))
        values = random.integers(0, 256, (len(flat), self.array[0].nbytes), np.uint8)
        values = values.view(self.array.dtype)
        padded = self.tables[0].width
        source = values.copy()
        if padded:
            for first, table in zip(self.first, self.tables, strict=True):
                own = (flat >= first) & (flat < first + table.rows)
                values[own, table.elements:] = 0
        side = None if self.side is None else random.random(len(flat), np.float32)
        rows.append(flat, source.view(np.uint8), side)
        self.array[flat] = values
        if self.side is not None:
            self.side[flat] = side

    def same(self, rows, flat, ticket=None):
        out = np.full((len(flat) + 1, self.array[0].nbytes), 7, np.uint8)
        side = None if self.side is None else np.empty(len(flat), np.float32)
        rows.finish(ticket or rows.begin(flat), out, side)
        assert (out[:-1] == self.array[flat].view(np.uint8)).all() and (out[-1] == 7).all()
        assert side is None or (side == self.side[flat]).all()


def damaged(path, random, model):
    """Flip or cut bytes of a file: the store refuses by the file's name, or has the right rows."""
    files = [each for each in sorted(path.iterdir()) if each.name != "LOCK"]
    file = files[random.integers(len(files))]
    whole = file.read_bytes()
    at = int(random.integers(len(whole)))
    file.write_bytes(whole[:at] if random.random() < .2 else
                     whole[:at] + bytes([whole[at] ^ 1 << random.integers(8)]) + whole[at + 1:])
    try:
        store, rows = model.open(path)
        with store:
            model.same(rows, model.flat)
            assert store.dense() == model.dense
    except Error as error:
        assert file.name in str(error)
    file.write_bytes(whole)


class Operations:
    """Random operations on a store and on a model of it; pickled, it is what a process that is
    killed leaves.

    Parameters
    ----------
    path : Path
    kind : str
    seed : int
    ring : bool
    shares : sequence of float
        Of each operation in `NAMES`.
    note : callable, optional
        Called with what the folder will have, before it has it.
    """

    NAMES = ("train", "clean", "commit", "release", "rollback", "kill")

    def __init__(self, path, kind, seed, ring=True, shares=(.85, .05, .04, .02, .02, .02),
                 note=lambda operations: None):
        self.path, self.ring, self.shares, self.note = path, ring, shares, note
        self.seed, self.random = seed, np.random.default_rng(seed)
        self.model, self.number, self.names, self.done = Model(KINDS[kind]), 0, {}, 0
        self.model.dense = None
        self.kept = {0: self.model.copy()}

    def __getstate__(self):
        return {name: each for name, each in vars(self).items()
                if name not in ("store", "rows", "note")}

    def open(self):
        self.store, self.rows = self.model.open(self.path, ring=self.ring)
        self.model.same(self.rows, self.model.flat)
        assert self.commits() == self.expected(), (self.seed, self.done)

    def commits(self):
        """Numbers and names of the commits in the folder."""
        return {each.number: each.keep for each in self.store.commits()}

    def expected(self):
        return {self.number: None, **{each: name for name, each in self.names.items()}}

    def run(self):
        """One operation."""
        random, model, rows, store = self.random, self.model, self.rows, self.store
        self.done += 1
        match random.choice(self.NAMES, p=self.shares):
            case "train":
                coming = random.choice(model.flat, 100)
                ahead = rows.begin(coming)  # before the append, as a plan
                model.train(rows, random, 200)
                model.same(rows, coming, ahead)
            case "clean":
                coming = random.choice(model.flat, 100)
                ahead = rows.begin(coming)
                store.clean()
                model.same(rows, coming, ahead)
            case "commit":
                model.dense, keep = str(self.done).encode(), random.choice([None, "a", "b"])
                self.number += 1
                names = {name: each for name, each in self.names.items() if each in self.kept}
                self.names = names | ({str(keep): self.number} if keep else {})
                self.kept = {each: self.kept[each] for each in self.names.values()
                             if each in self.kept}
                self.kept[self.number] = model.copy()
                self.note(self)
                assert store.commit(model.dense, self.done, keep) == self.number
            case "release" if self.names:
                name = random.choice(sorted(self.names))
                others = set(self.names.values()) - {self.names[name]}
                if store.number in (self.number, *others):
                    self.names.pop(name)
                    self.kept = {each: self.kept[each]
                                 for each in (*self.names.values(), self.number)}
                    now, self.model = model, self.kept[self.number]
                    self.note(self)
                    self.model = now
                    store.release(name)
            case "rollback":
                to = int(random.choice(sorted(self.kept)))
                store.rollback(to)
                self.model = model = self.kept[to].copy()
                later = [each for each in self.kept if each > to and each != self.number]
                model.same(rows, model.flat)
                assert store.dense() == model.dense
                if later or to != self.number:  # they go with the next commit
                    store.rollback(self.number)
                    self.model = self.kept[self.number].copy()
            case "kill":
                store.close()  # nothing that was not committed is there
                self.model = self.kept[self.number].copy()
                if random.random() < .5:
                    damaged(self.path, random, self.model)
                self.open()
        assert self.commits() == self.expected(), (self.seed, self.done)


@pytest.mark.slow
@pytest.mark.parametrize("kind, ring, seed, steps", [
    *((kind, True, 1, 60 if kind == "long rows" else 200) for kind in KINDS),
    ("two tables", False, 2, 200),
    *(pytest.param(kind, bool(seed % 3), seed, 20000, marks=[pytest.mark.long, pytest.mark.nightly])
      for kind in KINDS for seed in range(7))])
def test_random_operations(tmp_path, kind, ring, seed, steps):
    operations = Operations(tmp_path, kind, seed, ring)
    operations.open()
    for _ in range(steps):
        operations.run()
    operations.model.same(operations.rows, operations.model.flat)
    operations.store.close()


def operate(operations, left):
    """Operate until the end of the process; `left` has what the folder has next, and had last."""
    states = [pickle.dumps(operations)]

    def note(following):
        states[:] = [states[-1], pickle.dumps(following)]
        left.with_suffix(".new").write_bytes(pickle.dumps(states))
        left.with_suffix(".new").rename(left)
    operations.note = note
    operations.open()
    while True:
        operations.run()


@pytest.mark.long
@pytest.mark.nightly
@pytest.mark.timeout(7200)
def test_a_million_operations_with_kills_and_damage(tmp_path):
    seed, kills = int(os.environ.get("SEED", "1")), 0
    print("seed", seed)
    path, left, random = tmp_path / "t", tmp_path / "left", np.random.default_rng(seed)
    operations = Operations(path, "two tables", seed, shares=(.952, .03, .01, .004, .004, 0))
    while operations.done < 1_000_000:
        child = os.fork()
        if not child:
            operations.note, operations.random = None, np.random.default_rng((seed, kills))
            try:
                operate(operations, left)
            except BaseException:
                traceback.print_exc()
                os._exit(3)
        time.sleep(random.random() * 10)
        os.kill(child, signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL, (seed, operations.done)
        kills += 1
        if left.exists():
            for state in reversed(pickle.loads(left.read_bytes())):
                operations = pickle.loads(state)
                operations.model = operations.kept[operations.number].copy()
                operations.store = Store(path, operations.model.tables)
                found = operations.commits()
                operations.store.close()
                if found == operations.expected():
                    break
            else:
                pytest.fail(f"seed {seed}, {operations.done}: the folder has commits {found}")
        if random.random() < .5:
            damaged(path, random, operations.model)
        if kills % 10 == 0:
            print(kills, "kills", operations.done, "operations", flush=True)
    operations.open()
    operations.store.close()


def test_damage_and_second_trainer(tmp_path):
    model, random = Model([TABLE]), np.random.default_rng(1)
    store, rows = model.open(tmp_path)
    model.train(rows, random, 500)
    store.commit()
    with pytest.raises(Error, match="another process"):
        model.open(tmp_path)
    child = os.fork()
    if not child:
        try:
            rows.begin([3])
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
                    store, rows = model.open(tmp_path)
                    try:  # blocks that a summary lists are checked where they are read
                        model.same(rows, model.flat)
                    finally:
                        store.close()
                path.write_bytes(whole)
        path.write_bytes(whole[:len(whole) // 3])
        with pytest.raises(Error, match=path.name):
            model.open(tmp_path)
        path.write_bytes(whole)
    model.open(tmp_path)[0].close()
