"""A child of a process that trains: a call works, or is an Error, and none hangs."""

import os
import random
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
from hotrow.contract.errors import Error
from hotrow.system.forks import ForkLock, forks
from hotrow.tables import Store, Table


def in_child(call):
    """Exit code of a child: 0 if the call returns, 1 for an Error."""
    child = os.fork()
    if not child:
        code = 2
        try:
            call()
            code = 0
        except Error:
            code = 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def take(lock):
    with lock, lock:
        pass


def test_a_lock_that_another_thread_holds_is_an_error_in_a_child():
    held, free, own = ForkLock(), ForkLock(), ForkLock()
    holding, ending = threading.Event(), threading.Event()

    def hold():
        with held:
            holding.set()
            ending.wait()
    thread = threading.Thread(target=hold)
    thread.start()
    holding.wait()
    try:
        with own:
            assert [in_child(lambda lock=lock: take(lock)) for lock in (held, free, own)] == [
                1, 0, 0]
        assert in_child(lambda: sys.exit(in_child(lambda: take(held)) - 1)) == 2  # SystemExit
    finally:
        ending.set()
        thread.join()
    assert in_child(lambda: take(held)) == 0
    take(held)


def test_forks_are_counted():
    before = forks()
    assert in_child(lambda: os._exit(forks() - before)) == 1 and forks() == before


def test_a_child_changes_no_tables_of_its_parent(tmp_path):
    with Store(tmp_path, [Table("item", 100, 4)]) as store:
        store.commit(b"first", keep="name")
        store.commit(b"second")
        before = {path: path.read_bytes() for path in tmp_path.iterdir()}
        ends = [in_child(call) for call in (
            lambda: store.release("name"), store.commit, lambda: store.rollback(1), store.close)]
        assert ends == [1, 1, 1, 0]  # its copy is closed already
        assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
        with pytest.raises(Error, match="another process or store"):
            Store(tmp_path, [Table("item", 100, 4)])


ALL = 192  # calls, each of the collections' with four collections, each other one four times


@pytest.mark.parametrize("children", [
    pytest.param(30, marks=pytest.mark.slow),
    pytest.param(ALL, marks=[pytest.mark.long, pytest.mark.nightly])])
def test_children_of_a_process_whose_threads_train(children):
    seed = random.randrange(1 << 30)
    done = subprocess.run([sys.executable, Path(__file__).with_name("forked_calls.py"),
                           str(children), str(seed)], capture_output=True, text=True)
    ended = [line.rpartition(",")[::2] for line in done.stdout.splitlines()]
    assert done.returncode == 0 and len(ended) == children, (seed, done)
    assert [each for each in ended if each[1] not in "01"] == [], (seed, done.stderr)
    works = Counter(name for name, code in ended if code == "0")
    called = Counter(name for name, _ in ended)
    for name in ("card", "collection", "cached collection", "store", "reader"):
        assert works[f"new {name}"] == called[f"new {name}"] == (
            4 if children == ALL else called[f"new {name}"]), (seed, ended)
