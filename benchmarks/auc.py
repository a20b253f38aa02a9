"""AUC at equal memory: exact ids, ids modulo rows, maps of ids, TorchRec's managed collisions.

    HOTROW_SHARED_DATA=FOLDER python -m benchmarks.auc --share 0.25 --seeds 5

Each sample is predicted once, before the model trains on it, in the order of the log; the AUC rates
the second half. Every method trains the same DLRM, with tables by row-wise Adagrad. A seed gives
the model, the first values of the rows, and the hashes that the log's values have as ids. A method
has `--share` of the bytes of exact ids for the rows of a table, their state and what finds them;
tables of few ids have a row for each of them in every method. The logs:

online_retail   purchases of known customers: the label is 1 for the item that was bought, and 0 for
                an item in its place, drawn uniformly from those that were bought before.
criteo          the head of a log of clicks, 1000 lines: far too few to rank the methods.
"""

import argparse
import os
from pathlib import Path
from statistics import mean, pstdev

import numpy as np
import torch
from hotrow.command.options import positive, rate
from hotrow.ids import Expiry, IdMap, LeastCount, initial_rows
from hotrow.ids.initial import mixed
from hotrow.torch.collection.id_maps import KEPT
from hotrow.torch.memory.tables import EmbeddingTables
from hotrow.torch.optim.rules import RowwiseAdagrad
from hotrow.torch.training.dlrm import DLRM
from hotrow.torch.training.metrics import auc
from hotrow.torch.training.reference import ReferenceTrainer
from hotrow.traces import Samples, open_trace

FEW, BOUND, LR, SCALE = 200, 0.05, 0.2, 0.1
NONE = np.empty(0, np.int64)


class Exact:
    """A row for each id, numbered in advance.

    Parameters
    ----------
    distinct : uint64[n]
        All ids of the table, ascending.
    rows : int
        For which there is memory.

    Attributes
    ----------
    rows : int
    default : int or None
        The row of ids without one.
    beside : int
        Bytes beside a row and its state.
    """

    default, beside = None, 0

    def __init__(self, distinct, rows):
        self._distinct, self.rows = distinct, len(distinct)

    def step(self, ids):
        """Rows of a batch, rows that begin with it, and ids that give them their first values."""
        return self.find(ids), NONE, NONE

    def find(self, ids):
        """Look rows up without counting the lookups."""
        return np.searchsorted(self._distinct, ids)

    def first_ids(self):
        """Ids that give the rows their values before the first batch."""
        return self._distinct


class Modulo(Exact):
    """The hashing trick: the row of an id is the id modulo the rows."""

    def __init__(self, distinct, rows):
        self.rows = rows

    def find(self, ids):
        return (ids % np.uint64(self.rows)).astype(np.int64)

    def first_ids(self):
        return np.arange(self.rows, dtype=np.uint64)


class AnyId(Modulo):
    """A map of ids as in `hotrow train --any-ids`: a new id takes the row that was looked up least
    recently, more than `KEPT` batches ago."""

    default, beside = 0, IdMap.ROW_BYTES

    def __init__(self, distinct, rows, admission=None, expiry=None):
        super().__init__(distinct, rows)
        self._map = IdMap(rows, admission, expiry or Expiry())

    def step(self, ids):
        self._map.done(max(0, self._map.batch - KEPT))
        batch = self._map.plan(ids)
        return batch.rows, batch.admitted_rows, batch.admitted_ids

    def find(self, ids):
        return self._map.find(ids)


class Frequent(AnyId):
    """A map in which an id takes the row of one with a lower count, if none is free.

    Counts of ids with a row, and of those without, are halved every 200 batches.
    """

    beside = IdMap.ROW_BYTES + 8

    def __init__(self, distinct, rows):
        super().__init__(distinct, rows, LeastCount(1, width=rows, halve_every=200),
                         Expiry(below=1, every=200))


class ManagedCollisions(Modulo):
    """TorchRec's module, which chooses after each batch which ids have a row."""

    beside = 4 * 8  # its four buffers; those for the history of batches are not counted

    def __init__(self, distinct, rows):
        from torchrec.modules.mc_modules import (
            DistanceLFU_EvictionPolicy,
            MCHManagedCollisionModule,
        )

        super().__init__(distinct, rows)
        self.default = rows - 1
        self._module = MCHManagedCollisionModule(
            rows, torch.device("cpu"), DistanceLFU_EvictionPolicy(), eviction_interval=1)

    def step(self, ids):
        rows, begin = self.rows_of(ids, True), self._module.evict()
        begin = NONE if begin is None else begin.numpy()
        return rows, begin, begin

    def find(self, ids):
        return self.rows_of(ids, False)

    def rows_of(self, ids, training):
        """Rows of ids, which are counted in training."""
        from torchrec import JaggedTensor

        given = JaggedTensor(torch.from_numpy(ids.view(np.int64)),
                             lengths=torch.ones(len(ids), dtype=torch.int64))
        return self._module.train(training)({"ids": given})["ids"].values().numpy()


METHODS = {"exact ids": Exact, "ids modulo rows": Modulo, "any id": AnyId,
           "any id, by count": Frequent, "managed collisions": ManagedCollisions}


