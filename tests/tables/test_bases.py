"""Tables that begin in files: published tensors, and files of the format "hotrow table 1"."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest
from hotrow.contract.errors import Error
from hotrow.tables import FileBase, Store, Table, TensorBase, open

DTYPES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}


def narrow(values, dtype):
    """The bits of float32 values in a dtype, to the nearest, ties to even."""
    if dtype != "bfloat16":
        return values.astype(dtype)
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def widen(values, dtype):
    if dtype != "bfloat16":
        return values.astype(np.float32)
    return (values.astype(np.uint32) << 16).view(np.float32)


def write_shard(path, values, dtype, before=b""):
    """A safetensors file whose tensor "emb" follows bytes of another one."""
    dtypes = {"other": "U8", "emb": DTYPES.get(dtype, dtype)}
    data = {"other": np.frombuffer(before, np.uint8), "emb": values}
    header, at = {}, 0
    for name, array in data.items():
        header[name] = {"dtype": dtypes[name], "shape": list(array.shape),
                        "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + before + values.tobytes())


def shards(folder, values, dtype, cuts, before=0):
    paths = []
    for number, (begin, end) in enumerate(zip([0, *cuts], [*cuts, len(values)], strict=True)):
        paths.append(folder / f"model-{number}.safetensors")
        write_shard(paths[-1], values[begin:end], dtype, bytes(before + number))
    return paths


@pytest.mark.parametrize("source, dtype, dim, cuts, before", [
    ("float32", "float32", 16, [], 0), ("float32", "float32", 16, [100, 333], 3),
    ("bfloat16", "float32", 5, [1, 2, 3, 700], 511), ("float16", "float32", 1, [256], 100),
    ("float32", "bfloat16", 33, [499], 1), ("bfloat16", "bfloat16", 8, [], 7),
    ("float32", "float16", 3, [], 509), ("float32", "float32", 1025, [30], 77)])
def test_a_published_tensor_is_read_in_place(tmp_path, source, dtype, dim, cuts, before):
    random, count = np.random.default_rng(dim), 60 if dim > 1000 else 1000
    values = random.standard_normal((count, dim)).astype(np.float32)
    bits = values.view(np.uint32)
    bits[::3] = bits[::3] & 0xFFFF0000 | 0x8000  # half of the last place of bfloat16
    values = narrow(values, source)
    paths = shards(tmp_path, values, source, cuts, before)
    sums = [hashlib.sha256(path.read_bytes()).digest() for path in paths]
    wanted = narrow(widen(values, source), dtype) if source != dtype else values
    state = "row" if dim % 2 else None
    table = Table("item", count, dim, dtype=dtype, state=state, initial_state=0.5,
                  base=TensorBase(paths, "emb"))
    for _ in range(2):
        with Store(tmp_path / "store", [table], tail_bytes=1 << 16) as store:
            rows = store.rows(["item"], [10])
            for number in range(3):
                flat = 10 + random.integers(0, count, 300)
                flat[0], flat[1] = 10 + count - 1, 10  # the first and the last page of a file
                trained = np.unique(flat[::17])
                ahead = rows.begin(flat)
                fresh = np.full((len(trained), wanted.shape[1]), number, wanted.dtype)
                rows.append(trained, fresh, np.ones(len(trained), np.float32) if state else None)
                wanted[trained - 10] = fresh
                out, side = np.empty((300, dim), wanted.dtype), np.empty(300, np.float32)
                rows.finish(ahead, out, side if state else None)
                assert (out == wanted[flat - 10]).all()
                if state:
                    known = (side == 1) | (side == .5)
                    assert known.all() and (side[np.isin(flat, trained)] == 1).all()
            store.commit()
            store.verify()
    with open(tmp_path / "store") as reader:
        assert (reader.rows("item", np.arange(count)) == wanted).all()
        assert reader.tables["item"].base == TensorBase(tuple(map(str, paths)), "emb")
    assert sums == [hashlib.sha256(path.read_bytes()).digest() for path in paths]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("source", ["float8_e4m3fn", "float8_e5m2"])
def test_fp8_is_converted_as_by_pytorch(tmp_path, source, dtype):
    torch = pytest.importorskip("torch")
    kind = {"float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2"}[source]
    every = np.arange(256, dtype=np.uint8).reshape(32, 8)
    write_shard(tmp_path / "a", every, kind, b"123")
    with Store(tmp_path / "t", [Table("item", 32, 8, dtype=dtype,
                                      base=TensorBase([tmp_path / "a"], "emb"))]) as store:
        store.commit()
    values = torch.from_numpy(every).view(getattr(torch, source)).to(getattr(torch, dtype))
    words = np.int32 if dtype == "float32" else np.int16
    with open(tmp_path / "t") as reader:
        found = torch.from_numpy(reader.rows("item", np.arange(32)).view(words)).view(values.dtype)
    number = ~values.isnan()
    assert number.sum() > 240 and (found.isnan() == values.isnan()).all()
    assert (found.view(getattr(torch, words.__name__))
            == values.view(getattr(torch, words.__name__)))[number].all()


def test_a_row_of_a_base_takes_one_request(tmp_path):
    values = np.random.default_rng(1).standard_normal((1 << 16, 16)).astype(np.float32)
    paths = shards(tmp_path, values, "float32", [], 40)
    flat = np.random.default_rng(2).choice(1 << 16, 2000, replace=False)
    for ring in (True, False):
        with Store(tmp_path / f"store-{ring}", [Table("item", 1 << 16, 16, base=TensorBase(
                paths, "emb"))], ring=ring) as store:
            rows, out = store.rows(["item"], [0]), np.empty((2000, 16), np.float32)
            rows.finish(rows.begin(flat), out)
            assert (out == values[flat]).all() and 0 < store.figures()["requests"] <= 2000


def test_a_base_that_changed_is_refused(tmp_path):
    values = np.arange(640000, dtype=np.float32).reshape(40000, 16)
    paths = shards(tmp_path, values, "float32", [20000])
    table = Table("item", 40000, 16, base=TensorBase(paths, "emb"))
    with Store(tmp_path / "store", [table]) as store:
        store.rows(["item"], [0]).append([1], np.ones((1, 16), np.float32))
        store.commit()
        store.verify()
        store.commit()  # with the sums that verify() found
    whole = paths[1].read_bytes()
    other = bytearray(whole)
    other[len(whole) // 2 + 40] ^= 1  # in no page that is sampled
    for content, match in ((whole[:-1], "is no safetensors|within the file"),
                           (whole + b"x", "size"), (whole[:-1] + b"x", "pages"),
                           (whole[:20] + b"x" + whole[21:], "safetensors|header"),
                           (whole[:5], "safetensors")):
        paths[1].write_bytes(content)
        for call in (lambda: Store(tmp_path / "store", [table]), lambda: open(tmp_path / "store")):
            with pytest.raises(Error, match=match) as caught:
                call()
            assert paths[1].name in str(caught.value)
    paths[1].write_bytes(other)
    with Store(tmp_path / "store", [table]) as store, pytest.raises(Error, match="since it was v"):
        store.verify()
    with open(tmp_path / "store") as reader, pytest.raises(Error, match=paths[1].name):
        reader.verify()
    paths[1].write_bytes(whole)
    moved = [path.rename(tmp_path / f"moved-{path.name}") for path in paths]
    with pytest.raises(Error, match="cannot be read"):
        Store(tmp_path / "store", [table])
    with Store(tmp_path / "store", [replace(table, base=TensorBase(moved, "emb"))]) as store:
        store.commit()
    with open(tmp_path / "store") as reader:  # where the last commit knows it
        assert (reader.rows("item", [0, 1, 39999])[::2] == values[[0, 39999]]).all()
    for base, match in ((None, "a seed was asked"), (TensorBase(moved[::-1], "emb"), "has changed"),
                        (TensorBase(moved, "none"), "tensor 'none'"),
                        (TensorBase(moved[:1], "emb"), "expected 40000 rows"),
                        (TensorBase([tmp_path / "LOST"], "emb"), "LOST")):
        with pytest.raises(Error, match=match):
            Store(tmp_path / "store", [replace(table, base=base)])


def old_file(path, values, state, side=None, optimizer="adagrad", dim=None, closed=True):
    """A file of the format "hotrow table 1"."""
    count, width = values.shape
    padded = -(-count // 1024) * 1024
    header = {"format": "hotrow table 1", "table": "item", "rows": count, "dim": dim or width,
              "dtype": str(values.dtype), "elements": width, "state": state,
              "optimizer": optimizer, "page": 4096, "filled": True, "closed": closed}
    content = bytearray(4096 + padded * (values[0].nbytes + 4 * (state == "row")))
    content[:4096] = (json.dumps(header) + "\n").ljust(4096).encode()
    content[4096:4096 + values.nbytes] = values.tobytes()
    if side is not None:
        begin = 4096 + padded * values[0].nbytes
        content[begin:begin + side.nbytes] = side.tobytes()
    path.write_bytes(content)


@pytest.mark.parametrize("state", [None, "row", "element", "new"])
def test_a_file_of_the_format_before_is_a_base(tmp_path, state):
    random, path = np.random.default_rng(4), tmp_path / "old.table"
    values = random.standard_normal((1500, 8)).astype(np.float32)
    side = random.random(1500, np.float32) if state == "row" else None
    old_file(path, values, None if state == "new" else state, side, dim=5)
    more = {"row": {"state": "row"}, "element": {"state": "element", "columns": 3},
            "new": {"state": "row", "initial_state": 0.75}, None: {}}[state]
    table = Table("item", 1500, 5, optimizer="adagrad", width=8, base=FileBase(path), **more)
    used = 8 if state == "element" else 5
    values[:, used:] = 0
    with Store(tmp_path / "store", [table]) as store:
        rows, flat = store.rows(["item"], [0]), random.integers(0, 1500, 400)
        out, got = np.empty((400, 8), np.float32), np.empty(400, np.float32)
        apart = table.state == "row"
        rows.finish(rows.begin(flat), out, got if apart else None)
        assert (out == values[flat]).all()
        if apart:
            assert (got == (side[flat] if state == "row" else .75)).all()
        store.commit()
    for change, match in (({"rows": 1499}, "rows is 1500"), ({"dim": 4}, "dim is 5"),
                          ({"optimizer": "sgd"}, "optimizer is 'adagrad'")):
        if state in ("row", "element") or "optimizer" not in change:
            with pytest.raises(Error, match=match):
                Store(tmp_path / "other", [replace(table, **change)])
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(Error, match="is cut"):
        Store(tmp_path / "store", [table])
    path.write_bytes(b"no table")
    with pytest.raises(Error, match="is no table"):
        Store(tmp_path / "store", [table])


def test_a_file_that_was_not_closed_is_used_with_a_warning(tmp_path):
    old_file(tmp_path / "old", np.ones((10, 4), np.float32), None, closed=False)
    with pytest.warns(UserWarning, match="different steps"), Store(
            tmp_path / "store", [Table("item", 10, 4, base=FileBase(tmp_path / "old"))]):
        pass


@pytest.mark.parametrize("cuts", [None, [100, 333]], ids=["seed", "shards"])
def test_parts_have_the_rows_of_the_whole_table(tmp_path, cuts):
    values = np.random.default_rng(3).standard_normal((1001, 5)).astype(np.float32)
    base = None if cuts is None else TensorBase(shards(tmp_path, values, "float32", cuts), "emb")
    whole = Table("item", 1001, 5, seed=7, bound=0.5, base=base)
    with Store(tmp_path / "whole", [whole]) as store:
        store.commit()
    with open(tmp_path / "whole") as reader:
        expected = reader.rows("item", np.arange(1001))
    assert cuts is None or (expected == values).all()
    for first in range(4):
        table = replace(whole, rows=251, part=(first, 4, 1001))
        own = len(range(first, 1001, 4))  # the others only pad
        with Store(tmp_path / f"{first}", [table]) as store:
            rows = store.rows(["item"], [0])
            rows.append([1], np.full((1, 5), first, np.float32))
            out = np.empty((251, 5), np.float32)
            rows.finish(rows.begin(np.arange(251)), out)
            store.commit()
        mine = expected[first::4].copy()
        mine[1] = first
        assert (out[:own] == mine).all()
        with open(tmp_path / f"{first}") as reader:
            assert (reader.rows("item", np.arange(own)) == mine).all()
            assert reader.tables["item"].part == (first, 4, 1001)
        with pytest.raises(Error, match="part is "):
            Store(tmp_path / f"{first}", [replace(table, part=((first + 1) % 4, 4, 1001))])
    with pytest.raises(Error, match="expected a part whose first row is 0 to its step - 1"):
        replace(whole, rows=100, part=(0, 4, 1001))
    (tmp_path / "ranks" / "rank-000-of-002").mkdir(parents=True)
    with pytest.raises(Error, match="has tables that 2 ranks share out: train them with as"):
        Store(tmp_path / "ranks", [whole])
    with pytest.raises(Error, match="has rank-000-of-002: copy the folders of all ranks"):
        open(tmp_path / "ranks")
