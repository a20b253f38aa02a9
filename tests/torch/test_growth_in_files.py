"""`grow()` of tables in files: the bits of memory, and a process that is killed or has no room."""

import errno
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from hotrow.contract.errors import Error
from hotrow.torch import TableConfig
from hotrow.torch.memory.tables import EmbeddingTables

from tests.torch.test_growth import MODES, grown
from tests.torch.test_id_files import in_files
from tests.torch.test_id_maps import ROWS, RULES, batches, collection, digest, train

LARGE = 1500  # rows, whose state gets another place
# For each number that is given, a process whose call of that number is its last one.
KILLED = """
import os, signal, sys
import torch
from hotrow.torch import HotEmbeddingBagCollection, RowwiseAdagrad, TableConfig
from hotrow.torch.memory import table_file
from hotrow.torch.memory.tables import EmbeddingTables

def run(path, last):
    config = TableConfig("user", 1500, 8, ids="any", path=path)
    embeddings = HotEmbeddingBagCollection([config], None, "resident", RowwiseAdagrad(0.1, 0.5),
                                           seed=1)
    for number in range(9):
        ids = torch.arange(150 * number, 150 * number + 150).reshape(-1, 1)
        embeddings(ids).square().sum().backward()
        embeddings.optimizer.step()
    torch.save([each.clone() for each in embeddings.contents.table("user")], path + ".pt")
    calls = 0

    def counted(holder, name):
        call = getattr(holder, name)
        def counting(*arguments):
            nonlocal calls
            calls += 1
            if calls == last:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments)
        setattr(holder, name, counting)

    for name in ("pwrite", "posix_fallocate", "fsync", "ftruncate"):
        counted(table_file.os, name)
    counted(EmbeddingTables, "_start_state")
    counted(EmbeddingTables, "_clear")
    embeddings.grow("user")

torch.set_num_threads(1)
for last in range(1, 30):
    child = os.fork()
    if not child:
        run(sys.argv[1] + str(last), last)
        os._exit(0)
    if not os.waitpid(child, 0)[1]:
        break
print(last - 1)
"""


def grown_tables(configs):
    return [config if config.name == "plain" else replace(config, num_embeddings=2 * ROWS)
            for config in configs]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("place", ["all in files", "one in memory"])
def test_bits_of_tables_that_grew_in_memory(rule, place, tmp_path):
    made, more = batches(seed=31), batches(seed=32, count=9)
    results, plain = grown("resident", rule, made)
    expected = digest(plain)
    after = train(plain, more), digest(plain)
    for mode, options in MODES.items():
        (tmp_path / mode).mkdir()
        given = in_files(tmp_path / mode)
        if place == "one in memory":
            given[0] = replace(given[0], path=None)
        found, embeddings = grown(mode, rule, made, given=given, **options)
        with embeddings:
            assert torch.equal(found, results) and digest(embeddings) == expected, mode
        if place == "all in files":
            with pytest.raises(Error, match=f"rows is {2 * ROWS}, and the table's {ROWS}"):
                collection(mode, rule, given)
            with collection(mode, rule, grown_tables(given)) as embeddings:
                assert (train(embeddings, more).tolist(), digest(embeddings)) == (
                    after[0].tolist(), after[1]), mode


@pytest.mark.parametrize("state", ["row", "element", None])
@pytest.mark.parametrize("rows", [(900, 1024), (1024, LARGE), (2048, 9)], ids=str)
def test_contents_stay_and_rows_that_come_are_zeros(rows, state, tmp_path):
    for number, name in enumerate("ab"):
        tables = EmbeddingTables(rows, 4, None if state is None else 0.5, state, paths=(
            tmp_path / f"{name}0", tmp_path / f"{name}1"), names=("first", "second")).initialise(1)
        tables.filled()
        if state is not None:
            tables.rows.state.uniform_()
        before = [[None if part is None else part.clone() for part in tables.table(each)]
                  for each in range(2)]
        with tables.growing(number, 2 * rows[number]) as (end, more):
            assert end + more == (tables.first[1] if number == 0 else len(tables.rows))
        for each in range(2):
            for found, kept, start in zip(tables.table(each), before[each], (0, 0.5), strict=True):
                if kept is not None:
                    assert len(found) == (1 + (each == number)) * len(kept)
                    assert torch.equal(found[:len(kept)], kept)
                    assert bool((found[len(kept):] == start).all())
        tables.close()
        tables = EmbeddingTables(tables.cardinalities, 4, None if state is None else 0.5, state,
                                 paths=(tmp_path / f"{name}0", tmp_path / f"{name}1"),
                                 names=("first", "second"))
        assert torch.equal(tables.table(number)[0][:rows[number]], before[number][0])
        tables.close()


@pytest.mark.filterwarnings("ignore:the file .* was not closed", "ignore:the ids of table")
def test_a_process_that_is_killed_leaves_one_of_both_tables(tmp_path):
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "user")],
                          capture_output=True, text=True, timeout=300)
    assert not done.returncode, done.stderr
    left, count = [], int(done.stdout)
    assert 6 <= count < 29
    for last in range(1, count + 1):
        path = tmp_path / f"user{last}"
        kept = torch.load(f"{path}.pt")
        for rows in (LARGE, 2 * LARGE):
            config = TableConfig("user", rows, 8, ids="any", path=path)
            try:
                embeddings = collection("resident", "rowwise", [config])
            except Error as error:
                assert f"and the table's {rows}" in str(error)
                continue
            left.append(rows)
            with embeddings:
                for found, expected in zip(embeddings.table("user"), kept, strict=True):
                    assert torch.equal(found[:LARGE], expected), last
                train(embeddings, [ids[:, :1] for ids in batches(seed=33, count=5)])
            with collection("resident", "rowwise", [config]):
                pass
    assert left == sorted(left) and len(left) == count and len(set(left)) == 2


@pytest.mark.parametrize("mode", ["resident", "scratchpipe"])
@pytest.mark.parametrize("where", ["disk", "map", "device"])
def test_growth_without_room_leaves_the_file_as_it_was(where, mode, tmp_path, monkeypatch):
    made = batches(seed=34, count=20)
    given = [replace(config, num_embeddings=LARGE) for config in in_files(tmp_path)]
    whole = collection(given=[replace(config, path=None) for config in given])
    with collection(mode, given=given) as embeddings, whole:
        train(whole, made)
        train(embeddings, made[:9])
        sizes = {each.path: os.path.getsize(each.path) for each in given}

        def refuse(*_, **__):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patched:
            match where:
                case "disk":
                    patched.setattr(os, "posix_fallocate", refuse)
                case "map":
                    patched.setattr("hotrow.torch.memory.tables.mapped_rows", refuse)
                case "device":
                    patched.setattr("hotrow.torch.collection.collection.Grouping", refuse)
            with pytest.raises((Error, OSError), match="No space left"):
                embeddings.grow("item")
        assert {path: os.path.getsize(path) for path in sizes} == sizes
        train(embeddings, made[9:], ahead=2)
        assert digest(embeddings) == digest(whole)
    with collection(mode, given=given) as embeddings:
        assert embeddings.sha256() == whole.sha256()
