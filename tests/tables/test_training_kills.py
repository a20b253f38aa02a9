"""Training that is killed, or whose disk is full, goes on with the bits of tables in memory."""

import os
import random
import shutil
import signal
import time
import traceback
from dataclasses import replace

import hotrow
import pytest
import torch
from hotrow import Error
from hotrow.kernels import native
from hotrow.torch import HotEmbeddingBagCollection, Options

from tests.support.power_loss import CREATE, HOOK, SYNC, WRITE
from tests.torch.training import PLANNING, TABLES, draw

BATCHES = 150
MADE = draw(7, BATCHES)
OPTIMIZERS = ("sgd", "rowwise_adagrad", "adam")
MODES = ("scratchpipe", "freqcache", "hotline", "resident")


def opened(folder, optimizer, mode, workers=0):
    tables = tuple(replace(config, path=folder) for config in TABLES)
    device = None if mode == "resident" else hotrow.open("cpu", config=PLANNING)
    more = {} if mode == "resident" else {"workers": workers, "depth": 3}
    return HotEmbeddingBagCollection(tables, device, mode, optimizer, 0.2,
                                     seed=3, **more)


def train(tables, number, ahead=0):
    batch = MADE[number]
    tables(batch.ids).square().sum().backward()
    for each in range(number + 1, min(number + 1 + ahead, BATCHES)):
        if each not in tables.ahead:
            tables.prefetch(MADE[each].ids)
            tables.ahead.add(each)
    tables.optimizer.step()
    tables.optimizer.zero_grad()


def in_memory(optimizer):
    """The digest before any batch, and after each."""
    with HotEmbeddingBagCollection(TABLES, None, "resident", optimizer, 0.2,
                                   options=Options(seed=3)) as tables:
        found = [tables.sha256()]
        for batch in MADE:
            tables(batch.ids).square().sum().backward()
            tables.optimizer.step()
            tables.optimizer.zero_grad()
            found.append(tables.sha256())
        return found


def start(tables, expected):
    """The batch to go on with, whose rows are those in memory."""
    parts = tables.open_commit()
    number = 0 if parts is None else parts["batch"]
    assert tables.sha256() == expected[number], number
    if parts is not None:
        tables.optimizer.load_state_dict(parts["optimizer"])
    tables.ahead = set()
    return number


def go_on(folder, optimizer, expected, drawn, ready):
    """Train, with commits, until a signal or the last batch."""
    with opened(folder, optimizer, drawn.choice(MODES), drawn.choice((0, 0, 1))) as tables:
        number, ahead = start(tables, expected), drawn.choice((0, 2))
        os.write(ready, b"%08d" % number)
        for each in range(number, BATCHES):
            train(tables, each, ahead)
            if drawn.random() < .3:
                tables.commit({"batch": each + 1, "optimizer": tables.optimizer.state_dict()},
                              keep=drawn.choice((None, None, "kept")))
                os.write(ready, b"%08d" % (each + 1))
            if drawn.random() < .1:
                tables.disk.disk.store.clean()
        tables.commit({"batch": BATCHES, "optimizer": tables.optimizer.state_dict()})
        os.write(ready, b"%08d" % BATCHES)


@pytest.mark.parametrize("kills", [
    pytest.param(3, marks=pytest.mark.slow),
    pytest.param(200, marks=[pytest.mark.long, pytest.mark.nightly, pytest.mark.timeout(3600)])])
