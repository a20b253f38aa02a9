"""Blocks in the files of a log: their epochs, their places, and when a segment's file goes."""

import struct
from dataclasses import replace

import numpy as np
import pytest
from hotrow.contract.errors import Error
from hotrow.tables import Store, Table

PAGE = BLOCK = 4096
TABLE = Table("item", 2000, 8, seed=1, bound=0.5)


def opened(path):
    return Store(path, [TABLE], tail_bytes=1 << 16, segment_blocks=4)


def rows_of(store):
    return store.rows([TABLE.name], [0])


def train(store, rows, value):
    rows_of(store).append(rows, np.full((len(rows), TABLE.dim), value, np.float32))


def last_epochs(folder):
    """The epoch of the last block of each row, from the files alone."""
    found = {}
    for path in sorted(folder.glob("seg-*.log")):
        content = path.read_bytes()
        for at in range(PAGE, len(content), BLOCK):
            block = content[at:at + BLOCK]
            magic, = struct.unpack_from("<I", block)
            if magic != 0x4B425248:  # after the blocks comes the summary
                continue
            epoch, = struct.unpack_from("<Q", block, 32)
            count, = struct.unpack_from("<H", block, 52)
            found |= dict.fromkeys(np.frombuffer(block, np.uint32, count, 64).tolist(), epoch)
    return found


def test_a_block_has_the_epoch_in_which_its_rows_trained_and_keeps_it_when_they_move(tmp_path):
    store, random, known = opened(tmp_path), np.random.default_rng(5), {}
    for epoch in range(1, 5):
        for _ in range(3):
            rows = np.unique((TABLE.rows * random.random(300) ** 3).astype(np.int64))
            train(store, rows, epoch)
            known |= dict.fromkeys(rows.tolist(), epoch)
        assert store.commit() == epoch
        assert last_epochs(tmp_path) == known
    before = store.figures()["rows_moved"]
    store.clean()
    store.commit()
    assert store.figures()["rows_moved"] > before
    assert last_epochs(tmp_path) == known
    store.close()


def test_a_file_stays_while_a_ticket_begun_before_may_read_it(tmp_path):
    store = opened(tmp_path)
    rows, out = np.arange(TABLE.rows), np.empty((TABLE.rows, TABLE.dim), np.float32)
    for value in range(6):
        train(store, rows, value)
    store.commit()
    view = rows_of(store)
    ticket = view.begin(rows)
    files = set(tmp_path.glob("seg-*.log"))
    train(store, rows, 7)
    for _ in range(2):
        store.clean()
        store.commit()
    assert files <= set(tmp_path.glob("seg-*.log"))
    view.finish(ticket, out)
    assert (out == 7).all()
    store.clean()
    store.commit()
    assert not files & set(tmp_path.glob("seg-*.log"))
    store.close()


@pytest.mark.parametrize("to, source", [((0, 0), (0, 1)), ((0, 1), (1, 1)), ((1, 0), (0, 0))])
def test_a_whole_block_in_the_place_of_another_is_refused(tmp_path, to, source):
    store = opened(tmp_path)
    for value in range(3):
        train(store, np.arange(400), value)
    store.commit()
    store.close()
    files = sorted(tmp_path.glob("seg-*.log"))
    content = [bytearray(path.read_bytes()) for path in files[:2]]
    (file, block), (other, from_block) = to, source
    start, begin = PAGE + BLOCK * block, PAGE + BLOCK * from_block
    content[file][start:start + BLOCK] = content[other][begin:begin + BLOCK]
    files[file].write_bytes(content[file][:PAGE + 4 * BLOCK])  # its blocks are read at open
    with pytest.raises(Error, match=rf"{files[file].name} has a block of another place"):
        opened(tmp_path)


