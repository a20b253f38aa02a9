"""Tables in files: the bits of tables in memory, errors that teach, and nothing lost."""

import copy
import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import hotrow
import pytest
import torch
from hotrow import Error
from hotrow.kernels.library import library
from hotrow.torch import Checkpoint, HotEmbeddingBagCollection, TableConfig, TrainPipeline
from hotrow.torch.collection.contents import TableContents
from hotrow.torch.store.resident import ResidentStore

from tests.torch.test_invariant import NARROW
from tests.torch.training import TABLES, draw, train


def in_files(folder, tables=TABLES):
    """Tables in files of a folder, but the second, which stays in memory beside them."""
    return tuple(config if number == 1 else replace(config, path=folder / config.name)
                 for number, config in enumerate(tables))


@pytest.fixture
def config(tmp_path):
    """A table in a file that does not exist."""
    return TableConfig("user", 3000, 8, path=tmp_path / "user")


def opened(config, optimizer="rowwise_adagrad", **options):
    """A collection of one table, in mode resident."""
    return HotEmbeddingBagCollection([config], None, "resident", optimizer, seed=1, **options)


@pytest.mark.parametrize("options", [
    {"mode": "resident", "ahead": 2},
    {"mode": "scratchpipe", "share": 4},
    {"mode": "scratchpipe", "share": 4, "ahead": 5, "workers": 3, "depth": 3, "look_ahead": 2},
    {"mode": "freqcache", "ahead": 3, "workers": 1},
    {"mode": "hotline", "ahead": 2},
], ids=str)
@pytest.mark.parametrize("optimizer", ["rowwise_adagrad", "adam"])
def test_bits_of_tables_in_memory(tmp_path, optimizer, options):
    batches = draw(1, 20)
    expected = train(batches, optimizer=optimizer)
    transport = "cpu" if library() else "model"
    found = train(batches, tables=in_files(tmp_path), optimizer=optimizer, transport=transport,
                  **options)
    assert (found.sha256, found.losses) == (expected.sha256, expected.losses)
    # The files have the rows that were trained, and the state beside them.
    again = HotEmbeddingBagCollection(in_files(tmp_path), None, "resident", optimizer, seed=9)
    for config in (TABLES[0], TABLES[2]):
        fresh = HotEmbeddingBagCollection([config], None, "resident", optimizer, seed=3)
        assert not torch.equal(again.table(config.name)[0], fresh.table(config.name)[0])
        assert bool(again.table(config.name)[1].any())


def test_random_bits_of_rounding_are_those_of_memory(tmp_path):
    batches, rule = draw(5, 12, NARROW), hotrow.torch.SGD(0.2, rounding_seed=7)
    expected = train(batches, optimizer=rule, tables=NARROW)
    rule = hotrow.torch.SGD(0.2, rounding_seed=7)
    found = train(batches, optimizer=rule, tables=in_files(tmp_path, NARROW), mode="scratchpipe",
                  share=4)
    assert found.sha256 == expected.sha256


