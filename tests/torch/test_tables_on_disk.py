"""Tables on disk: the bits of tables in memory, commits, errors that teach, and nothing lost."""

import copy
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import hotrow
import hotrow.tables
import numpy as np
import pytest
import torch
from hotrow import Error
from hotrow.ids import Expiry, initial_rows
from hotrow.torch import Checkpoint, HotEmbeddingBagCollection, Options, TableConfig, TrainPipeline
from hotrow.torch.collection.contents import TableContents
from hotrow.torch.store.resident import ResidentStore
from safetensors.torch import save_file

from tests.torch.test_id_maps import DIM, ROWS, RULES, batches, collection, digest
from tests.torch.test_id_maps import tables as any_id_tables
from tests.torch.test_id_maps import train as train_any_ids
from tests.torch.test_invariant import NARROW
from tests.torch.training import PLANNING, TABLES, draw, train


def on_disk(folder, tables=TABLES):
    """Tables in one folder."""
    return tuple(replace(config, path=folder) for config in tables)


@pytest.fixture
def config(tmp_path):
    """A table in a folder that does not exist."""
    return TableConfig("user", 3000, 8, path=tmp_path / "tables")


def opened(config, mode="resident", optimizer="rowwise_adagrad", **options):
    """A collection of one table."""
    return HotEmbeddingBagCollection([config], None, mode, optimizer, seed=1, **options)


def step(collection, *ids):
    bags = ids[0] if ids and isinstance(ids[0], list) else torch.tensor([ids or (7,)]).T
    collection.train()(bags).square().sum().backward()
    collection.optimizer.step()
    collection.optimizer.zero_grad()


@pytest.mark.slow
@pytest.mark.parametrize("options", [
    {"mode": "resident", "ahead": 2},
    {"mode": "scratchpipe", "share": 4},
    {"mode": "scratchpipe", "share": 4, "ahead": 5, "workers": 3, "depth": 3, "look_ahead": 2},
    {"mode": "freqcache", "ahead": 3, "workers": 1},
    {"mode": "hotline", "ahead": 2},
], ids=str)
@pytest.mark.parametrize("optimizer", ["sgd", "rowwise_adagrad", "adam"])
def test_bits_of_tables_in_memory(tmp_path, optimizer, options):
    made = draw(1, 20)
    expected = train(made, optimizer=optimizer)
    found = train(made, tables=on_disk(tmp_path / "t"), optimizer=optimizer, transport="cpu",
                  **options)
    assert (found.sha256, found.losses) == (expected.sha256, expected.losses)
    with HotEmbeddingBagCollection(on_disk(tmp_path / "t"), None, "resident", optimizer) as again:
        assert again.sha256() == expected.sha256


@pytest.mark.slow
def test_bits_when_each_stage_runs_as_early_as_it_may(tmp_path):
    """Rows of a later batch are fetched before the victims of an earlier one are written, where
    the stages admit it: a victim that the later one needs is written first."""
    made = draw(1, 20)
    found = train(made, "scratchpipe", on_disk(tmp_path / "t"), "rowwise_adagrad", ahead=6,
                  transport="cpu", choose=min, share=4, depth=4, look_ahead=0)
    assert found.sha256 == train(made, optimizer="rowwise_adagrad").sha256
    assert found.figures["evictions"] and found.figures["bypasses"]


