"""Threads and memory of a collection that nobody uses, and statistics that others read."""

import gc
import os
import pickle
import sys
import threading
import time
import weakref
from multiprocessing.reduction import ForkingPickler
from operator import attrgetter

import hotrow
import pytest
import torch
from hotrow.contract.errors import Error
from hotrow.torch import HotEmbeddingBagCollection, Options, TableConfig, TrainPipeline
from hotrow.torch.store.stages import Stage, Stages


def used(workers):
    """References to the slots and tables of a collection that trained and was not closed."""
    collection = HotEmbeddingBagCollection([TableConfig("t", 2000, 16)], "model", "scratchpipe",
                                           options=Options(preset="tiny", workers=workers, seed=0))
    collection(torch.arange(16).view(16, 1)).sum().backward()
    collection.optimizer.step()
    return weakref.ref(collection.store.storages[0]), weakref.ref(collection.store.groups[0])


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1, 3])
def test_a_collection_that_nobody_closes_gives_everything_back(workers):
    before = threading.active_count()
    held = used(workers)
    for _ in range(200):
        gc.collect()
        if threading.active_count() <= before and not any(each() for each in held):
            return
        time.sleep(0.05)
    pytest.fail(f"{threading.active_count() - before} threads, "
                f"{[each() is not None for each in held]} slots and tables are left")


def test_an_epoch_that_is_garbage_ends():
    """The threads are gone when its generator waits for the batches that are in the stages."""
    ready, ended = [], []

    def epoch(stages):
        try:
            yield
        finally:
            ready.append(0)
            stages.wait(lambda: stages.through("only") == 1, "the end")
            stages.stop()
            ended.append(True)

    def begin():
        stages = Stages([Stage("only", lambda number: number < len(ready), ready.index)], workers=1)
        stages.start()
        stages.epoch = epoch(stages)
        next(stages.epoch)

    begin()
    collector = threading.Thread(target=gc.collect, daemon=True)
    collector.start()
    collector.join(20)
    assert ended


@pytest.mark.parametrize("device, cores, options, workers", [
    (None, 2, {}, 1), (None, 64, {}, 1), (None, 1, {}, 0), (None, 2, {"workers": 0}, 0),
    (None, 1, {"workers": 3}, 3), ("model", 2, {}, 0)])
def test_stages_overlap_by_default_where_there_is_a_core(monkeypatch, device, cores, options,
                                                         workers):
    monkeypatch.setattr("hotrow.torch.store.opening.usable_cores", lambda: cores)
    with HotEmbeddingBagCollection([TableConfig("t", 50, 8)], device,
                                   preset="tiny", seed=0, **options) as collection:
        assert collection.store.stages.workers == workers