def test_a_file_keeps_its_rows(config):
    with opened(config) as first:
        first(torch.tensor([[7], [2999]])).sum().backward()
        first.optimizer.step()
        trained = first.sha256()
    assert not list(Path(config.path).parent.glob(".*"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        second = opened(config)
    assert second.sha256() == trained
    second.close()
    with pytest.raises(Error, match="closed"):
        train_once(second)
    assert second.eval()(torch.tensor([[7]])).shape == (1, 8)


def train_once(collection):
    collection.train()(torch.tensor([[7]])).sum().backward()
    collection.optimizer.step()


def test_all_blocks_are_allocated(config):
    with opened(config):
        about = os.stat(config.path)
        assert about.st_blocks * 512 >= about.st_size > 3000 * 36


@pytest.mark.parametrize("change, words", [
    ({"num_embeddings": 2999}, "rows is 3000, and the table's 2999"),
    ({"embedding_dim": 4}, "dim is 8, and the table's 4"),
    ({"dtype": torch.float16}, "dtype is 'float32', and the table's 'float16'"),
    ({"name": "item"}, "table is 'user', and the table's 'item'"),
])
def test_another_table_is_refused(config, change, words):
    opened(config).close()
    with pytest.raises(Error, match=f"{config.path}.*{words}"):
        opened(replace(config, **change))
    opened(config).close()


def test_state_of_another_optimizer_is_refused(config):
    opened(config).close()
    with pytest.raises(Error, match="optimizer is 'rowwise_adagrad', and the table's 'sgd'"):
        opened(config, "sgd")


@pytest.mark.parametrize("contents, words", [
    (b"rows of another program", "is no table of hotrow"),
    (b'["list"]', "is no table of hotrow"),
    (b"\xff\xfe" * 9000, "is no table of hotrow"),
])
def test_other_files_are_refused_and_stay(config, contents, words):
    Path(config.path).write_bytes(contents)
    with pytest.raises(Error, match=words):
        opened(config)
    assert Path(config.path).read_bytes() == contents


@pytest.mark.parametrize("cut", [1, 5000, -4096])
def test_a_file_of_another_size_is_refused(config, cut):
    opened(config).close()
    os.truncate(config.path, os.path.getsize(config.path) - cut)
    with pytest.raises(Error, match=r"user'? has .* bytes, and its header promises"):
        opened(config)


def test_paths_that_cannot_be_files(tmp_path, config):
    for path, words in ((tmp_path, "name a file in that folder"),
                        (tmp_path / "none" / "user", "make its folder")):
        with pytest.raises(Error, match=words):
            opened(replace(config, path=path))
    os.mkfifo(tmp_path / "pipe")
    for path, words in (("", "name a file in that folder"),
                        (tmp_path / "pipe", "a device or a pipe")):
        with pytest.raises(Error, match=words):
            opened(replace(config, path=path))
    assert (tmp_path / "pipe").exists()
    for path in (3, [config.path], "a\0b"):
        with pytest.raises(Error, match="path is the name of a file, not"):
            replace(config, path=path)
    (tmp_path / "file").touch()
    with pytest.raises(Error, match="its folder is a file"):
        opened(replace(config, path=tmp_path / "file" / "user"))


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_a_file_that_may_not_be_written(config, monkeypatch, number):
    def refuse(*_):
        raise OSError(number, os.strerror(number))
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(Error, match="this user may write"):
        opened(config)


def test_no_space_is_an_error_before_rows_are_mapped(config, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(Error, match=r"needs [\d,]+ bytes, and the disk has [\d,]+ free"):
        opened(config)
    assert not Path(config.path).exists()


@pytest.mark.slow
def test_one_owner(config, tmp_path):
    with opened(config):
        with pytest.raises(Error, match="in use by another process or by another table"):
            opened(config)
        os.link(config.path, tmp_path / "link")
        with pytest.raises(Error, match="in use"):
            opened(replace(config, path=tmp_path / "link"))
        tried = subprocess.run(
            [sys.executable, "-c", "import sys\nfrom tests.torch.test_table_files import *\n"
             "opened(TableConfig('user', 3000, 8, path=sys.argv[1]))", config.path],
            capture_output=True, text=True, timeout=120)
        assert tried.returncode and "in use by another process" in tried.stderr
    opened(config).close()


def test_one_path_of_two_tables(config, tmp_path):
    (tmp_path / "link").symlink_to(config.path)
    for path in (config.path, tmp_path / "link"):
        with pytest.raises(Error, match="'user' and 'item' have one path"):
            HotEmbeddingBagCollection([config, replace(config, name="item", path=path)], None,
                                      "resident")


def test_a_failed_construction_gives_files_back(config, monkeypatch):
    with pytest.raises(Error, match="mode is"):
        HotEmbeddingBagCollection([config], None, "elsewhere")
    assert not Path(config.path).exists()
    opened(config).close()
    with pytest.raises(Error, match="mode is"):
        HotEmbeddingBagCollection([config], None, "elsewhere", "rowwise_adagrad")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        opened(config).close()


def test_a_process_that_ended_while_it_drew_rows(config):
    opened(config).close()
    header = json.loads(Path(config.path).read_bytes()[:4096])
    assert header["filled"] and header["closed"] and header["rows"] == 3000
    with open(config.path, "r+b") as file:
        file.write(json.dumps({**header, "filled": False}).ljust(4096).encode())
        file.write(b"\x7f" * 9000)
    expected = HotEmbeddingBagCollection([replace(config, path=None)], None, "resident",
                                         "rowwise_adagrad", seed=1)
    with opened(config) as found:
        assert found.sha256() == expected.sha256()


def test_a_forked_process_does_not_train_the_parents_rows(config):
    with opened(config) as collection:
        child = os.fork()
        if not child:
            try:
                train_once(collection)
            except Error as error:
                os._exit(7 if "forked" in str(error) else 1)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_copies_are_in_memory(config):
    with opened(config) as collection:
        twin = copy.deepcopy(collection)
        train_once(collection)
        assert twin.sha256() != collection.sha256() and twin.tables[0].path is None


def test_a_page_that_the_disk_does_not_give(config):
    """The system would end the process at the first use of such a page."""
    with opened(config) as collection:
        size = os.path.getsize(config.path)
        os.truncate(config.path, size // 2)
        with pytest.raises(Error, match=f"row .* cannot be read from its file.*{config.path}"):
            collection(torch.tensor([[2999]]))
        os.truncate(config.path, size)
        train_once(collection)


def test_figures_of_reads(tmp_path):
    """Reads, and those in which training waited, on a clock of steps of one second."""
    with hotrow.open("model", preset="tiny") as device, HotEmbeddingBagCollection(
            in_files(tmp_path), device, seed=1) as collection:
        ticks = iter(range(10_000))
        collection.store.reads.clock = lambda: float(next(ticks))
        batches = draw(1, 6)
        with TrainPipeline(batches, collection, lambda batch: batch.ids) as pipeline:
            for batch in pipeline:
                collection(batch.ids).sum().backward()
                collection.optimizer.step()
            figures, reads = pipeline.figures, collection.store.reads
            assert figures["read"] == reads.seconds >= reads.exposed > 0
            assert figures["read_hidden"] == 1 - reads.exposed / reads.seconds
            reads.exposed = reads.seconds / 4
            assert pipeline.figures["read_hidden"] == 0.75
    with HotEmbeddingBagCollection(TABLES, None, "resident") as collection:
        assert TrainPipeline([], collection, None).figures["read_hidden"] is None


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.torch.test_table_files import *

folder, mode = Path(sys.argv[1]), sys.argv[2]
resumable(folder / "tables", folder / "checkpoint", mode, stop=lambda number: (
    os.kill(os.getpid(), signal.SIGKILL) if number == 11 else None))
"""


def resumable(tables, checkpoint, mode, stop=lambda number: None):
    """Train 16 batches, with a checkpoint after every 4, from the last one that exists: digest."""
    batches, saved = draw(3, 16), Checkpoint(checkpoint)
    device = None if mode == "resident" else hotrow.open("model", preset="tiny")
    with HotEmbeddingBagCollection(in_files(tables), device, mode, "adam", 0.2, seed=3,
                                   **({} if device is None else {"share": 4})) as collection:
        start = 0
        if saved.path.exists():
            parts = saved.load()
            collection.load_state_dict(parts["model"])
            collection.optimizer.load_state_dict(parts["optimizer"])
            start = parts["batch"]
        for number, batch in enumerate(batches[start:], start):
            collection(batch.ids).square().sum().backward()
            stop(number)
            collection.optimizer.step()
            collection.optimizer.zero_grad()
            if number % 4 == 3:
                saved.save(model=collection.state_dict(), batch=number + 1,
                           optimizer=collection.optimizer.state_dict())
        collection.flush()
        return collection.sha256()


@pytest.mark.parametrize("mode", [pytest.param("resident", marks=pytest.mark.long),
                                  pytest.param("scratchpipe", marks=pytest.mark.slow)])
def test_sigkill_and_resume(tmp_path, mode):
    (tmp_path / "tables").mkdir()
    (tmp_path / "whole").mkdir()
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), mode],
                            capture_output=True, text=True, timeout=300)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    with pytest.warns(UserWarning, match="was not closed by the process that trained it"):
        found = resumable(tmp_path / "tables", tmp_path / "checkpoint", mode)
    assert found == resumable(tmp_path / "whole", tmp_path / "other", mode)


@pytest.mark.parametrize("what", ["load", "step"])
def test_files_of_a_load_or_step_that_reached_some_tables_are_not_complete(
        tmp_path, monkeypatch, what):
    configs = [TableConfig(name, 3000, dim, path=tmp_path / name)
               for name, dim in (("user", 8), ("item", 4))]
    with HotEmbeddingBagCollection(configs, None, "resident", "sgd", seed=1) as collection:
        saved = {name: each.clone() for name, each in collection.state_dict().items()}
        collection(torch.tensor([[7, 8]])).sum().backward()
        owner, name, number = ((TableContents, "assign", 2) if what == "load"
                               else (ResidentStore, "apply", 1))
        method = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda self, *given, **named: (
            method(self, *given, **named) if given[0] not in ("item", number) else 1 // 0))
        with pytest.raises(Error, match=r"'user', 'item' were loaded|not reach the rows of 'item'"):
            if what == "load":
                collection.load_state_dict(saved)
            else:
                collection.optimizer.step()
    monkeypatch.undo()
    with pytest.warns(UserWarning, match="was not closed by the process that trained it"):
        HotEmbeddingBagCollection(configs, None, "resident", "sgd").close()


def test_a_copy_with_holes_is_allocated(config, tmp_path):
    """A write into a hole of a full disk would end the process."""
    opened(config).close()
    size = os.path.getsize(config.path)
    with open(config.path, "rb") as file, open(tmp_path / "copy", "wb") as holes:
        holes.write(file.read(4096))
        holes.truncate(size)
    shutil.move(tmp_path / "copy", config.path)
    assert os.stat(config.path).st_blocks * 512 < size
    with opened(config):
        assert os.stat(config.path).st_blocks * 512 >= size


def test_rows_are_read_for_any_place_and_width():
    """Pages of rows that cross pages, of spans beside memory, and of refused rows."""
    from hotrow.kernels import pages

    rng = random.Random(4)
    for width in (1, 12, 100, 1500):
        array = torch.zeros(4000, width)
        spans = torch.tensor([[0, 1024], [2048, 3072]])
        rows = torch.tensor([rng.randrange(4000) for _ in range(200)])
        pages.read_rows(array, rows.int(), spans)
        pages.read_rows(array, rows[:0], spans)
        for wrong in (-1, 4000):
            with pytest.raises(Error, match=f"row {wrong} at position 3 of 5"):
                pages.read_rows(array, torch.tensor([1, 2, 3, wrong, 4]), spans)
