"""The steps of `cpu_work` in NumPy, each in every way that could be the fastest."""

import numpy as np


def variants(work) -> dict:
    """Functions of a `Cut` by step and name.

    `count` returns the counts of all rows so far, `classify` the slots, `partition` the popular
    samples and the others, `misses` the distinct missed rows and the number of each miss among
    them.
    """
    steps = Steps(work)
    dense = all(cut.columns for cut in work.cuts)
    small = work.total <= 16 * steps.largest  # more rows would cost more than the lookups
    return {
        "count": {"add.at": steps.count_add_at, "unique": steps.count_unique} | (
            {"bincount": steps.count_bincount} if small else {}),
        "classify": {"index": steps.classify_index, "take": steps.classify_take} | (
            {"searchsorted": steps.classify_searchsorted} if len(work.hot) else {}),
        "partition": {"marks": partition_marks, "sums": partition_sums} | (
            {"all": partition_all, "minimum": partition_minimum,
             "transposed": partition_transposed} if dense else {}),
        "misses": {"unique": misses_unique, "last seen": steps.misses_last_seen},
    }


class Steps:
    """The steps that keep arrays over all rows.

    Parameters
    ----------
    work : Work
    """

    def __init__(self, work):
        self.total, self.hot = work.total, work.hot
        self.largest = max(len(cut.rows) for cut in work.cuts)
        self.counts = {name: np.zeros(work.total, np.int64)
                       for name in ("add.at", "unique", "bincount")}
        self.slot_of = np.full(work.total, -1, np.int32)
        self.slot_of[work.hot] = np.arange(len(work.hot), dtype=np.int32)
        self.last_seen = np.empty(work.total, np.int32)
        self.places = np.arange(self.largest, dtype=np.int32)

    def count_add_at(self, cut):
        np.add.at(self.counts["add.at"], cut.rows, 1)
        return self.counts["add.at"]

    def count_unique(self, cut):
        rows, times = np.unique(cut.rows, return_counts=True)
        self.counts["unique"][rows] += times
        return self.counts["unique"]

    def count_bincount(self, cut):
        self.counts["bincount"] += np.bincount(cut.rows, minlength=self.total)
        return self.counts["bincount"]

    def classify_index(self, cut):
        return self.slot_of[cut.rows]

    def classify_take(self, cut):
        return self.slot_of.take(cut.rows, mode="wrap")  # in range: without the check of `raise`

    def classify_searchsorted(self, cut):
        at = np.minimum(np.searchsorted(self.hot, cut.rows), len(self.hot) - 1)
        return np.where(self.hot[at] == cut.rows, at.astype(np.int32), np.int32(-1))

    def misses_last_seen(self, cut):
        # Each miss writes its place to its row; the miss whose place remains represents the row.
        missed = cut.rows[cut.slots < 0]
        place = self.places[:len(missed)]
        self.last_seen[missed] = place
        owner = self.last_seen[missed]
        owns = owner == place
        number = np.cumsum(owns, dtype=np.int32)
        return missed[owns], number[owner] - 1


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