def in_a_child(call):
    """The message of the error that a call raises in a child of this process, or 'none'."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            call()
            message = "none"
        except BaseException as error:
            message = f"{type(error).__name__}: {error}"
        os.write(write, message.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        message = pipe.read()
    os.waitpid(child, 0)
    return message


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("workers, expected", [
    (1, "threads of this collection's stages are in its parent"),
    (0, "the card's threads are in the process that opened it")])
def test_a_child_of_the_process_refuses_to_train(workers, expected):
    with HotEmbeddingBagCollection(
            [TableConfig("t", 50, 8)],
            options=Options(preset="tiny", workers=workers, seed=0)) as collection:
        def train(first):
            collection(torch.arange(first, first + 8).view(8, 1)).sum().backward()
            collection.optimizer.step()

        train(0)
        assert expected in in_a_child(lambda: train(20))
        train(20)  # and the parent trains on


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("mode", ["resident", "hotline", "scratchpipe", "freqcache"])
def test_a_child_of_the_process_writes_to_no_file_of_its_parent(tmp_path, mode):
    """Its slots hold rows that its parent has trained since."""
    def made(path, **options):
        return HotEmbeddingBagCollection([TableConfig("t", 50, 8, path=path)],
                                         seed=0, **options)

    def train(collection, first):
        collection(torch.arange(first, first + 8).view(8, 1)).square().sum().backward()
        collection.optimizer.step()

    device = {} if mode == "resident" else {"device": "model", "preset": "tiny", "workers": 0}
    with made(tmp_path / "t", mode=mode, **device) as tables, made(None, mode="resident") as other:
        if mode == "hotline":
            tables.learn({"t": range(20)})
        saved = {key: each.clone() for key, each in other.state_dict().items()}
        train(tables, 0)
        calls = [lambda: train(tables, 4), lambda: tables.load_state_dict(saved)]
        for call in calls if mode == "resident" else [*calls, tables.flush, tables.state_dict]:
            assert "was forked from it" in in_a_child(call)
        train(tables, 2)
        for first in 0, 2:
            train(other, first)
        assert tables.sha256() == other.sha256()


@pytest.mark.slow
def test_statistics_are_read_while_workers_plan():
    """Every lookup is counted once, whoever reads."""
    interval, done = sys.getswitchinterval(), threading.Event()
    tables, rows, count = 32, 500, 20
    generator = torch.Generator().manual_seed(0)
    batches = [(rows * torch.rand(32, tables, generator=generator) ** 3).long()
               for _ in range(count)]
    collection = HotEmbeddingBagCollection(
        [TableConfig(f"t{number}", rows, 4) for number in range(tables)], "model", "scratchpipe",
        options=Options(preset="alveo-u55c", workers=2, seed=0))

    def read():
        while not done.is_set():
            collection.table_statistics, collection.statistics  # noqa: B018

    reader = threading.Thread(target=read)
    sys.setswitchinterval(1e-5)
    try:
        reader.start()
        for number, ids in enumerate(batches):
            for coming in batches[number + collection.store.waiting:number + 4]:
                collection.prefetch(coming)
            collection(ids).sum().backward()
            collection.optimizer.step()
    finally:
        sys.setswitchinterval(interval)
        done.set()
        reader.join()
    found = collection.table_statistics.values()
    collection.close()
    assert sum(each["lookups"] for each in found) == count * 32 * tables


@pytest.mark.parametrize("read", ["memory", "gradients"])
def test_what_is_staged_is_read_between_steps(read):
    """A thread that read the `grad` that another removes would end the process."""
    with trained([], **CARD) as tables:
        def look():
            found = getattr(tables, read)
            seen.append(found() if callable(found) else found)

        seen, thread = [], threading.Thread(target=look)
        with tables.lifecycle.lock:
            thread.start()
            thread.join(0.2)
            assert not seen
        thread.join()
        assert seen


def trained(batches, **options):
    tables = HotEmbeddingBagCollection([TableConfig("t", 2000, 16)], lr=0.1,
                                       seed=0, **options)
    for ids in batches:
        tables(ids).square().sum().backward()
        tables.optimizer.step()
    return tables


BATCHES = [torch.randint(2000, (32, 1), generator=torch.Generator().manual_seed(seed))
           for seed in range(20)]
CARD = {"device": "cpu", "mode": "scratchpipe", "workers": 2}


@pytest.mark.slow
def test_a_weight_shows_trained_rows_of_a_collection_that_is_gone():
    held = trained(BATCHES, **CARD).embedding_bags["t"].weight
    gc.collect()
    assert torch.equal(held, trained(BATCHES, mode="resident").embeddings["t"].weight)


def test_a_digest_is_of_trained_rows():
    with trained(BATCHES, **CARD) as tables:
        assert tables.sha256() == trained(BATCHES, mode="resident").sha256()


def test_tables_that_another_process_gets_train_on():
    """`multiprocessing` moves the memory of the tensors that it sends."""
    with trained(BATCHES[:10], **CARD) as tables:
        copied = pickle.loads(bytes(ForkingPickler.dumps(tables)))  # nothing shared
        assert copied.sha256() == tables.sha256()
        for ids in BATCHES[10:]:
            tables(ids).square().sum().backward()
            tables.optimizer.step()
        assert tables.sha256() == trained(BATCHES, mode="resident").sha256()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lifecycle.reset", "learn"])
def test_slots_move_between_batches_only(name, monkeypatch):
    """Whatever thread asks for it: rows keep their bits, or the call is refused."""
    ended, unexpected = threading.Event(), []

    def call():
        while not ended.is_set():
            try:
                attrgetter(name)(tables)()
            except Error:
                continue
            except BaseException as error:
                unexpected.append(error)

    thread = threading.Thread(target=call)
    try:
        with trained([], **CARD) as tables, TrainPipeline(BATCHES, tables, lambda _: _) as pipeline:
            checked = tables.store.window.need_idle

            def need_idle(purpose):
                checked(purpose)
                time.sleep(0.05)  # in which another batch may come

            monkeypatch.setattr(tables.store.window, "need_idle", need_idle)
            thread.start()
            time.sleep(0.02)
            for ids in pipeline:
                tables(ids).square().sum().backward()
                tables.optimizer.step()
            ended.set()
            thread.join()
            assert tables.sha256() == trained(BATCHES, mode="resident").sha256()
    finally:
        ended.set()
    assert not unexpected


@pytest.mark.parametrize("mode", ["hotline", "scratchpipe", "freqcache"])
def test_a_second_collection_is_refused_before_the_first_loses_its_slots(mode):
    options = {"lr": 0.1, "seed": 0}
    with hotrow.open("model", preset="tiny") as device:
        tables = HotEmbeddingBagCollection([TableConfig("t", 2000, 16)], device, mode,
                                           **options)
        if mode == "hotline":
            tables.learn({"t": range(100)})
        for ids in BATCHES[:2]:
            tables(ids % 100).square().sum().backward()
            tables.optimizer.step()
            with pytest.raises(Error, match="the device has tables already"):
                HotEmbeddingBagCollection([TableConfig("u", 20, 16)], device, mode)
        expected = trained([ids % 100 for ids in BATCHES[:2]], mode="resident")
        assert tables.sha256() == expected.sha256()
        tables.close()


def test_to_close_from_another_thread_waits_for_the_batch():
    tables, said = trained([], **CARD), []

    def train():
        try:
            with TrainPipeline(BATCHES * 50, tables, lambda _: _) as pipeline:
                for ids in pipeline:
                    tables(ids).sum().backward()
                    tables.optimizer.step()
        except BaseException as error:
            said.append(error)

    thread = threading.Thread(target=train)
    thread.start()
    time.sleep(0.1)
    tables.close()
    thread.join()
    assert not said or isinstance(said[0], Error), said
