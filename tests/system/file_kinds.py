"""Every kind of file that keeps state: how it is saved, and what is read from it."""

import json
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from hotrow.ids import Expiry, IdMap, LeastCount
from hotrow.ids.log import EventLog
from hotrow.tables import FileBase, Store, Table
from hotrow.tables import open as open_tables
from hotrow.torch import Checkpoint, HotEmbeddingBagCollection, Options, TableConfig
from hotrow.torch.collection.id_batches import TableChanges

TABLE = Table("item", 300, 8, seed=3, bound=0.5, state="row", initial_state=0.25)
ROWS = np.arange(TABLE.rows)


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Parameters
    ----------
    save : callable
        save(path, step) writes the state of a step, in the place of an older one.
    read : callable
        read(path) returns what is there, which differs from step to step.
    """

    save: Any
    read: Any


def _map(step):
    made = IdMap(40, LeastCount(1, width=8), Expiry(age=1))
    for number in range(step % 3, 3 + step % 5):
        made.done(made.plan(np.arange(number, 2 * number + 3)).number)
    return made


def _read_map(path):
    return {name: part.tolist() for name, part in IdMap.load(path).state().items()}


def _save_changes(path, step):
    numbers = torch.arange(4)
    TableChanges(step, step + 1, numbers, numbers + 1, torch.full((4, 3), step + 0.5),
                 numbers[:1].clone()).save(path)


def _read_changes(path):
    found = TableChanges.load(path)
    return [each.tolist() if torch.is_tensor(each) else each for each in vars(found).values()]


def _save_run(path, step):
    """As `hotrow train` does, with ids of a map, state and settings."""
    with HotEmbeddingBagCollection([TableConfig("a", 9, 2, ids="any")], mode="resident", lr=0.1,
                                   optimizer="adagrad", options=Options(seed=0)) as tables:
        tables(torch.arange(3)[:, None] + step).sum().backward()
        tables.optimizer.step()
        Checkpoint(path).save(rows=tables.state_dict(), optimizer=tables.optimizer.state_dict(),
                              settings={"lr": 0.1, "ids": ["a"]}, batch=step)


def _plain(part):
    if isinstance(part, dict):
        return {name: _plain(each) for name, each in part.items()}
    if isinstance(part, list | tuple):
        return [_plain(each) for each in part]
    return part.tolist() if torch.is_tensor(part) else part


def _save_store(folder, step):
    with Store(folder, [TABLE], tail_bytes=1 << 16, segment_blocks=4) as store:
        rows = store.rows(["item"], [0])
        for value in range(4):
            rows.append(ROWS, np.full((len(ROWS), 8), step + value, np.float32),
                        np.full(len(ROWS), step, np.float32))
        store.commit(f"dense {step}".encode(), step)


def _read_store(folder):
    """Rows and state, what belongs to the commit, and the commits, by trainer and reader."""
    out, side = np.empty((len(ROWS), 8), np.float32), np.empty(len(ROWS), np.float32)
    with Store(folder, [TABLE], tail_bytes=1 << 16, segment_blocks=4) as store:
        rows = store.rows(["item"], [0])
        rows.finish(rows.begin(ROWS), out, side)
        found = [out.tolist(), side.tolist(), store.dense(),
                 [(each.number, each.step) for each in store.commits()]]
        with open_tables(folder) as reader:
            assert [part.tolist() for part in reader.rows("item", ROWS, state=True)] == found[:2]
    return found


def _save_old_table(path, step):
    """A table of the format "hotrow table 1", whose rows have no checksum."""
    padded = -(-TABLE.rows // 1024) * 1024
    header = {"format": "hotrow table 1", "table": "item", "rows": TABLE.rows, "dim": 8,
              "dtype": "float32", "elements": 8, "state": "row", "optimizer": "sgd", "page": 4096,
              "filled": True, "closed": True}
    path.write_bytes((json.dumps(header) + "\n").ljust(4096).encode()
                     + np.full((padded, 9), step, np.float32).tobytes())


def _read_old_table(path):
    table = Table("item", TABLE.rows, 8, optimizer="sgd", state="row", base=FileBase(path))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kept = table.kept()["base"]
    return [kept["files"][0][name] for name in ("rows", "dtype", "offset", "state", "row_bytes")]


KINDS = {
    "map.npz": Kind(lambda path, step: _map(step).save(path), _read_map),
    "log.npy": Kind(lambda path, step: _map(step).log.save(path),
                    lambda path: EventLog.load(path).tolist()),
    "changes.npz": Kind(_save_changes, _read_changes),
    "changes.safetensors": Kind(_save_changes, _read_changes),
    "run.pt": Kind(_save_run, lambda path: _plain(Checkpoint(path).load())),
    "tables": Kind(_save_store, _read_store),
    "old.table": Kind(_save_old_table, _read_old_table),
}
