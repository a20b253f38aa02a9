"""Calls of the compiled library whose allocations fail, from the first, the second, ... on.

A program that runs with `failing_new.cpp` as LD_PRELOAD. It prints how often each call failed.
"""

import ctypes
import tempfile
from pathlib import Path

import hotrow
import numpy as np
import torch
from hotrow.ids import Expiry, IdMap
from hotrow.kernels import copying, pooling, updating
from hotrow.kernels.grouping import Grouper
from hotrow.kernels.library import library
from hotrow.kernels.whole_tables import TableFeatures
from hotrow.operands.results import RowList
from hotrow.tables import Store, Table
from hotrow.tables import open as open_tables
from hotrow.torch import RowwiseAdagrad

memory = ctypes.CDLL(None)
ROWS, DIM = 50_000, 24


def passes():
    """(name of the pass, a call, what it changes)"""
    torch.set_num_threads(3)
    slots = torch.randperm(ROWS, generator=torch.Generator().manual_seed(1)).int()
    rows, source = torch.zeros(ROWS, DIM), torch.ones(ROWS, DIM)
    state, held = torch.zeros(ROWS), torch.zeros(ROWS, dtype=torch.int32)
    dirty = torch.zeros(ROWS, dtype=torch.bool)
    ids = IdMap(ROWS, expiry=Expiry(age=1), threads=3)
    ids.done(ids.plan(np.arange(ROWS - 1)).number)
    layout = pooling.BagLayout(1, ROWS, DIM, mean=torch.ones(1, dtype=torch.bool))
    groups = Grouper(ROWS).group(slots)
    zero, grid = torch.zeros(1, dtype=torch.int64), slots.view(-1, 1)
    of = TableFeatures(source, Grouper(ROWS), zero, zero, zero + ROWS, zero, DIM,
                       torch.ones(1, dtype=torch.bool))
    out = torch.empty(ROWS, DIM)
    yield "copy_rows", lambda: copying.copy_rows(rows, source, slots), [rows]
    yield "update", lambda: updating.update_rows(
        rows, slots, source, RowwiseAdagrad(0.1), state), [rows, state]
    yield "assign_slots", lambda: copying.assign_slots(
        held, dirty, slots, torch.arange(ROWS)), [held]
    yield "pool_forward", lambda: pooling.pool_bags(source, slots, layout), []
    yield "pool_backward", lambda: pooling.sum_gradients(source, groups, layout), []
    yield "look_up", lambda: of.look_up(grid, None, None, out), []
    yield "pool_rows", lambda: of.pool_rows(slots, None, None, out), []
    yield "sum_rows", lambda: of.sum_rows(slots, None, None, source, out), []
    plain = TableFeatures(rows, Grouper(ROWS), zero, zero, zero + ROWS, zero, DIM)
    yield "step_whole", lambda: plain.step(
        slots, None, source, RowwiseAdagrad(0.1), state, torch.empty(6 * ROWS + 32)), [rows, state]
    yield "id_map_find", lambda: ids.find(np.arange(ROWS)), []
    yield "id_map_expire", lambda: ids.plan(np.arange(ROWS, ROWS + 9)), [
        torch.from_numpy(ids._index.free)]


def fail_in(name, allocations):
    """Let allocations fail in the next calls of a pass; the list gets how many did."""
    loaded = library()
    function, failed = getattr(loaded, name), []

    def short(*arguments):
        memory.fail_after(allocations)
        try:
            return function(*arguments)
        finally:
            failed.append(memory.fail_never())
    setattr(loaded, name, short)
    return failed, lambda: setattr(loaded, name, function)


for name, call, changed in passes():
    raised = 0
    for allocations in range(1000):
        before = [each.clone() for each in changed]
        failed, restore = fail_in(name, allocations)
        try:
            call()
        except MemoryError:
            raised += 1
            assert failed[0] and all(map(torch.equal, before, changed)), name
        finally:
            restore()
        if not failed[0]:
            break
    print(name, 1, raised, flush=True)

for threads in (1, 3):
    for name in ("gather", "scatter", "plan", "observe", "split"):
        raised = allocations = 0
        while True:
            card = hotrow.open("cpu", slots=1 << 12, threads=threads, timeout=20)
            weights = hotrow.empty((1000, 16), np.float32)
            card.register_table(weights)
            listed = RowList(np.zeros(20_000, np.uint32), np.arange(20_000, dtype=np.uint32) % 1000)
            out = hotrow.empty((20_000, 16), np.float32)
            arguments = {"gather": (listed, out), "scatter": (RowList(
                np.zeros(1000, np.uint32), np.arange(1000, dtype=np.uint32)), out[:1000])}.get(
                    name, (np.arange(20_000).reshape(-1, 1) % 1000,))
            memory.fail_after(allocations)
            try:
                getattr(card, name)(*arguments)
            except (hotrow.Error, MemoryError):
                raised += 1
            failed = memory.fail_never()
            card.close()
            if not failed:
                break
            allocations += 1 + allocations // 2
        print(name, threads, raised, flush=True)

TABLE, NUMBERS = Table("item", 3000, 8), np.arange(3000)


def opened(folder):
    store = Store(folder, [TABLE], tail_bytes=1 << 16, segment_blocks=4)
    return store, store.rows(["item"], [0])


def append(rows, value):
    rows.append(NUMBERS, np.full((len(NUMBERS), 8), value, np.float32))


def look_up(rows):
    out = np.empty((len(NUMBERS), 8), np.float32)
    rows.finish(rows.begin(NUMBERS), out)
    assert out.min() == out.max(), (out.min(), out.max())


for name, call in {
        "append": lambda store, rows: append(rows, 3),
        "commit": lambda store, rows: (append(rows, 3), store.commit()),
        "look_up": lambda store, rows: look_up(rows),
        "rollback": lambda store, rows: store.rollback(1)}.items():
    raised = allocations = 0
    while True:
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            store, rows = opened(Path(folder))
            with store:
                for value in (1, 2):
                    append(rows, value)
                    store.commit(keep=str(value))
                memory.fail_after(allocations)
                try:
                    call(store, rows)
                except (hotrow.Error, MemoryError):
                    raised += 1
                failed = memory.fail_never()
                try:  # the store goes on with whole rows, or takes none
                    append(rows, 4)
                    look_up(rows)
                    store.commit()
                except hotrow.Error:
                    pass
            with open_tables(folder) as reader:
                found = reader.rows("item", NUMBERS)
                assert found.min() == found.max() in (2, 3, 4), (name, allocations, found)
                reader.verify()
        if not failed:
            break
        allocations += 1 + allocations // 2
    print(f"store_{name}", 1, raised, flush=True)
