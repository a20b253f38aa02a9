"""Whole tables of a run whose ranks share out the rows."""

from dataclasses import replace

import numpy as np
import pytest
from hotrow import Error
from hotrow.tables import Store, Table, open
from hotrow.tables.manifest import STEP_BITS, rank_folder

TABLES = [Table("item", 101, 4, seed=7, bound=0.5, state="row", initial_state=0.25),
          Table("user", 30, 4, seed=8, bound=0.5, state="row")]
WORLD = 3


def of_rank(rank):
    return [replace(table, rows=-(-table.rows // WORLD),
                    part=((rank - at) % WORLD, WORLD, table.rows))
            for at, table in enumerate(TABLES)]


def commit(folder, number, value, ranks=range(WORLD)):
    """Train every second row of each table, and commit, at some of the ranks."""
    for rank in ranks:
        with Store(rank_folder(folder, rank, WORLD), of_rank(rank)) as store:
            for at, (table, own) in enumerate(zip(TABLES, of_rank(rank), strict=True)):
                first = (rank - at) % WORLD
                rows = np.arange(len(range(first, table.rows, WORLD)))
                whole = first + WORLD * rows
                chosen = whole % 2 == 0
                trained = np.repeat(whole[chosen, None] + value, 4, axis=1).astype(np.float32)
                store.rows([own.name], [0]).append(rows[chosen], trained, trained[:, 0].copy())
            store.commit(step=number << STEP_BITS, keep="kept" if number == 1 else None,
                         hold=store.number or None)


def test_whole_tables_of_the_last_commit_of_all_ranks(tmp_path):
    with Store(tmp_path / "whole", TABLES) as store:
        store.commit()
    commit(tmp_path / "t", 1, 100)
    commit(tmp_path / "t", 2, 200)
    commit(tmp_path / "t", 3, 300, ranks=[1])
    with open(tmp_path / "whole") as reader:
        start = {each.name: reader.rows(each.name, np.arange(each.rows)) for each in TABLES}
    for number, given in ((2, None), (1, 1), (2, 2)):
        with open(tmp_path / "t", given) as reader:
            assert reader.number == number and reader.tables == {each.name: each for each in TABLES}
            for table in TABLES:
                ids = np.random.default_rng(number).integers(0, table.rows, 300)
                rows, state = reader.rows(table.name, ids, state=True)
                trained = ids % 2 == 0
                assert (rows[trained] == 100 * number + ids[trained, None]).all()
                assert (rows[~trained] == start[table.name][ids[~trained]]).all()
                assert (state == np.where(trained, 100 * number + ids, table.initial_state)).all()
                out = np.empty_like(rows)
                assert reader.rows(table.name, ids, out) is out and (out == rows).all()
            assert reader.rows("item", []).shape == (0, 4)
            reader.verify()
    for wrong, match in ((lambda: open(tmp_path / "t", 3), r"no commit 3 in common: .*\[1, 2\]"),
                         (lambda: open(tmp_path / "t").rows("item", [101]), "rows 0 to 100"),
                         (lambda: open(tmp_path / "t").rows("none", [1]), "has tables"),
                         (lambda: open(tmp_path / "t").export("none", "x"), "has tables")):
        with pytest.raises(Error, match=match):
            wrong()


def test_an_export_has_the_rows_of_all_ranks(tmp_path):
    library = pytest.importorskip("safetensors.numpy")
    commit(tmp_path / "t", 1, 100)
    with open(tmp_path / "t") as reader:
        reader.export("item", tmp_path / "item.safetensors")
        found = library.load_file(tmp_path / "item.safetensors")["item"]
        assert found.shape == (101, 4) and (found == reader.rows("item", np.arange(101))).all()
    (tmp_path / "t" / "rank-001-of-003").rename(tmp_path / "gone")
    with pytest.raises(Error, match="copy the folders of all ranks of one run together"):
        open(tmp_path / "t")