def test_commits_while_batches_are_on_their_way(tmp_path):
    """Victims of later batches were read from their slots, and are not yet in the tables."""
    made, rule, waited = draw(1, 16), "rowwise_adagrad", 0
    with hotrow.open("cpu", config=PLANNING) as device, HotEmbeddingBagCollection(
            on_disk(tmp_path / "t"), device, "scratchpipe", rule, options=Options(
                seed=3, workers=0, share=4, depth=4, look_ahead=3)) as tables, (
            HotEmbeddingBagCollection(TABLES, None, "resident", rule, options=Options(seed=3))
            ) as memory:
        tables.store.stages.choose = lambda ready: min(ready, default=-1)  # as early as it may
        for batch in made:
            tables.prefetch(batch.ids)
        for number, batch in enumerate(made):
            step(memory, batch.ids)
            step(tables, batch.ids)
            if number % 4 < 3:
                continue  # so that some of them were trained since the last commit
            for flight in tables.store.window.batches.values():
                for each in flight.transfers:
                    dirty = tables.store.storages[each.segment.group].dirty
                    waited += int(dirty[each.victim_slots.long()].sum()) * (
                        each.written_back is not None)
            tables.commit()
            with hotrow.tables.open(tmp_path / "t") as reader:
                for config in TABLES:
                    rows = reader.rows(config.name, np.arange(config.num_embeddings))
                    assert (rows == memory.contents.table(config.name)[0].numpy()).all()
    assert waited


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["resident", "scratchpipe"])
def test_tables_beside_those_in_memory(tmp_path, mode):
    """Also the random bits of rounding are those of tables that are all in memory."""
    made, rows = draw(5, 12, NARROW), []
    mixed = tuple(config if number == 1 else replace(config, path=tmp_path / "t")
                  for number, config in enumerate(NARROW))
    for tables, here in ((NARROW, "resident"), (mixed, mode)):
        rule = hotrow.torch.SGD(0.2, rounding_seed=7)
        options = {} if here == "resident" else {"device": "cpu", "preset": "tiny", "share": 2}
        with HotEmbeddingBagCollection(tables, mode=here, optimizer=rule,
                                       seed=3, **options) as each:
            for batch in made:
                each(batch.ids).square().sum().backward()
                each.optimizer.step()
                each.optimizer.zero_grad()
            each.flush()
            rows.append([each.contents.rows(name.name, torch.arange(name.num_embeddings))
                         for name in tables])
    assert all(map(torch.equal, *rows))


@pytest.mark.parametrize("mode", ["resident", "scratchpipe"])
def test_a_folder_keeps_its_rows(config, mode):
    with opened(config, mode) as first:
        step(first, 7, 2999)
        trained = first.sha256()
    second = opened(config, mode)
    assert second.sha256() == trained and [each.number for each in second.commits()] == [1]
    second.close()
    with pytest.raises(Error, match="closed"):
        step(second)
    with opened(config) as third:
        assert third.commits()[-1].number == 1, "nothing was trained, and nothing is committed"


def test_the_seed_of_a_folder_is_that_of_its_rows(config):
    opened(config).close()
    with HotEmbeddingBagCollection([config], mode="scratchpipe", optimizer="rowwise_adagrad",
                                   options=Options(seed=99)) as found:
        rows = found(torch.tensor([[5]])).detach()
    assert torch.equal(rows, torch.from_numpy(initial_rows([5], 8, 1, 3000**-0.5)))


@pytest.mark.parametrize("change, optimizer, words", [
    ({"num_embeddings": 2999}, "sgd", "rows is 3000 and 2999 was asked for"),
    ({"embedding_dim": 4}, "sgd", "dim is 8 and 4 was asked for"),
    ({"dtype": torch.float16}, "sgd", "dtype is 'float32' and 'float16' was asked for"),
    ({"name": "item"}, "sgd", r"has tables \['user'\], and \['item'\] were asked for"),
    ({}, "rowwise_adagrad", "optimizer is 'sgd' and 'rowwise_adagrad' was asked for"),
    ({"ids": "any"}, "sgd", "have the ids {'user': 'rows'}, and {'user': 'any'} were asked for"),
])
def test_other_tables_are_refused(config, change, optimizer, words):
    with opened(config, optimizer="sgd") as first:
        step(first)
        trained = first.sha256()
    with pytest.raises(Error, match=words):
        opened(replace(config, **change), optimizer=optimizer)
    with opened(config, optimizer="sgd") as again:
        assert again.sha256() == trained