def test_wrong_rows_and_arrays_are_refused(tmp_path):
    three = [TABLE, Table("other", 10, 8, seed=1, bound=0.5), Table("short", 10, 4)]
    with Store(tmp_path, three) as store:
        rows = store.rows(["other", "item"], [2008, 0])
        for flat in ([-1], [2000], [2007], [2018], [1 << 40], [(1 << 64) - 1], [0.5], [[1]]):
            with pytest.raises(Error, match="expected rows"):
                rows.begin(flat)
            with pytest.raises(Error, match="expected rows"):
                rows.append(flat, np.zeros((1, 8), np.float32))
        rows.cancel(rows.begin([1999, 2008, 2017]))
        for array in (np.zeros((2, 7), np.float32), np.zeros((1, 8), np.float32),
                      np.zeros((2, 16), np.float32)[:, ::2], np.zeros((2, 4), object),
                      np.broadcast_to(np.zeros(8, np.float32), (2, 8))):
            with pytest.raises(Error, match="expected 2 rows of 32"):
                rows.append([1, 2], array)
        with pytest.raises(Error, match="expected 2 rows of 32"):
            rows.append([1, 2], np.zeros((2, 8), np.float32), np.zeros(2, np.float32))
        ticket, fixed = rows.begin([1, 2]), np.zeros((2, 8), np.float32)
        fixed.flags.writeable = False
        with pytest.raises(Error, match="expected 2 rows of 32"):
            rows.finish(ticket, fixed)
        rows.finish(ticket, np.zeros((2, 8), np.float32))  # the ticket is still there
        for names, first, match in ((["none"], [0], "expected names"), ([], [], "expected names"),
                                    (["item", "short"], [0, 2000], "one width"),
                                    (["item"], [0, 1], "one width"),
                                    (["item", "other"], [0, 1999], "at which no table ends"),
                                    (["item"], [-1], "at which no table ends")):
            with pytest.raises(Error, match=match):
                store.rows(names, first)
    with pytest.raises(Error, match="closed"):
        store.commit()
    for rows, dim, more in (
            (0, 8, {}), (1 << 32, 8, {}), (9, 0, {}), (9, 8, {"dtype": "int8"}),
            (9, 8, {"state": True}), (9, 8, {"state": "element", "dtype": "float16"}),
            (9, 8, {"columns": 2}), (9, 8, {"width": 7}),
            (9, 8, {"width": 9, "state": "element", "columns": 2})):
        with pytest.raises(Error, match="'item': expected"):
            Table("item", rows, dim, 1, 0.5, **more)
    for tables, more in (([TABLE], {"segment_blocks": 0}), ([TABLE], {"tail_bytes": -1}), ([], {}),
                         ([TABLE, TABLE], {})):
        with pytest.raises(Error, match="expected t"):
            Store(tmp_path, tables, **more)
    changed = [("rows", 2001), ("dim", 7), ("dtype", "float16"), ("state", "row"),
               ("optimizer", "sgd"), ("name", "items")]
    for name, value in changed:
        with pytest.raises(Error, match=f"{name if name != 'name' else 'items'}.* asked for"):
            Store(tmp_path, [replace(TABLE, **{name: value}), *three[1:]])


def test_a_ticket_is_for_one_finish_and_ends_with_the_store(tmp_path):
    store, out = opened(tmp_path), np.empty((2, TABLE.dim), np.float32)
    train(store, np.arange(400), 1)
    store.commit()
    rows = rows_of(store)
    ticket = rows.begin([3, 4])
    rows.finish(ticket, out)
    for call in (lambda: rows.finish(ticket, out), lambda: rows.cancel(ticket),
                 lambda: rows.finish((12345, 2), out), lambda: rows_of(store).cancel(other)):
        other = rows.begin([1])  # in the memory of the ticket that has ended
        with pytest.raises(Error, match=r"call begin\(\) for each"):
            call()
    rows.cancel(rows.begin([1]))
    for _ in range(20):
        rows.begin(np.arange(400))
    store.close()


def test_segments_without_a_manifest_are_not_taken_for_a_new_store(tmp_path):
    with opened(tmp_path) as store:
        train(store, np.arange(400), 1)
        store.commit()
    files = {path.name: path.read_bytes() for path in tmp_path.glob("seg-*.log")}
    for path in tmp_path.glob("commit-*.json"):
        path.unlink()
    with pytest.raises(Error, match="has segments and no commit"):
        opened(tmp_path)
    assert files == {path.name: path.read_bytes() for path in tmp_path.glob("seg-*.log")}


def test_a_store_keeps_its_seed(tmp_path):
    found = []
    for table in (TABLE, replace(TABLE, seed=2, bound=.25)):
        with Store(tmp_path, [table]) as store:
            rows, out = rows_of(store), np.empty((9, TABLE.dim), np.float32)
            rows.finish(rows.begin(np.arange(9)), out)
            found.append(out)
    assert (found[0] == found[1]).all() and found[0].any()


def test_a_damaged_block_does_not_stop_training(tmp_path):
    store, out = opened(tmp_path), np.empty((TABLE.rows, TABLE.dim), np.float32)
    train(store, np.arange(TABLE.rows), 1)
    store.commit()
    train(store, np.arange(0, TABLE.rows, 2), 2)
    store.commit()
    path = min(tmp_path.glob("seg-*.log"))
    whole = path.read_bytes()
    path.write_bytes(whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:])
    store.clean()
    train(store, np.arange(500, 600), 3)
    rows = rows_of(store)
    with pytest.raises(Error, match=rf"{path.name}.*offset 4096"):
        rows.finish(rows.begin(np.arange(TABLE.rows)), out)
    number = store.commit()
    store.close()
    path.write_bytes(whole)
    with opened(tmp_path) as store:
        rows = rows_of(store)
        rows.finish(rows.begin(np.arange(TABLE.rows)), out)
        assert store.number == number and (out[500:600] == 3).all()
        assert (out[:500:2] == 2).all() and (out[1:500:2] == 1).all()
