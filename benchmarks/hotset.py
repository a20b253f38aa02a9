"""Coverage of the hot rows that a card finds, compared with an exact count of every row.

The card counts the first fifth of a trace's batches (OBSERVE) and returns its K most counted rows
(HARVEST); NumPy counts every row of the same batches. The score of a set is its share of the
lookups of the other batches.
"""

from dataclasses import replace

import numpy as np
from hotrow.bench import lookups
from hotrow.bench.options import device_of
from hotrow.contract.errors import Error
from hotrow.contract.geometry import Preset
from hotrow.contract.geometry import preset as preset_of

from .options import sets_of

LEARNING_SHARE = 0.2  # of the batches, at least one
ROW_BITS = np.uint64(32)


def variant(config: Preset, k, entries_per_k) -> Preset:
    """A card with `entries_per_k` * `k` counters and at least `k` slots.

    Raises
    ------
    Error
        There is no such geometry.
    """
    entries = entries_per_k * k
    sets = sets_of(f"{entries} counters for k = {k}", entries, config.counter_ways)
    directory_sets = config.directory_sets
    while config.slots // config.directory_sets * directory_sets < k:
        directory_sets *= 2
    if (sets, directory_sets) == (config.counter_sets, config.directory_sets):
        return config
    return replace(config, name=f"{config.name}-{entries}-counters", counter_sets=sets,
                   directory_sets=directory_sets)


class Learned:
    """Exact counts of rows.

    Parameters
    ----------
    keys : uint64[n]
        Row of each lookup, the number of its table in the upper half.
    """

    def __init__(self, keys):
        self._keys, self._counts = np.unique(keys, return_counts=True)

    def top(self, k):
        """Keys of the `k` most counted rows, all of them if there are fewer; ties by key."""
        return self._keys[np.argsort(-self._counts, kind="stable")[:k]]

    def recall(self, keys, k) -> float:
        """Share of the `k` most counted rows that are in `keys`; rows that tie with the last of
        them are interchangeable."""
        ranked = np.sort(self._counts)[::-1][:k]
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        counts = self._counts[at[self._keys[at] == keys]]
        last = np.count_nonzero(ranked == ranked[-1])
        found = np.count_nonzero(counts > ranked[-1]) + min(
            np.count_nonzero(counts == ranked[-1]), last)
        return found / len(ranked)


class Score:
    """Counts the lookups of a few rows.

    Parameters
    ----------
    keys : uint64[n]
        All rows that `coverage` will be called with.
    """

    def __init__(self, keys):
        self._keys = np.unique(keys)
        self._counts = np.zeros(len(self._keys), np.int64)
        self.lookups = 0

    def add(self, keys):
        """Count the lookups of a batch."""
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        self._counts += np.bincount(at[self._keys[at] == keys], minlength=len(self._keys))
        self.lookups += len(keys)

    def coverage(self, keys) -> float:
        """Share of the lookups whose row is one of `keys`, which are distinct."""
        return float(self._counts[np.searchsorted(self._keys, keys)].sum() / self.lookups)


def keys_of(samples):
    """uint64[n]: row of each lookup, the number of its table in the upper half."""
    return samples.lookup_columns.astype(np.uint64) << ROW_BITS | samples.ids.ravel()


def hotset(options, trace, steps) -> dict:
    """Measure: the figures of one K, or a list of them under `results`."""
    card = preset_of(options.preset)
    cards = {k: variant(card, k, options.entries_per_k) for k in options.k}
    count = lookups.batch_count(trace, options.batch, options.lookups)
    if count < 2:
        raise Error("expected at least one batch to learn on and one to score on: raise --lookups "
                    "or lower --batch")
    learning = max(1, int(LEARNING_SHARE * count))
    advance, taken = steps.begin("making batches to learn on", learning), []
    for number in range(learning):
        taken.append(trace.batch(number, options.batch))
        advance()
    workload = lookups.load(trace, taken)
    steps.begin("counting exactly")
    exact = Learned(np.concatenate([keys_of(samples) for samples in taken]))
    del taken

    found, figures = {}, {}
    for k, config in cards.items():
        with device_of(options, config=config) as device:
            workload.register(device)
            results = lookups.run(device.observe_async, workload.batches,
                                  steps.begin(f"OBSERVE for k = {k}", learning))
            hot = device.harvest(k)
        found[k] = hot.table.astype(np.uint64) << ROW_BITS | hot.row
        figures[k] = {"counter_entries": config.counter_entries,
                      "cycles": lookups.span(results), "harvest_cycles": hot.cycles}

    score = Score(np.concatenate([*found.values(), exact.top(max(options.k))]))
    advance = steps.begin("scoring", count - learning)
    for number in range(learning, count):
        score.add(keys_of(trace.batch(number, options.batch)))
        advance()
    rows = [_compare(k, found[k], exact, score) | figures[k] for k in cards]
    shared = {"entries_per_k": options.entries_per_k, "lanes": card.lanes,
              "table_rows": trace.rows, "lookups_learned": workload.lookups,
              "lookups_scored": score.lookups}
    return shared | (rows[0] if len(rows) == 1 else {"results": rows})


def _compare(k, found, exact, score):
    reached, possible = score.coverage(found), score.coverage(exact.top(k))
    return {"k": k, "coverage": reached, "coverage_exact": possible,
            "coverage_ratio": reached / possible if possible else 1.0,
            "recall": exact.recall(found, k)}
