"""Readers of a commit: rows, changes, exports, and beside a process that trains."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hotrow.contract.errors import Error
from hotrow.ids import initial_rows
from hotrow.tables import Store, Table, open

TABLE = Table("item", 900, 8, seed=1, bound=0.5, state="row", initial_state=0.25)
OTHERS = [TABLE, Table("user", 300, 5, 2, 0.5, "bfloat16", width=8),
          Table("text", 300, 6, 2, 0.5, state="element", columns=2)]


def opened(path, tables=OTHERS, **more):
    return Store(path, tables, **{"tail_bytes": 1 << 16, "segment_blocks": 3, **more})


def train(store, name, flat, value):
    table = next(each for each in OTHERS if each.name == name)
    array = np.full((len(flat), table.memory_bytes), value, np.uint8)
    side = np.full(len(flat), value, np.float32) if table.state == "row" else None
    store.rows([name], [0]).append(flat, array, side)


def test_rows_of_each_kind_and_a_refusal_of_others(tmp_path):
    with opened(tmp_path) as store:
        for name in ("item", "user", "text"):
            train(store, name, [3, 200], 7)
        number = store.commit()
        train(store, "item", [4], 9)  # in no commit
        with open(tmp_path) as reader:
            assert (reader.number, reader.tables) == (number, {
                each.name: replace(each, width=None) for each in OTHERS})
            ids = np.array([200, 4, 3, 4, 3])
            trained = np.isin(ids, [3, 200])
            start = initial_rows(ids.astype(np.uint64), 8, 1, 0.5)
            rows, state = reader.rows("item", ids, state=True)
            assert (rows.view(np.uint8)[trained] == 7).all()
            assert (rows[~trained] == start[~trained]).all()
            assert (state == np.where(trained, 7, 0.25)).all()
            for out in (np.empty((5, 8), np.float32), np.empty((8, 5), np.float32).T,
                        np.empty((5, 9), np.float32)[:, :8]):
                assert reader.rows("item", ids, out) is out and (out == rows).all()
            user = reader.rows("user", ids)
            assert user.shape == (5, 5) and user.dtype == np.uint16
            assert (user[trained] == 0x0707).all()
            start = initial_rows(ids.astype(np.uint64), 5, 2, 0.5)
            wide = (user[~trained].astype(np.uint32) << 16).view(np.float32)
            assert np.allclose(wide, start[~trained], rtol=2 ** -8)
            text, columns = reader.rows("text", ids, state=True)
            assert text.shape == (5, 6) and columns.shape == (5, 2)
            assert (text.copy().view(np.uint8)[trained] == 7).all()
            assert (columns[~trained] == 0).all()
            assert reader.rows("text", []).shape == (0, 6)
            for call, match in (
                    (lambda: reader.rows("none", [1]), "has tables"),
                    (lambda: reader.rows("item", [900]), "expected rows"),
                    (lambda: reader.rows("item", [-1]), "expected rows"),
                    (lambda: reader.rows("item", [.5]), "expected rows"),
                    (lambda: reader.rows("user", [1], state=True), "no state"),
                    (lambda: reader.rows("item", [1], np.empty((2, 8))), "expected out"),
                    (lambda: reader.changed("none", 0), "has tables"),
                    (lambda: reader.export("none", tmp_path / "x"), "has tables"),
                    (lambda: reader.export("item", tmp_path / "none" / "x"), "not be written"),
                    (lambda: open(tmp_path, 77), "no commit 77"),
                    (lambda: open(tmp_path / "none"), "no commit")):
                with pytest.raises(Error, match=match):
                    call()
        with pytest.raises(Error, match="closed"):
            reader.rows("item", [1])


@pytest.mark.slow
def test_a_reader_keeps_its_commit_until_it_refreshes(tmp_path):
    random, flat = np.random.default_rng(3), np.arange(TABLE.rows)
    with opened(tmp_path) as store:
        train(store, "item", flat, 1)
        store.commit()
        fixed, going = open(tmp_path), open(tmp_path)
        for value in range(2, 40):
            some = np.unique((900 * random.random(200) ** 2).astype(np.int64))
            train(store, "item", some, value)
            if value % 7 == 0:
                store.clean()
            if value == 20:
                store.rollback(store.number)
                continue
            number = store.commit()
            before = going.rows("item", flat)
            if value % 3:
                continue
            assert going.refresh() == going.refresh() == number
            after = going.rows("item", flat).view(np.uint8)
            assert (after[some] == value).all() and not (before.view(np.uint8) == value).any()
            with open(tmp_path) as other:
                assert (other.rows("item", flat).view(np.uint8) == after).all()
        assert (fixed.rows("item", flat).view(np.uint8) == 1).all()
        fixed.verify()
        for reader in (fixed, going):
            reader.close()


def test_a_reader_goes_on_after_a_rollback(tmp_path):
    with opened(tmp_path) as store:
        train(store, "item", np.arange(900), 1)
        store.commit(keep="one")
        train(store, "item", np.arange(450), 2)
        store.commit()
        with open(tmp_path) as reader:
            store.rollback(1)
            train(store, "item", [899], 3)
            assert store.commit() == reader.refresh() == 3
            rows = reader.rows("item", np.arange(900)).view(np.uint8)
            assert (rows[:899] == 1).all() and (rows[899] == 3).all()


@pytest.mark.slow
def test_rows_that_changed_between_commits(tmp_path):
    random, trained, dumps = np.random.default_rng(4), {}, {}
    with opened(tmp_path) as store:
        for number in range(1, 60):
            some = np.unique((900 * random.random(60) ** 2).astype(np.int64))
            train(store, "item", some, number)
            trained[number] = set(some.tolist())
            if number % 5 == 0:
                store.clean()
            assert store.commit(keep=f"at {number}" if number in (6, 30) else None) == number
            with open(tmp_path) as reader:
                dumps[number] = reader.rows("item", np.arange(900))
        with open(tmp_path) as reader:
            history = reader._manifest["history_from"]
            assert 30 < history < 59
            for since in (0, 6, 30, *range(history, 60)):
                ids, rows = reader.changed("item", since)
                wanted = set().union(*(trained[each] for each in range(since + 1, 60)))
                assert ids.tolist() == sorted(wanted), since
                assert (rows == dumps[59][ids]).all()
                if since:
                    differing = (dumps[59] != dumps[since]).any(1)
                    assert set(np.flatnonzero(differing).tolist()) == wanted
            ids, rows = reader.changed("item", 6, until=30)
            assert set(ids.tolist()) == set().union(*(trained[each] for each in range(7, 31)))
            assert (rows == dumps[30][ids]).all()
            for since in (1, 29, history - 1, 60, -1):
                with pytest.raises(Error, match=f"since commit {since} are not known"):
                    reader.changed("item", since)
        store.release("at 6")
        store.rollback(30)
        train(store, "item", [1, 2], 200)
        assert store.commit() == 60
        with open(tmp_path) as reader:
            assert reader.changed("item", 30)[0].tolist() == [1, 2]
            for since in (31, 45, 59):
                with pytest.raises(Error, match="not known"):
                    reader.changed("item", since)


def test_exports_open_in_the_safetensors_library(tmp_path):
    library = pytest.importorskip("safetensors.numpy")
    with opened(tmp_path) as store:
        train(store, "item", [3, 7], 5)
        train(store, "user", [3, 7], 5)
        store.commit()
    with open(tmp_path) as reader:
        reader.export("item", tmp_path / "all.safetensors")
        found = library.load_file(tmp_path / "all.safetensors")
        assert found.keys() == {"item"}
        assert (found["item"] == reader.rows("item", np.arange(900))).all()
        reader.export("item", tmp_path / "some.safetensors", ids=[7, 8, 7])
        found = library.load_file(tmp_path / "some.safetensors")
        assert found["item.ids"].tolist() == [7, 8, 7] and found["item.ids"].dtype == np.int64
        assert (found["item"] == reader.rows("item", [7, 8, 7])).all()
        reader.export("user", tmp_path / "half.safetensors")
        torch = pytest.importorskip("torch")
        half = pytest.importorskip("safetensors.torch").load_file(tmp_path / "half.safetensors")
        assert half["user"].dtype == torch.bfloat16
        assert (half["user"].view(torch.uint16).numpy() == reader.rows(
            "user", np.arange(300))).all()
    assert not list(tmp_path.glob("*.new"))


READER = """
import os
import sys
import numpy as np
from hotrow.tables import open
parent = os.getppid()
with open(sys.argv[1]) as reader:
    print("open", flush=True)
    last, reads, seen = int(sys.argv[2]), 0, set()
    random = np.random.default_rng(int(sys.argv[3]))
    while reader.number < last and os.getppid() == parent:
        reader.refresh()
        ids = np.unique(random.integers(0, 900, 200))
        rows, state = reader.rows("item", ids, state=True)
        # Step s trained the rows that are s modulo 7, from step 2 on.
        newest = reader.number - (reader.number - ids) % 7
        wanted = np.where(newest > 1, newest % 256, 0)
        assert (rows.view(np.uint8) == wanted[:, None])[newest > 1].all(), reader.number
        assert (state == wanted)[newest > 1].all(), reader.number
        reads, seen = reads + len(ids), seen | {reader.number}
