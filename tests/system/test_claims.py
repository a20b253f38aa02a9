"""What a header with the right checksum claims ends in an Error, and takes no memory."""

import json
import shutil
import zlib
from contextlib import suppress
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import pytest
from hotrow.contract.errors import Error
from hotrow.ids import IdMap
from hotrow.tables import FileBase, Store, Table
from hotrow.tables import open as open_tables

from tests.system.file_kinds import KINDS, TABLE

VALUES = (0, 1 << 32, 1 << 62, 1 << 70, -1, 1e300, None, "x", [], {})


@pytest.fixture
def id_map(tmp_path):
    path = tmp_path / "map.npz"
    KINDS["map.npz"].save(path, 1)
    return path


@pytest.mark.parametrize("shape", [(1 << 40,), (1 << 63,), (1 << 70,), (-1,), (1 << 31, 1 << 31)])
@pytest.mark.parametrize("part", ["ids", "settings", "crc"])
def test_a_map_of_ids_whose_parts_claim_a_shape(id_map, part, shape):
    text = f"{{'descr': '<u8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    header = b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text.encode()
    with ZipFile(id_map) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    with ZipFile(id_map, "w") as file:
        for name, content in parts.items():
            file.writestr(name, header + bytes(64) if name == f"{part}.npy" else content)
    with pytest.raises(Error, match=r"map\.npz|a map of ids"):
        IdMap.load(id_map)


def test_a_map_of_ids_that_is_compressed(id_map):
    with ZipFile(id_map) as file, ZipFile(f"{id_map}.zip", "w", ZIP_DEFLATED) as packed:
        for name in file.namelist():
            packed.writestr(name, file.read(name))
    with pytest.raises(Error, match=r"map.npz.zip is no map of ids \(it is compressed"):
        IdMap.load(f"{id_map}.zip")


def test_free_rows_of_two_dimensions(id_map):
    state = IdMap.load(id_map).state()
    with pytest.raises(Error, match="free rows of shape"):
        IdMap.from_state({**state, "free": state["free"].reshape(1, -1)})


@pytest.fixture(scope="module")
def commit(tmp_path_factory):
    """(folder of a store, name of the file of its last commit, what it has)"""
    folder = tmp_path_factory.mktemp("store") / "tables"
    KINDS["tables"].save(folder, 1)
    path = max(folder.glob("commit-*.json"))
    return folder, path.name, json.loads(path.read_bytes().partition(b"\ncrc32")[0])


@pytest.mark.parametrize("key", [
    "format", "store", "number", "step", "kept", "history_from", "gaps", "tables", "block_bytes",
    "segment_blocks", "next_segment", "segments", "dense", "rows", "dim", "dtype", "state",
    "columns", "base", "name", "seed", "bound", "initial_state"])
def test_a_commit_of_a_store(tmp_path, commit, key):
    """Neither another error nor the end of the process."""
    folder, name, found = commit
    for value in VALUES:
        changed = json.loads(json.dumps(found))
        (changed if key in changed else changed["tables"][0])[key] = value
        text = json.dumps(changed).encode() + b"\n"
        shutil.copytree(folder, tmp_path / "tables", dirs_exist_ok=True)
        (tmp_path / "tables" / name).write_bytes(
            text + f"crc32 {zlib.crc32(text):08x} {len(text)}\n".encode())
        for use in (read, train):
            with suppress(Error):
                use(tmp_path / "tables")


def read(folder):
    with open_tables(folder) as reader:
        reader.rows("item", np.arange(300))


def train(folder):
    with Store(folder, [TABLE], tail_bytes=1 << 16) as store:
        store.dense()
        store.commit()


@pytest.mark.parametrize("claim", [
    {"page": 0}, {"page": 1 << 62}, {"rows": float("inf")}, {"rows": 1 << 62}, {"elements": 0},
    {"dim": 1 << 40}, {"rows": None}])
def test_a_table_of_the_old_format(tmp_path, claim):
    path = tmp_path / "old.table"
    KINDS["old.table"].save(path, 1)
    content = path.read_bytes()
    header = {**json.loads(content[:4096]), **claim}
    path.write_bytes((json.dumps(header) + "\n").ljust(4096).encode() + content[4096:])
    with pytest.raises(Error, match=r"old\.table"):
        Table("item", TABLE.rows, 8, optimizer="sgd", state="row", base=FileBase(path)).kept()