def test_paths_that_cannot_be_folders(tmp_path, config):
    (tmp_path / "file").write_text("of another program")
    for path in (tmp_path / "file", tmp_path / "file" / "user", "/proc/none"):
        with pytest.raises(Error, match="name another"):
            opened(replace(config, path=path))
    assert (tmp_path / "file").read_text() == "of another program"
    for path in (3, [config.path], "a\0b"):
        with pytest.raises(Error, match="path is the name of a folder, not"):
            replace(config, path=path)


def test_two_folders_are_refused(config, tmp_path):
    with pytest.raises(Error, match="one folder, so that one commit has all rows"):
        HotEmbeddingBagCollection([config, replace(config, name="item", path=tmp_path / "other")],
                                  None, "resident")


@pytest.mark.slow
def test_one_owner(config, tmp_path):
    with opened(config):
        with pytest.raises(Error, match="trained by another process or store"):
            opened(config)
        tried = subprocess.run(
            [sys.executable, "-c", "import sys\nfrom tests.torch.test_tables_on_disk import *\n"
             "opened(TableConfig('user', 3000, 8, path=sys.argv[1]))", config.path],
            capture_output=True, text=True, timeout=600)
        assert tried.returncode and "trained by another process" in tried.stderr
    opened(config).close()


def test_a_failed_construction_gives_the_folder_back(config):
    for mode in ("elsewhere", "hotline"):
        with pytest.raises(Error, match=r"mode is|on disk, where the card does not pool rows"):
            opened(config, mode, cold="pooled" if mode == "hotline" else "gathered")
    opened(config).close()


@pytest.mark.parametrize("mode", ["resident", "scratchpipe"])
def test_a_forked_process_does_not_train_the_parents_rows(config, mode):
    with opened(config, mode, workers=0) as tables:
        child = os.fork()
        if not child:
            try:
                step(tables)
            except Error as error:
                os._exit(7 if "fork" in str(error) or "its child" in str(error) else 1)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        step(tables)


def test_whole_tables_are_refused_in_words(config):
    with opened(config, "scratchpipe") as tables:
        for call in (lambda: tables.contents.table("user"),
                     lambda: tables.embedding_bags["user"].weight):
            with pytest.raises(Error, match=r"eval\(\), or read those of a commit"):
                call()
        for call in (copy.deepcopy, copy.copy):
            with pytest.raises(Error, match=r"state_dict.. names? a commit|names a commit"):
                call(tables)
    with opened(config) as tables:
        twin = copy.deepcopy(tables)
        step(tables)
        assert twin.sha256() != tables.sha256() and twin.tables[0].path is None


def test_rows_that_were_not_trained_are_not_written(config):
    """Neither those that leave their slots untouched, nor those that a commit has written."""
    with hotrow.open("model", preset="tiny") as device, HotEmbeddingBagCollection(
        [config], device, "scratchpipe", options=Options(seed=1)) as tables:
        store = tables.disk.disk.store
        for number in range(6):
            tables(torch.arange(100 * number, 100 * number + 100)[:, None])
            tables.batches.abandon()
        with torch.no_grad():
            tables(torch.arange(500)[:, None])
        assert store.figures()["bytes_trained"] == 0
        step(tables, *range(100))
        tables.commit()
        before = store.figures()["bytes_trained"]
        assert before == 100 * 32
        for number in range(1, 6):
            step(tables, *range(100 * number, 100 * number + 100))
        tables.flush()
        assert store.figures()["bytes_trained"] == 600 * 32