print(reads, len(seen))
"""


@pytest.mark.slow
@pytest.mark.parametrize("readers, steps", [
    (2, 150), pytest.param(4, 20000, marks=[pytest.mark.long, pytest.mark.nightly])])
def test_readers_beside_a_trainer(tmp_path, readers, steps):
    with opened(tmp_path, segment_blocks=2) as store:
        store.commit()
        running = [subprocess.Popen([sys.executable, "-c", READER, tmp_path, str(steps), str(seed)],
                                    stdout=subprocess.PIPE, text=True) for seed in range(readers)]
        for each in running:  # so that it reads while rows train
            assert each.stdout.readline() == "open\n"
        for step in range(2, steps + 1):
            train(store, "item", np.arange(step % 7, 900, 7), step % 256)
            if step % 5 == 0:
                store.clean()
            assert store.commit() == step
        assert store.figures()["rows_moved"] > 0
        for each in running:
            output, _ = each.communicate(timeout=600)
            assert each.returncode == 0 and int(output.split()[0]) > 0, output


@pytest.mark.slow
def test_what_is_damaged_is_named(tmp_path):
    with opened(tmp_path) as store:
        for value in range(4):
            train(store, "item", np.arange(0, 900), value)
        store.commit(b"dense")
        store.verify()
        for path in (*tmp_path.glob("seg-*.log"), *tmp_path.glob("commit-*")):
            whole = path.read_bytes()
            blocks = next((each[2] for each in store._commits.manifest["segments"]
                           if path.name == f"seg-{each[0]:08d}.log"), None)
            used = len(whole) if blocks in (None, 3) else 4096 * (1 + blocks)
            for offset in (*range(0, used, 193), used - 1):
                if blocks == 3 and used - 4096 + 40 <= offset:
                    continue  # zeros of the last page
                path.write_bytes(whole[:offset] + bytes([whole[offset] ^ 1]) + whole[offset + 1:])
                with pytest.raises(Error, match=path.name):
                    store.verify()
            path.write_bytes(whole)
        store.verify()
