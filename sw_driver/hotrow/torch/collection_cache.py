"""The cache of a collection: filled, emptied, counted."""

import numpy as np

from ..results import RowList

WARMUP_RATIO = 0.7  # of the slots, as CachedEmbedding warms them


class CollectionCache:
    """Part of `HotEmbeddingBagCollection`."""

    def learn(self, rows=None, ratio=None):
        """Give the most accessed rows their slots.

        Parameters
        ----------
        rows : mapping of str to sequence of int, optional
            Rows of each table by name, those of one table the most accessed first; by default
            those that the device has counted most.
        ratio : float, optional
            Share of the slots to fill: 1 in hotline, else 0.7.

        Returns
        -------
        int
            Rows that found a slot.
        """
        if self.mode == "resident":
            return 0
        ratio = (1.0 if self.mode == "hotline" else WARMUP_RATIO) if ratio is None else ratio
        count = max(1, int(ratio * self.store.slots))
        self.finish()
        if rows is None:
            hot = self.store.device.harvest(count)
            return self.store.warm(RowList(hot.table, hot.row))
        return self.store.warm(_interleaved(
            [(self.store.registered[number].number, np.asarray(rows[config.name]))
             for number, config in enumerate(self.tables) if config.name in rows], count))

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
        for resident."""
        return {} if self.mode == "resident" else self.store.statistics.by_table

    def abandon(self):
        """Let go of prefetched batches that will not be trained."""
        self.store.abandon()
        self.finish()


def _interleaved(ranked, count):
    """The first rows of several tables in turn: RowList of at most `count`."""
    rank = np.concatenate([np.arange(len(rows)) for _, rows in ranked])
    table = np.concatenate([np.full(len(rows), number) for number, rows in ranked])
    row = np.concatenate([rows for _, rows in ranked])
    first = np.argsort(rank, kind="stable")[:count]
    return RowList(table[first].astype(np.uint32), row[first].astype(np.uint32))