def online_retail(path):
    """Ids uint64[N, 4], dense features float32[N, 0] and labels float32[N]."""
    trace = open_trace(str(path), ("stock", "customer", "country", "hour_of_week"), "cancelled")
    lines = trace.batch(0, trace.samples)
    unknown = np.bincount(lines.ids[:, 1]).argmax()  # the customer of lines without one
    bought = lines.ids[(lines.label == 0) & (lines.ids[:, 1] != unknown)].astype(np.uint64)
    _, first = np.unique(bought[:, 0], return_index=True)
    first.sort()
    seen = np.searchsorted(first, np.arange(len(bought)), side="right")
    draws = (np.random.default_rng(0).random(len(bought)) * seen).astype(np.int64)
    other = bought.copy()
    other[:, 0] = bought[first[draws], 0]
    ids = np.stack((bought, other), axis=1).reshape(-1, 4)
    return ids, np.empty((len(ids), 0), np.float32), np.tile(np.float32([1, 0]), len(bought))


def criteo(path):
    """Ids uint64[1000, 26], dense features float32[1000, 13] and labels float32[1000]."""
    trace = open_trace(f"criteo:{path}", any_ids=2)
    lines = trace.batch(0, trace.samples)
    return lines.ids.view(np.uint64), lines.dense, lines.label


LOGS = {"online_retail/trace.tsv.gz": (online_retail, 512),  # and samples of a batch
        "criteo_1tb_1k/criteoTab.tsv": (criteo, 16)}


def measure(log, method, share, dim, batch_size, seed):
    """Train with one method.

    Parameters
    ----------
    log : (uint64[N, T], float32[N, D], float32[N])
        Ids, dense features and labels.
    method : type
    share : float
        Of the bytes of exact ids.
    dim, batch_size, seed : int

    Returns
    -------
    dict
        "auc"; bytes of "rows", "state" and "map"; "sharing", ids that share a row with another in
        the end, and "without", ids that have none; of the tables of many ids.
    """
    ids, dense, label = log
    ids = mixed(ids ^ mixed(np.array([seed], np.uint64)))
    rule, row_bytes = RowwiseAdagrad(LR), 4 * dim + 4
    chosen, many = [], []
    for column in ids.T:
        distinct = np.unique(column)
        kind = Exact if len(distinct) < FEW else method
        rows = int(share * len(distinct) * row_bytes) // (row_bytes + kind.beside)
        chosen.append(kind(distinct, rows))
        if len(distinct) >= FEW:
            many.append((chosen[-1], distinct))
    tables = EmbeddingTables([each.rows for each in chosen], dim, rule.initial)
    for number, each in enumerate(chosen):
        tables.table(number)[0].copy_(_values(each.first_ids(), dim, seed))
    torch.manual_seed(seed)
    trainer = ReferenceTrainer(DLRM(dense.shape[1], len(chosen), dim, SCALE), tables, rule)
    logits = []
    for first in range(0, len(ids), batch_size):
        here = slice(first, first + batch_size)
        rows = np.empty(ids[here].shape, np.uint32)
        for number, each in enumerate(chosen):
            rows[:, number], begin, names = each.step(np.ascontiguousarray(ids[here, number]))
            if len(begin):
                trainer.write_rows(torch.from_numpy(begin + tables.first[number]),
                                   _values(names, dim, seed),
                                   torch.full((len(begin),), rule.initial))
        logits.append(trainer.step(Samples(rows, None, dense[here], label[here])).logits)
    half, found = len(ids) // 2, [(each, each.find(distinct)) for each, distinct in many]
    own = [rows[rows != each.default] for each, rows in found]
    return {"auc": auc(label[half:], np.concatenate(logits)[half:]),
            "rows": sum(each.rows for each, _ in many) * 4 * dim,
            "state": sum(each.rows for each, _ in many) * 4,
            "map": sum(each.rows * each.beside for each, _ in many),
            "sharing": sum(int((np.bincount(rows)[rows] > 1).sum()) for rows in own),
            "without": sum(len(rows) for _, rows in found) - sum(map(len, own))}


def _values(ids, dim, seed):
    return torch.from_numpy(initial_rows(ids, dim, seed, BOUND))


def main(arguments=None):
    """Print a table for each log."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--share", type=rate, default=0.25, help="of the bytes of exact ids")
    parser.add_argument("--seeds", type=positive, default=5)
    parser.add_argument("--dim", type=positive, default=16, help="elements of a row")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)  # a step is too small for more
    methods = dict(METHODS)
    try:
        import torchrec  # noqa: F401
    except ImportError as error:
        print(f"managed collisions are not measured: {error}")
        del methods["managed collisions"]
    folder = Path(os.environ.get("HOTROW_SHARED_DATA", "."))
    for name, (read, batch_size) in LOGS.items():
        if not (folder / name).is_file():
            print(f"{name} is not measured: it is not in the folder HOTROW_SHARED_DATA={folder}")
            continue
        log = read(folder / name)
        print(f"{name}: {len(log[0]):,} samples in batches of {batch_size}, {options.seeds} seeds")
        for label, method in methods.items():
            found = [measure(log, method, options.share, options.dim, batch_size, seed)
                     for seed in range(options.seeds)]
            areas, last = [each["auc"] for each in found], found[-1]
            print(f"  {label:22} AUC {mean(areas):.4f} +- {pstdev(areas):.4f}; bytes of rows "
                  f"{last['rows']:,}, state {last['state']:,}, map {last['map']:,}; ids that share "
                  f"a row {last['sharing']:,}, without one {last['without']:,}", flush=True)


if __name__ == "__main__":
    main()