def test_commits(config):
    with opened(config, "scratchpipe") as tables:
        found = {}
        for number, keep in ((1, "first"), (2, None), (3, "third"), (4, None)):
            step(tables, number)
            assert tables.commit({"step": number, "t": torch.arange(number)}, keep) == number
            found[number] = tables.sha256()
        assert [(each.number, each.keep) for each in tables.commits()] == [
            (1, "first"), (3, "third"), (4, None)]
        step(tables, 9)
        assert tables.open_commit()["step"] == 4
        dense = tables.open_commit(1)
        assert dense["step"] == 1 and dense["t"].tolist() == [0]
        assert tables.sha256() == found[1]
        assert tables.open_commit(3)["step"] == 3 and tables.sha256() == found[3]
        with pytest.raises(Error, match="has no commit 2: it has 1, 3, 4"):
            tables.open_commit(2)
        step(tables, 5)
        tables.commit(keep="other")
        tables.release("first")
        assert [each.keep for each in tables.commits()] == ["third", "other"]
        tables.prefetch(torch.tensor([[1]]))
        with pytest.raises(Error, match="in flight"):
            tables.open_commit(3)
        tables.abandon()
    with HotEmbeddingBagCollection([replace(config, path=None)], None, "resident") as tables:
        for call in (tables.commit, tables.commits, tables.open_commit):
            with pytest.raises(Error, match="give TableConfig a path"):
                call()


@pytest.mark.parametrize("dense", [np.float64(3), {"f": lambda: 0}, {1, 2, open}])
def test_what_would_not_load_is_not_committed(config, dense):
    with opened(config) as tables:
        step(tables, 1)
        number = tables.commit({"step": 1})
        step(tables, 2)
        with pytest.raises(Error, match=r"nothing was committed.*strings, lists and dicts"):
            tables.commit(dense)
        assert tables.commits()[-1].number == number
        tables.commit({"step": 2})
        assert tables.open_commit() == {"step": 2}


@pytest.mark.parametrize("mode", ["resident", "scratchpipe"])
def test_close_keeps_rows_and_what_belongs_to_them_together(config, mode):
    with opened(config, mode) as tables:
        step(tables, 1)
        tables.commit({"step": 1})
        committed = tables.sha256()
    with (pytest.warns(UserWarning, match="after commit 1, which has your parts beside it"),
          opened(config, mode) as tables):
        assert tables.open_commit() == {"step": 1} and tables.sha256() == committed
        step(tables, 2)
    with opened(config, mode) as tables:
        assert tables.sha256() == committed
        step(tables, 3)
    with opened(config, mode) as tables:
        assert tables.open_commit() is None and tables.sha256() != committed


@pytest.mark.parametrize("mode", ["resident", "scratchpipe"])
def test_state_dicts_name_a_commit(config, mode, tmp_path):
    with opened(config, mode) as tables:
        states, digests = [], []
        for number in range(4):
            step(tables, number)
            states.append(copy.deepcopy(tables.state_dict()))
            digests.append(tables.sha256())
        assert tables.state_dict() == states[-1], "nothing was trained since"
        assert list(states[0]) == ["_extra_state"]
        step(tables, 8)
        tables.load_state_dict(states[3])
        assert tables.sha256() == digests[3]
        tables.load_state_dict(states[2])
        assert tables.sha256() == digests[2]
        with pytest.raises(RuntimeError, match=r"refers to commit 1 of the tables in .*tables"):
            tables.load_state_dict(states[0])
        with pytest.raises(RuntimeError, match=r"Missing key.*_extra_state"):
            tables.load_state_dict({})
        step(tables, 9)
        last = tables.sha256()
    with opened(config, mode) as again:
        assert again.sha256() == last


@pytest.mark.slow
@pytest.mark.parametrize("before", [1, 2, 3])
def test_the_last_state_dict_stays_while_the_next_is_written(config, before):
    """Also that of an earlier process, and one to which the tables have returned."""
    with opened(config, "scratchpipe") as tables:
        for number in range(before):
            step(tables, number)
            saved, expected = copy.deepcopy(tables.state_dict()), tables.sha256()
    with opened(config, "scratchpipe") as tables:
        for _ in range(3):  # the process ends before the new state dict is on the disk
            tables.load_state_dict(saved)
            assert tables.sha256() == expected
            step(tables, 50)
            tables.state_dict()
        step(tables, 51)
        last, expected = copy.deepcopy(tables.state_dict()), tables.sha256()
        step(tables, 52)
        tables.state_dict()
        tables.load_state_dict(last)
        assert tables.sha256() == expected