def test_killed_at_any_moment(tmp_path, kills):
    seed, folder, runs, done = os.getpid(), tmp_path / "t", 0, 0
    drawn, threads = random.Random(seed), torch.get_num_threads()
    print("seed", seed)
    torch.set_num_threads(1)  # a child of a process with threads of PyTorch has none
    try:
        known, last = {}, BATCHES
        while done < kills:
            if last == BATCHES:
                shutil.rmtree(folder, ignore_errors=True)
                optimizer, last, runs = drawn.choice(OPTIMIZERS), 0, runs + 1
                if optimizer not in known:
                    known[optimizer] = in_memory(optimizer)
            reading, writing = os.pipe()
            child = os.fork()
            if not child:
                try:
                    go_on(folder, optimizer, known[optimizer], random.Random((seed << 16) + done),
                          writing)
                    os._exit(0)
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(3)
            os.close(writing)
            begun = os.read(reading, 8)
            assert begun and int(begun) >= last, (seed, done, begun, last)
            last = int(begun)
            time.sleep(drawn.random() * drawn.choice((.05, .5)))
            os.kill(child, signal.SIGKILL)
            status = os.waitpid(child, 0)[1]
            assert status in (0, signal.SIGKILL), (seed, done)
            while committed := os.read(reading, 8):
                last = int(committed)
            os.close(reading)
            done += status == signal.SIGKILL
        with opened(folder, optimizer, "resident") as tables:
            number = start(tables, known[optimizer])
            for each in range(number, BATCHES):
                train(tables, each)
            assert tables.sha256() == known[optimizer][-1], seed
        print(done, "kills in", runs, "runs")
    finally:
        torch.set_num_threads(threads)


@pytest.mark.long
@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", MODES)
def test_a_full_disk_leaves_the_last_commit(tmp_path, mode):
    """Each write, sync or new file in turn is the first that the disk refuses."""
    expected, left = in_memory("adam"), [0]
    library = native.native_library()

    def refuse(operation, *_):
        left[0] -= operation in (WRITE, SYNC, CREATE)
        return 28 if left[0] < 0 else 0
    hook = HOOK(refuse)
    for succeed in range(0, 40, 3):
        left[0], folder = 1 << 30, tmp_path / str(succeed)
        with opened(folder, "adam", mode) as tables:
            start(tables, expected)
            for each in range(10):
                train(tables, each)
            tables.commit({"batch": 10, "optimizer": tables.optimizer.state_dict()})
        tables = opened(folder, "adam", mode)
        assert start(tables, expected) == 10
        left[0] = succeed
        library.tables_hook(hook)
        try:
            with pytest.raises(Error, match="No space left"), tables:
                for each in range(10, BATCHES):
                    train(tables, each)
                    tables.commit({"batch": each + 1,
                                   "optimizer": tables.optimizer.state_dict()})
        finally:
            library.tables_hook(None)
        with opened(folder, "adam", "resident") as again:
            found = start(again, expected)
            assert found >= 10
            train(again, found)
            assert again.sha256() == expected[found + 1]


@pytest.mark.slow
@pytest.mark.parametrize("mode, workers, files", [
    ("scratchpipe", 0, 0), ("scratchpipe", 1, 1), *(
        pytest.param(mode, workers, files, marks=[pytest.mark.long, pytest.mark.nightly])
        for mode in MODES[:3] for workers in (0, 1) for files in range(8))])
def test_a_full_disk_takes_one_more_commit(tmp_path, mode, workers, files):
    """New files are refused after some: training stops, and `commit` has all its steps."""
    expected, left, folder = in_memory("adam"), [1 << 30], tmp_path / "t"

    def refuse(operation, *_):
        left[0] -= operation == CREATE
        return 28 if operation == CREATE and left[0] < 0 else 0
    hook, library = HOOK(refuse), native.native_library()
    library.tables_hook(hook)
    try:
        with opened(folder, "adam", mode, workers) as tables:
            start(tables, expected)
            left[0] = files
            for each in range(BATCHES):
                try:
                    train(tables, each, 2)
                except Error as error:
                    assert "is full: call commit()" in str(error)
                    break
            else:
                pytest.skip("no file was needed")
            parts = {"batch": each, "optimizer": tables.optimizer.state_dict()}
            number = tables.commit(parts)
    finally:
        library.tables_hook(None)
    with opened(folder, "adam", "resident") as again:
        assert again.disk.disk.store.number == number
        assert start(again, expected) == each > 0
        train(again, each)
        assert again.sha256() == expected[each + 1]
