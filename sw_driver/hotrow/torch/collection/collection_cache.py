"""The cache of a collection: filled, emptied, counted."""

import numpy as np

from ...errors import Error
from ...results import RowList

WARMUP_RATIO = 0.7  # of the slots, as CachedEmbedding warms them


class CollectionCache:
    """Part of `HotEmbeddingBagCollection`."""

    def learn(self, rows=None, warmup_ratio=None, ids_freq_mapping=None):
        """Give the most accessed rows their slots.

        Parameters
        ----------
        rows : mapping of str to sequence of int, optional
            Rows of each table by name, those of one table the most accessed first; by default
            those that the device has counted most.
        warmup_ratio : float, optional
            Share of the slots to fill: 1 in hotline, else 0.7.
        ids_freq_mapping : mapping of str to sequence of int [rows], optional
            In place of `rows`, how often each row of each table is accessed.

        Returns
        -------
        int
            Rows that found a slot.
        """
        if self.mode == "resident":
            return 0
        if warmup_ratio is None:
            warmup_ratio = 1.0 if self.mode == "hotline" else WARMUP_RATIO
        count = max(1, int(warmup_ratio * self.store.slots))
        self.finish()
        if ids_freq_mapping is not None:
            return self.store.warm(_most_counted(self._by_number(ids_freq_mapping), count))
        if rows is not None:
            return self.store.warm(_interleaved(self._by_number(rows), count))
        hot = self.store.device.harvest(count)
        return self.store.warm(RowList(hot.table, hot.row))

    def _by_number(self, arrays):
        """Arrays by the tables' names, as (the device's number, array) in order of the tables."""
        unknown = set(arrays) - {config.name for config in self.tables}
        if unknown:
            raise Error(f"there is no table {sorted(unknown)[0]!r}: expected some of "
                        f"{', '.join(config.name for config in self.tables)}")
        return [(self.store.registered[number].number, np.asarray(arrays[config.name]))
                for number, config in enumerate(self.tables) if config.name in arrays]

    def observe(self, inputs, offsets=None, per_sample_weights=None):
        """Let the device count the lookups of a batch that does not train."""
        if self.mode != "resident":
            request, _ = self._request(self.bags(inputs, offsets, per_sample_weights))
            if len(request.bags.ids):
                self.store.device.observe(request.bags.device_batch(self.store.registered))

    def finish(self):
        """Let go of batches that were taken and will get no backward."""
        if not any(staged.values is not None for staged in self._staged):
            self.store.finish()

    def flush(self):
        """Bring the tables up to date."""
        self.store.flush()
        self._doubts.settle(wait=True)

    def reset_cache_states(self):
        """Write back, and begin with empty slots."""
        self.finish()
        self.store.flush()
        self.store.reset()

    @property
    def memory(self):
        """Bytes that live beside the tables, and bits of metadata per slot on the host: dict.

        `slots`, `bypass` (rows without one), `staging` (rows on their way) and `gradients`, state
        included where rows have any; `metadata` of the host, `metadata_bits_per_slot`. Empty for
        resident.
        """
        gradients = sum(staged.values.nbytes + staged.rows.nbytes for staged in self._staged
                        if staged.values is not None)
        return {**self.store.memory(), "gradients": gradients} if self.mode != "resident" else {}

    @property
    def statistics(self):
        """What the cache did so far: dict of `lookups`, `hits`, `fills`, `evictions`, `bypasses`,
        `rows_moved` and `link_bytes`; empty for resident."""
        return {} if self.mode == "resident" else self.store.statistics.total

    @property
    def table_statistics(self):
        """The same of each table, `misses` beside and `link_bytes` left out: dict by name; empty
        for resident. Here a hit is a lookup whose row had a slot before its batch; in `statistics`
        hits are the card's, which counts repeated lookups of a row that comes as hits, too, unless
        they are but a few beats apart."""
        return {} if self.mode == "resident" else self.store.statistics.by_table

    def abandon(self):
        """Let go of prefetched batches that will not be trained."""
        self.store.abandon()
        self.finish()


def _most_counted(counts, count):
    """The rows of several tables with the highest counts, at least 1: RowList of at most `count`.

    Of equals the first table's come first, and the lowest rows.
    """
    table = np.concatenate([np.full(len(each), number) for number, each in counts])
    row = np.concatenate([np.arange(len(each)) for _, each in counts])
    counted = np.concatenate([each for _, each in counts])
    most = np.argsort(-counted, kind="stable")[:min(count, np.count_nonzero(counted > 0))]
    return RowList(table[most].astype(np.uint32), row[most].astype(np.uint32))


def _interleaved(ranked, count):
    """The first rows of several tables in turn: RowList of at most `count`."""
    rank = np.concatenate([np.arange(len(rows)) for _, rows in ranked])
    table = np.concatenate([np.full(len(rows), number) for number, rows in ranked])
    row = np.concatenate([rows for _, rows in ranked])
    first = np.argsort(rank, kind="stable")[:count]
    return RowList(table[first].astype(np.uint32), row[first].astype(np.uint32))
