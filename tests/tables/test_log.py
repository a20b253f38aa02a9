"""How the log grows: what is written for a row, what cleaning gains, and threads at one store."""

from threading import Thread

import numpy as np
import pytest
from hotrow.contract.errors import Error
from hotrow.tables import Store, Table, open


def test_bytes_written_for_a_row_that_leaves(tmp_path):
    """Victims of a Zipf of slope 1 whose hottest twentieth stays."""
    count, random = 30000, np.random.default_rng(1)
    with Store(tmp_path, [Table("item", count, 64)], tail_bytes=1 << 19,
               segment_blocks=64) as store:
        rows, source, figures = store.rows(["item"], [0]), np.ones((512, 64), np.float32), []
        for _ in range(500):
            ranks = count / 20 * 20 ** random.random(512)
            flat = np.unique(ranks.astype(np.int64) * 7919 % count)
            rows.append(random.permutation(flat), source)
            figures.append(store.figures())
        one, two = figures[300], figures[-1]
        assert two["wear"] == two["bytes_written"] / two["bytes_trained"]
        written, trained = (two[key] - one[key] for key in ("bytes_written", "bytes_trained"))
        assert 1.1 < written / trained <= 1.5, written / trained
        most = 2.5 * -(-count // 15) + 10 * 64
        assert two["log_blocks"] <= most and len([*tmp_path.glob("seg-*")]) <= most / 64 + 2


@pytest.mark.slow
def test_many_commits_leave_no_short_blocks(tmp_path):
    random = np.random.default_rng(2)
    with Store(tmp_path, [Table("item", 2000, 16)], tail_bytes=1 << 17,
               segment_blocks=4) as store:
        rows, known = store.rows(["item"], [0]), np.zeros(2000)
        for number in range(1, 401):
            flat = np.unique(random.integers(0, 2000, 12))
            rows.append(flat, np.full((len(flat), 16), number, np.float32))
            known[flat] = number
            store.commit(keep="half" if number == 200 else None)
        # 2,000 rows are 34 blocks; each of 400 commits has written one.
        if "half" in {each.keep for each in store.commits()}:
            store.release("half")
        store.clean()
        store.commit()
        assert store.figures()["log_blocks"] < 140, store.figures()
    with open(tmp_path) as reader:
        assert (reader.rows("item", np.arange(2000))[:, 0] == known).all()


def test_threads_share_a_store(tmp_path):
    """Each thread trains rows of its own, while another one commits and cleans."""
    tables = [Table("a", 1000, 8, state="row"), Table("b", 1000, 8, state="row")]
    with Store(tmp_path, tables, tail_bytes=1 << 16, segment_blocks=4) as store:
        rows, wrong, ending = store.rows(["a", "b"], [0, 1000]), [], []

        def train(number):
            random, known = np.random.default_rng(number), np.zeros(2000, np.float32)
            try:
                for step in range(1, 80):
                    flat = random.choice(500, 60, replace=False) * 4 + number
                    coming = random.choice(500, 60) * 4 + number
                    ticket, out = rows.begin(coming), np.empty((60, 8), np.float32)
                    side = np.empty(60, np.float32)
                    rows.append(flat, np.full((60, 8), step, np.float32),
                                np.full(60, step, np.float32))
                    known[flat] = step
                    rows.finish(ticket, out, side)
                    assert (out == known[coming, None]).all() and (side == known[coming]).all()
            except BaseException as error:
                wrong.append(error)
            ending.append(number)
        threads = [Thread(target=train, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        while len(ending) < 4:
            store.clean()
            store.commit()
        for thread in threads:
            thread.join()
        assert not wrong, wrong


def test_rows_are_appended_while_those_before_are_moved(tmp_path):
    with Store(tmp_path, [Table("item", 300, 16)], tail_bytes=0, segment_blocks=4) as store:
        rows, known = store.rows(["item"], [0]), np.zeros(300, np.float32)
        random, wrong = np.random.default_rng(3), []

        def train():
            for value in range(1, 400):
                flat, out = random.choice(300, 150, replace=False), np.empty((300, 16), np.float32)
                rows.append(flat, np.full((150, 16), value, np.float32))
                known[flat] = value
                rows.finish(rows.begin(np.arange(300)), out)
                if (out != known[:, None]).any():
                    wrong.append(value)
        thread = Thread(target=train)
        thread.start()
        while thread.is_alive():
            store.clean()
        thread.join()
        assert store.figures()["rows_moved"] and not wrong


@pytest.mark.parametrize("torn", ["removed", "torn"])
def test_without_a_summary_the_blocks_are_read(tmp_path, torn):
    random, known = np.random.default_rng(4), np.zeros(5000)
    with Store(tmp_path, [Table("item", 5000, 4)], tail_bytes=1 << 16, segment_blocks=8) as store:
        rows = store.rows(["item"], [0])
        for value in range(1, 9):
            flat = random.choice(5000, 2000, replace=False)
            rows.append(flat, np.full((2000, 4), value, np.float32))
            known[flat] = value
        store.commit()
    end, several = 4096 * 9, 0
    for path in tmp_path.glob("seg-*.log"):
        whole = path.read_bytes()
        if len(whole) > end:
            several += 1
            path.write_bytes(whole[:end] if torn == "removed" else
                             whole[:end + 100] + bytes(512) + whole[end + 612:])
    assert several > 3
    with open(tmp_path) as reader:
        assert (reader.rows("item", np.arange(5000))[:, 0] == known).all()
        if torn == "torn":
            with pytest.raises(Error, match="damaged summary"):
                reader.verify()


@pytest.mark.slow
def test_a_small_tail_and_many_tables(tmp_path):
    """More tables than blocks that may be open."""
    tables = [Table(f"t{number}", 40, 3, number, .5) for number in range(40)]
    first = [100 * number for number in range(40)]
    random, known = np.random.default_rng(5), {}
    with Store(tmp_path, tables, tail_bytes=0, segment_blocks=5) as store:
        rows = store.rows([table.name for table in tables], first)
        for value in range(60):
            flat = random.permutation(np.unique(100 * random.integers(0, 40, 50)
                                                + random.integers(0, 40, 50)))
            rows.append(flat, np.full((len(flat), 3), value, np.float32))
            known |= dict.fromkeys(flat.tolist(), value)
            if value % 20 == 0:
                store.commit()
        out, flat = np.empty((len(known), 3), np.float32), np.array(list(known))
        rows.finish(rows.begin(flat), out)
        assert (out == np.array(list(known.values()))[:, None]).all()


def test_row_numbers_of_32_bits(tmp_path):
    table = Table("item", (1 << 32) - 1, 4)
    with Store(tmp_path, [table], tail_bytes=1 << 16) as store:
        rows, high = store.rows(["item"], [1 << 33]), 1 << 31
        flat = (1 << 33) + np.array([5, high + 5, 0, high, (1 << 32) - 2, high - 2])
        rows.append(flat, np.arange(24, dtype=np.float32).reshape(6, 4))
        store.commit()
        with pytest.raises(Error, match="expected rows"):
            rows.begin([(1 << 33) + (1 << 32) - 1])
    with open(tmp_path) as reader:
        found = reader.rows("item", flat[::-1] - (1 << 33))
        assert (found == np.arange(24).reshape(6, 4)[::-1]).all()
