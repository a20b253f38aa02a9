"""How good the hot rows are that a card finds, against the exact count of every row.

The card counts the first fifth of a trace's batches (OBSERVE) and tells its K most counted rows
(HARVEST); NumPy counts every row of the same batches. Both sets are scored by the lookups of the
other batches that they cover.
"""

from dataclasses import replace

import numpy as np

from ..errors import Error
from ..geometry import Preset
from ..geometry import preset as preset_of
from . import lookups
from .options import device_of

LEARNING_SHARE = 0.2  # of the batches, at least one
ROW_BITS = np.uint64(32)


def variant(config: Preset, k, entries_per_k) -> Preset:
    """A card that counts in `entries_per_k` * `k` entries, and has slots for `k` rows or more.

    Raises
    ------
    Error
        If there is no such geometry.
    """
    entries = entries_per_k * k
    sets, rest = divmod(entries, config.counter_ways)
    if rest or sets & (sets - 1):
        raise Error(f"{entries} counters for k = {k}: preset {config.name!r} has "
                    f"{config.counter_ways} to a set, and the sets must be a power of two")
    directory_sets = config.directory_sets
    while config.slots // config.directory_sets * directory_sets < k:
        directory_sets *= 2
    if (sets, directory_sets) == (config.counter_sets, config.directory_sets):
        return config
    try:
        return replace(config, name=f"{config.name}-{entries}-counters", counter_sets=sets,
                       directory_sets=directory_sets)
    except ValueError as refusal:
        raise Error(f"{entries} counters for k = {k}: {refusal}") from None


class Learned:
    """Rows that were counted exactly.

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
        """Share of the `k` most counted rows that are in `keys`; for the last of them any row
        stands that was counted as often."""
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
        All rows that will be asked for.
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
        """Share of the lookups whose row is one of `keys`, each given once."""
        return float(self._counts[np.searchsorted(self._keys, keys)].sum() / self.lookups)


def keys_of(samples):
    """uint64[n]: row of each lookup, the number of its table in the upper half."""
    return samples.lookup_columns.astype(np.uint64) << ROW_BITS | samples.ids.ravel()


def hotset(options, trace, steps) -> dict:
    """Measure; one K gives its figures, several a list of them under `results`."""
    card = preset_of(options.preset)
    cards = {k: variant(card, k, options.entries_per_k) for k in options.k}
    count = lookups.batch_count(trace, options.batch, options.lookups)
    if count < 2:
        raise Error("one batch to learn on and one to score on are needed at least: ask for more "
                    "--lookups or a smaller --batch")
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
