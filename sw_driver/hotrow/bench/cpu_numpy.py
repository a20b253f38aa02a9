"""The steps of `cpu_work` in NumPy, in every way that could be the fastest."""

import numpy as np


def variants(work) -> dict:
    """Functions of a `Cut` by step and name.

    `count` returns the counts of all rows so far, `classify` the slots, `partition` the popular
    samples and the others, `misses` the missed rows, each once, and which of them each miss is.
    """
    total, hot = work.total, work.hot
    largest = max(len(cut.rows) for cut in work.cuts)
    counts = {name: np.zeros(total, np.int64) for name in ("add.at", "unique", "bincount")}
    slot_of = np.full(total, -1, np.int32)
    slot_of[hot] = np.arange(len(hot), dtype=np.int32)
    last_seen = np.empty(total, np.int32)
    places = np.arange(largest, dtype=np.int32)

    def count_add_at(cut):
        np.add.at(counts["add.at"], cut.rows, 1)
        return counts["add.at"]

    def count_unique(cut):
        rows, times = np.unique(cut.rows, return_counts=True)
        counts["unique"][rows] += times
        return counts["unique"]

    def count_bincount(cut):
        counts["bincount"] += np.bincount(cut.rows, minlength=total)
        return counts["bincount"]

    def classify_index(cut):
        return slot_of[cut.rows]

    def classify_take(cut):
        return slot_of.take(cut.rows, mode="wrap")  # in range: without the check of `raise`

    def classify_searchsorted(cut):
        at = np.minimum(np.searchsorted(hot, cut.rows), len(hot) - 1)
        return np.where(hot[at] == cut.rows, at.astype(np.int32), np.int32(-1))

    def parts(popular):
        return np.flatnonzero(popular), np.flatnonzero(~popular)

    def partition_all(cut):
        return parts((cut.slots >= 0).reshape(-1, cut.columns).all(axis=1))

    def partition_minimum(cut):
        return parts(cut.slots.reshape(-1, cut.columns).min(axis=1) >= 0)

    def partition_transposed(cut):
        return parts(np.ascontiguousarray(cut.slots.reshape(-1, cut.columns).T >= 0).all(axis=0))

    def partition_marks(cut):
        popular = np.ones(cut.samples, bool)
        popular[cut.sample[cut.slots < 0]] = False
        return parts(popular)

    def partition_sums(cut):
        before = np.zeros(len(cut.rows) + 1, np.int32)
        np.cumsum(cut.slots < 0, out=before[1:])
        return parts(before[cut.ends[1:]] == before[cut.ends[:-1]])

    def misses_unique(cut):
        return np.unique(cut.rows[cut.slots < 0], return_inverse=True)

    def misses_last_seen(cut):
        # Each miss writes its place to its row; the one whose place stays stands for the row.
        missed = cut.rows[cut.slots < 0]
        place = places[:len(missed)]
        last_seen[missed] = place
        owner = last_seen[missed]
        owns = owner == place
        number = np.cumsum(owns, dtype=np.int32)
        return missed[owns], number[owner] - 1

    dense = all(cut.columns for cut in work.cuts)
    small = total <= 16 * largest  # more rows would cost more than the lookups
    return {
        "count": {"add.at": count_add_at, "unique": count_unique} | (
            {"bincount": count_bincount} if small else {}),
        "classify": {"index": classify_index, "take": classify_take} | (
            {"searchsorted": classify_searchsorted} if len(hot) else {}),
        "partition": {"marks": partition_marks, "sums": partition_sums} | (
            {"all": partition_all, "minimum": partition_minimum,
             "transposed": partition_transposed} if dense else {}),
        "misses": {"unique": misses_unique, "last seen": misses_last_seen},
    }