def test_rows_of_tables_in_memory_load(config):
    with opened(replace(config, path=None)) as memory, opened(config, "scratchpipe") as tables:
        step(memory, 7, 2999)
        tables.load_state_dict(memory.state_dict())
        rows = torch.tensor([7, 8, 2999])
        assert torch.equal(tables.contents.rows("user", rows),
                           memory.contents.table("user")[0][rows])
        assert tables.contents.rows("user", rows[:0]).shape == (0, 8)


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.torch.test_tables_on_disk import *

folder, mode = Path(sys.argv[1]), sys.argv[2]
{call}(folder / "tables", folder / "checkpoint", mode, stop=lambda number: (
    os.kill(os.getpid(), signal.SIGKILL) if number == 11 else None))
"""


def by_checkpoint(tables, checkpoint, mode, stop=lambda number: None):
    """Train 16 batches, with a checkpoint after every 4, from the last one that exists: digest."""
    made, saved = draw(3, 16), Checkpoint(checkpoint)
    with opened_many(tables, mode) as embeddings:
        start = 0
        if saved.path.exists():
            parts = saved.load()
            embeddings.load_state_dict(parts["model"])
            embeddings.optimizer.load_state_dict(parts["optimizer"])
            start = parts["batch"]
        for number, batch in enumerate(made[start:], start):
            embeddings(batch.ids).square().sum().backward()
            stop(number)
            embeddings.optimizer.step()
            embeddings.optimizer.zero_grad()
            if number % 4 == 3:
                saved.save(model=embeddings.state_dict(), batch=number + 1,
                           optimizer=embeddings.optimizer.state_dict())
        return embeddings.sha256()


def by_commit(tables, checkpoint, mode, stop=lambda number: None):
    """Likewise, with all that belongs to the run in the commits, which batches ahead pass."""
    made = draw(3, 16)
    with opened_many(tables, mode) as embeddings:
        start, found = 0, embeddings.open_commit()
        if found is not None:
            start = found["batch"]
            embeddings.optimizer.load_state_dict(found["optimizer"])
        for number, batch in enumerate(made[start:], start):
            if number == start:
                embeddings.prefetch(batch.ids)
            if number + 1 < len(made):
                embeddings.prefetch(made[number + 1].ids)
            embeddings(batch.ids).square().sum().backward()
            stop(number)
            embeddings.optimizer.step()
            embeddings.optimizer.zero_grad()
            if number % 4 == 3:
                embeddings.commit({"batch": number + 1,
                                   "optimizer": embeddings.optimizer.state_dict()})
        return embeddings.sha256()


def opened_many(tables, mode):
    device = {} if mode == "resident" else {"device": "cpu", "preset": "tiny", "share": 4}
    return HotEmbeddingBagCollection(on_disk(tables), mode=mode, optimizer="adam", lr=0.2,
                                     seed=3, **device)


@pytest.mark.slow
@pytest.mark.parametrize("mode, call", [
    ("scratchpipe", by_checkpoint), *(  # commits: tests/tables/test_training_kills.py
        pytest.param(*case, marks=pytest.mark.long) for case in (
            ("resident", by_checkpoint), ("scratchpipe", by_commit), ("resident", by_commit)))])
def test_sigkill_and_resume(tmp_path, mode, call):
    killed = subprocess.run(
        [sys.executable, "-c", KILLED.format(call=call.__name__), str(tmp_path), mode],
        capture_output=True, text=True, timeout=300)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    found = call(tmp_path / "tables", tmp_path / "checkpoint", mode)
    assert found == call(tmp_path / "whole", tmp_path / "other", mode)


@pytest.mark.parametrize("what", ["load", "step"])
def test_a_load_or_step_that_reached_some_tables_is_not_committed(tmp_path, monkeypatch, what):
    configs = [TableConfig(name, 3000, dim, path=tmp_path / "t")
               for name, dim in (("user", 8), ("item", 4))]
    with HotEmbeddingBagCollection(
            [replace(each, path=None) for each in configs], mode="resident") as memory:
        saved = memory.state_dict()
        with HotEmbeddingBagCollection(configs, None, "resident", "sgd",
                                       options=Options(seed=1)) as tables:
            tables(torch.tensor([[7, 8]])).sum().backward()
            tables.optimizer.step()
            tables.commit()
            committed = tables.sha256()
            tables(torch.tensor([[9, 9]])).sum().backward()
            owner, name, number = ((TableContents, "assign", 2) if what == "load"
                                   else (ResidentStore, "apply", 1))
            method = getattr(owner, name)
            monkeypatch.setattr(owner, name, lambda self, *given, **named: (
                method(self, *given, **named) if given[0] not in ("item", number) else 1 // 0))
            with pytest.raises(ZeroDivisionError):
                if what == "load":
                    tables.load_state_dict(saved)
                else:
                    tables.optimizer.step()
            monkeypatch.undo()
            for call in (tables.commit, tables.optimizer.step):
                with pytest.raises(Error, match="Load a checkpoint"):
                    call()
    with HotEmbeddingBagCollection(configs, None, "resident", "sgd") as again:
        assert again.sha256() == committed


def test_figures(config):
    with opened(config, "scratchpipe") as tables, TrainPipeline(
            [torch.tensor([[number], [7]]) for number in range(9)], tables,
            lambda batch: batch) as pipeline:
        for batch in pipeline:
            tables(batch).sum().backward()
            tables.optimizer.step()
        assert pipeline.figures["disk"][0]["rows_fetched"] == 9
    with HotEmbeddingBagCollection(TABLES, None, "resident") as memory:
        assert TrainPipeline([], memory, None).figures["disk"] is None


# Tables with any ids.


def any_ids(folder, **more):
    return [replace(config, path=folder) for config in any_id_tables(**more)]


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("mode", ["resident", "scratchpipe"])
def test_any_ids_in_a_folder_that_is_opened_again(mode, rule, tmp_path):
    made = batches(seed=21)
    whole = collection("resident", rule)
    train_any_ids(whole, made)
    for part, ahead in ((made[:25], 2), (made[25:40], 0), (made[40:], 1)):
        with collection(mode, rule, any_ids(tmp_path / "t")) as embeddings:
            train_any_ids(embeddings, part, ahead)
            found = digest(embeddings)
    assert found == digest(whole)


def test_rows_that_have_not_begun_begin_after_a_restart(tmp_path):
    made = batches(seed=22, count=12)
    with collection(given=any_ids(tmp_path / "t")) as embeddings:
        train_any_ids(embeddings, made[:10])
        before = embeddings.id_maps.maps[0].items()[0]
        for ids in made[10:]:
            embeddings.prefetch(ids)
    with collection(given=any_ids(tmp_path / "t"), seed=9) as embeddings:
        assert len(embeddings.id_maps.maps[0]) > len(before)
        found, first = embeddings(made[10])[:, :DIM], made[10][:, 0].numpy().view(np.uint64)
        begun = ~np.isin(first, before)
        assert begun.any() and torch.equal(found[begun], torch.from_numpy(
            initial_rows(first[begun], DIM, 5, ROWS ** -0.5)))


def test_any_ids_after_a_kill_are_those_of_the_last_commit(tmp_path):
    made = batches(seed=23, count=9)
    with collection("scratchpipe", given=any_ids(tmp_path / "t")) as embeddings:
        train_any_ids(embeddings, made[:5])
        embeddings.commit({"batch": 5}, keep="five")
        expected = digest(embeddings)
        train_any_ids(embeddings, made[5:])
        last = digest(embeddings)
        assert embeddings.open_commit(1)["batch"] == 5
        assert digest(embeddings) == expected
        train_any_ids(embeddings, made[5:])
        assert digest(embeddings) == last
        saved = embeddings.state_dict()
        train_any_ids(embeddings, made)
        embeddings.load_state_dict(saved)
        assert digest(embeddings) == last


def test_ids_with_other_policies_are_refused(tmp_path):
    with collection(given=any_ids(tmp_path / "t")) as embeddings:
        train_any_ids(embeddings, batches(seed=24, count=9))
    with pytest.raises(Error, match=r"has expiry .*age=3.* was saved with"):
        collection(given=any_ids(tmp_path / "t", expiry=Expiry(age=3)))


@pytest.mark.parametrize("mode", ["resident", "scratchpipe"])
def test_training_over_a_published_tensor(mode, tmp_path):
    rows, shards = torch.randn(3000, 8), [tmp_path / f"{number}.safetensors" for number in (0, 1)]
    for shard, part in zip(shards, rows.split(1700), strict=True):
        save_file({"emb": part.bfloat16().contiguous(), "other": torch.ones(3)}, shard)
    before = [shard.read_bytes() for shard in shards]
    config = TableConfig("user", 3000, 8, path=tmp_path / "t", base=shards, tensor="emb")
    with opened(config, mode) as tables, opened(
            replace(config, path=None, base=(), tensor=None)) as memory:
        memory.load_state_dict({"embedding_bags.user.weight": rows.bfloat16().float()})
        for number in range(5):
            for each in (tables, memory):
                step(each, *range(number, 3000, 97))
        memory.flush()
        assert tables.sha256() == memory.sha256()
    assert [shard.read_bytes() for shard in shards] == before
    shards[0].write_bytes(before[0][:-1] + b"x")
    with pytest.raises(Error, match=r"0\.safetensors of its base has changed"):
        opened(config, mode)


@pytest.mark.parametrize("given", [
    {"base": ["a"], "path": None}, {"tensor": "emb"}, {"base": ["a", "b"]}, {"base": [3]}], ids=str)
def test_bases_that_are_none(given, config):
    with pytest.raises(Error, match="expected base as the files of a table with a path"):
        replace(config, **given)


def test_a_reader_beside_a_trainer(config):
    with opened(config, "scratchpipe") as tables:
        step(tables, 7, 8)
        tables.commit()
        with hotrow.tables.open(config.path) as reader:
            step(tables, 7, 9)
            tables.flush()
            expected = tables.contents.rows("user", torch.tensor([7, 9])).numpy()
            assert (reader.rows("user", [7, 9]) != expected).any()
            tables.commit()
            reader.refresh()
            assert (reader.rows("user", [7, 9]) == expected).all()
            assert reader.changed("user", 1)[0].tolist() == [7, 9]


def test_a_damaged_segment_is_named(config):
    with opened(config) as tables:
        step(tables, *range(200))
    path = next(Path(config.path).glob("seg-*.log"))
    content = bytearray(path.read_bytes())
    content[4096 + 100] ^= 1
    path.write_bytes(content)
    with pytest.raises(Error, match=rf"{path}.* damaged block at offset 4096"):
        opened(config)


def test_a_limit_of_memory_chooses_the_slots(tmp_path):
    config = TableConfig("user", 1 << 20, 16, path=tmp_path / "t", memory="4GB")
    with opened(config, "scratchpipe") as tables:
        plan = tables.disk.disk.plan
        assert plan.limit == 4 * 10**9 and tables.store.slots == plan.slots
    with pytest.raises(Error, match="is too little for tables of 1,048,576 rows"):
        opened(replace(config, memory="10MB"), "scratchpipe")
    with pytest.raises(Error, match="mode resident has whole tables in memory"):
        opened(config)
    for wrong in ({"path": None}, {"memory": "much"}):
        with pytest.raises(Error, match=r"leave it out|expected a size of memory"):
            replace(config, **wrong)
