"""The rows that get slots between two steps: by the device's counts, or by what a user knows."""

import numpy as np
import torch

from ...contract.errors import Error
from ...operands.results import HotRows, RowList

WARMUP_RATIO = 0.7  # of the slots, as CachedEmbedding warms them


def most_counted(counts, limit):
    """Rows with the highest counts, at least 1: RowList of at most `limit`.

    On a tie the first table and the lowest row win.

    Parameters
    ----------
    counts : sequence of (int, integers [rows])
        Number of a table, and how often each of its rows is accessed.
    limit : int
    """
    table = np.concatenate([np.full(len(each), number) for number, each in counts])
    row = np.concatenate([np.arange(len(each)) for _, each in counts])
    counted = np.concatenate([each for _, each in counts])
    most = np.argsort(-counted, kind="stable")[:min(limit, np.count_nonzero(counted > 0))]
    return RowList(table[most].astype(np.uint32), row[most].astype(np.uint32))


def interleaved(ranked, limit):
    """The first row of each table, then the second of each, ...: RowList of at most `limit`.

    Parameters
    ----------
    ranked : sequence of (int, integers [n])
        Number of a table, and rows of it, the most accessed first.
    limit : int
    """
    rank = np.concatenate([np.arange(len(rows)) for _, rows in ranked])
    table = np.concatenate([np.full(len(rows), number) for number, rows in ranked])
    row = np.concatenate([rows for _, rows in ranked])
    first = np.argsort(rank, kind="stable")[:limit]
    return RowList(table[first].astype(np.uint32), row[first].astype(np.uint32))


def warm(collection, rows, warmup_ratio, ids_freq_mapping, limit, decay):
    """As `HotEmbeddingBagCollection.learn`, with slots."""
    store = collection.store
    if limit is None:
        if warmup_ratio is None:
            warmup_ratio = 1.0 if collection.mode == "hotline" else WARMUP_RATIO
        limit = max(1, int(warmup_ratio * store.slots))
    if limit > store.slots:
        raise Error(f"{limit:,} hot rows do not fit: the card's directory holds {store.slots:,}")
    collection.finish()
    if ids_freq_mapping is not None:
        return store.warm(most_counted(_by_number(collection, ids_freq_mapping), limit))
    if rows is not None:
        return store.warm(interleaved(_by_number(collection, rows), limit))
    return store.warm(store.hottest(limit, decay))


def _by_number(collection, arrays):
    """Arrays by the tables' names, as (the device's number, array) in order of the tables."""
    names = [config.name for config in collection.tables]
    unknown = set(arrays) - set(names)
    if unknown:
        raise Error(f"there is no table {sorted(unknown)[0]!r}: expected some of "
                    f"{', '.join(names)}")
    return [(collection.store.device_table(number), np.asarray(arrays[name]))
            for number, name in enumerate(names) if name in arrays]


def access_counts(device):
    """A device's access counts: int64[3, n], tables, rows and counts; None without any."""
    counted = device and device.counts()
    if not counted:
        return None
    return torch.from_numpy(np.stack((counted.table, counted.row, counted.count)).astype(np.int64))


def set_access_counts(device, counts):
    """Set the access counts of a device, if there is one, to those of `access_counts`."""
    if device is not None:
        table, row, count = counts.numpy().astype(np.uint32)
        device.set_counts(HotRows(table, row, count, cycles=0))
