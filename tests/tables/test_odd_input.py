"""Odd input: a named error at once, nothing left on the disk, and the last commit opens."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hotrow.contract.errors import Error
from hotrow.tables import FileBase, Store, Table, TensorBase, open, plan_memory

TABLE = Table("item", 900, 8, seed=1, bound=0.5)


def opened(path, **more):
    return Store(path, [TABLE], tail_bytes=1 << 16, segment_blocks=3, **more)


def train(store, value):
    store.rows(["item"], [0]).append([1, 2], np.full((2, 8), value, np.float32))


@pytest.fixture
def folder(tmp_path):
    """Two commits, the first of them kept."""
    with opened(tmp_path / "t") as store:
        train(store, 1)
        store.commit(b"1", keep="a")
        train(store, 2)
        store.commit(b"2")
    return tmp_path / "t"


@pytest.mark.parametrize("given", [
    {"step": -1}, {"step": 1.5}, {"step": 1 << 64}, {"step": "1"}, {"step": True},
    {"dense": "text"}, {"dense": np.arange(5)}, {"dense": [1]}, {"hold": 0.0}, {"hold": "1"},
    {"keep": ""}, {"keep": b"a"}], ids=str)
def test_a_commit_that_would_not_open_is_not_made(folder, given):
    with opened(folder) as store:
        train(store, 3)
        with pytest.raises(Error, match=r"whole number|step of 0|dense as bytes|name for keep"):
            store.commit(**given)
        assert store.commit(bytearray(b"3"), np.int64(7)) == 3
    with opened(folder) as store:
        assert store.dense() == b"3" and store.commits()[-1].step == 7
    assert not list(folder.glob("*.new"))


@pytest.mark.parametrize("change", [
    {"rows": 5.0}, {"rows": True}, {"dim": 1 << 31}, {"name": 3}, {"bound": float("nan")},
    {"seed": 1.5}, {"initial_state": float("inf"), "state": "row"}, {"width": 9.5},
    {"base": "file"}], ids=str)
def test_tables_that_are_none(change):
    with pytest.raises(Error, match=r"item|expected a name"):
        replace(TABLE, **change)


def test_numbers_of_numpy_are_numbers(tmp_path):
    table = Table("item", np.int64(9), np.int32(4), np.uint8(3), np.float32(0.5))
    for _ in range(2):
        with Store(tmp_path, [table]) as store:
            store.commit(step=np.int64(3))
    with open(tmp_path, np.int64(2)) as reader:
        assert reader.changed("item", np.int64(1), np.uint8(2))[0].tolist() == []


def test_a_closed_store_changes_nothing(folder):
    """Another one may have the folder."""
    store = opened(folder)
    store.close()
    with opened(folder) as other:
        for call in (store.commit, lambda: store.release("a"), lambda: store.rollback(1),
                     store.clean, lambda: store.rows(["item"], [0])):
            with pytest.raises(Error, match="closed: open them"):
                call()
        assert [each.number for each in other.commits()] == [1, 2]
        train(other, 5)
        assert other.commit() == 3


def test_what_a_reader_is_asked_for(folder, tmp_path):
    with open(folder) as reader:
        for ids in (5, None, {1, 2}, (each for each in [1]), [[1], [1, 2]], [[1]], [1 << 70],
                    np.ones(900, bool), ["1"]):
            with pytest.raises(Error, match="expected rows"):
                reader.rows("item", ids)
            if ids is not None:
                with pytest.raises(Error, match="expected rows"):
                    reader.export("item", tmp_path / "out", ids)
        with pytest.raises(Error, match="expected rows"):
            reader.export("item", tmp_path / "out", [1, 900])
        fixed = np.empty((2, 8), np.float32)
        fixed.flags.writeable = False
        for out in ([[0] * 8] * 2, fixed, np.empty((2, 8)), np.empty((3, 8), np.float32)):
            with pytest.raises(Error, match=r"expected out of float32 \[2, 8\]"):
                reader.rows("item", [1, 2], out)
        backwards = np.empty((2, 8), np.float32)[::-1]
        assert (reader.rows("item", [1, 3], backwards) == reader.rows("item", [1, 3])).all()
        for since, until in ((None, None), ("1", None), (1.0, None), (0, 1.0), (0, "1")):
            with pytest.raises(Error, match="must be a whole number"):
                reader.changed("item", since, until)
        with pytest.raises(Error, match="changed since commit 2 are not known at commit 1"):
            reader.changed("item", 2, 1)
        with pytest.raises(Error, match=r"has no commit 3: it has \[1, 2\]"):
            reader.changed("item", 0, 3)
    for commit in (1.0, "1", True):
        with pytest.raises(Error, match="must be a whole number"):
            open(folder, commit)
    for call in (reader.refresh, reader.verify, lambda: reader.export("item", tmp_path / "out")):
        with pytest.raises(Error, match="closed"):
            call()
    assert os.listdir(tmp_path) == ["t"]


@pytest.mark.parametrize("name", [
    "commit-000000000002 (copy).json", "commit-x.json", "commit-9.json", "seg-x.log",
    "seg-00000001 (1).log", "commit-copy.dense", "rank-000-of-xyz", "rank-000-of-002.bak"])
def test_files_of_others_in_the_folder_are_left_alone(folder, name):
    (folder / name).write_bytes(b"of another program")
    with open(folder) as reader:
        assert reader.rows("item", [1])[0, 0] == 2
    with opened(folder) as store:
        assert store.commit() == 3
    assert (folder / name).read_bytes() == b"of another program"


def shard(path, shape=(30, 8), offsets=(0, 960), header=None):
    text = header or json.dumps({"emb": {"dtype": "F32", "shape": shape, "data_offsets": offsets},
                                 "__metadata__": {}}).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(960))
    return path


def test_bases_that_are_none(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "index").write_text(json.dumps({"weight_map": {"emb": "a"}}))
    table = Table("item", 30, 8)
    for base, match in (
            (TensorBase([tmp_path / "index"], "emb"), "looks like an index: name the shard"),
            (TensorBase([tmp_path / "fifo"], "emb"), "it is no file"),
            (FileBase(tmp_path / "fifo"), "it is no file"),
            (TensorBase([shard(tmp_path / "a")], "no"), r"with the tensors \['emb'\]"),
            (TensorBase([shard(tmp_path / "b", (30.5, 8))], "emb"), "no safetensors"),
            (TensorBase([shard(tmp_path / "c", offsets=(0., 960.))], "emb"), "no safetensors"),
            (TensorBase([shard(tmp_path / "d", header=b"[" * 100000)], "emb"), "no safetensors")):
        with pytest.raises(Error, match=match):
            Store(tmp_path / "t", [replace(table, base=base)])
    for one in (tmp_path / "a", str(tmp_path / "a"), os.fsencode(tmp_path / "a")):
        with Store(tmp_path / "t", [replace(table, base=TensorBase(one, "emb"))]) as store:
            store.commit()


def test_limits_of_memory():
    table = Table("item", 10**6, 16)
    assert plan_memory("1e9", [table], process=1) == plan_memory(1e9, [table], process=1)
    for given in ({"tables": []}, {"lookups": -1}, {"depth": 0}, {"process": -1}, {"depth": 1.5}):
        with pytest.raises(Error, match=r"expected a|whole number"):
            plan_memory("1GB", **{"tables": [table], **given})
    for limit in ("640M", "1e999", "-1GB", "1" * 400, None):
        with pytest.raises(Error, match="expected a size of memory"):
            plan_memory(limit, [table])


THREADS = """
import sys, threading, time
import numpy as np
from hotrow import Error
from hotrow.tables import Store, Table

def work():
    try:
        while True:
            flat = np.random.randint(0, 900, 300)
            ticket, rows = view.begin(flat), np.unique(flat)
            view.append(rows, np.ones((len(rows), 8), np.float32))
            view.finish(ticket, np.empty((300, 8), np.float32))
    except Error:
        ended.append(1)

for number in range(30):
    store, ended = Store(sys.argv[1], [Table("item", 900, 8)], 1 << 16, 3), []
    view = store.rows(["item"], [0])
    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(.005)
    if number % 2:
        try:
            store.rollback(store.number)
        except Error as error:
            assert "not ended" in str(error), error
    store.close()
    for thread in threads:
        thread.join()
    assert len(ended) == 3
"""


def test_threads_that_use_a_store_while_it_closes_or_returns_to_a_commit(tmp_path):
    done = subprocess.run([sys.executable, "-c", THREADS, tmp_path / "t"], capture_output=True,
                          text=True, timeout=300)
    assert done.returncode == 0, (done.returncode, done.stderr)
