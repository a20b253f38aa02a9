"""The steps of `cpu_work` in PyTorch, each in every way that could be the fastest."""

import torch

from .cpu_work import Cut, Work


def tensors(work: Work) -> Work:
    """The same work in tensors on the same memory."""
    return Work(work.total, torch.from_numpy(work.hot), [
        Cut(torch.from_numpy(cut.rows), torch.from_numpy(cut.slots), torch.from_numpy(cut.sample),
            torch.from_numpy(cut.ends), cut.columns)
        for cut in work.cuts])


def variants(work: Work) -> dict:
    """Functions of a `Cut` of tensors by step and name, with the results of `cpu_numpy`."""
    steps = Steps(work)
    dense = all(cut.columns for cut in work.cuts)
    small = work.total <= 16 * steps.largest
    return {
        "count": {"index_add": steps.count_index_add, "scatter_add": steps.count_scatter_add,
                  "index_put": steps.count_index_put, "unique": steps.count_unique} | (
            {"bincount": steps.count_bincount} if small else {}),
        "classify": {"index": steps.classify_index, "index_select": steps.classify_index_select,
                     "gather": steps.classify_gather} | (
            {"searchsorted": steps.classify_searchsorted} if len(work.hot) else {}),
        "partition": {"marks": partition_marks, "sums": partition_sums} | (
            {"all": partition_all, "minimum": partition_minimum} if dense else {}),
        "misses": {"unique": misses_unique, "last seen": steps.misses_last_seen},
    }


class Steps:
    """The steps that keep tensors over all rows.

    Parameters
    ----------
    work : Work
    """

    def __init__(self, work):
        self.total, self.hot = work.total, work.hot
        self.largest = max(len(cut.rows) for cut in work.cuts)
        self.counts = {
            name: torch.zeros(work.total, dtype=torch.int64)
            for name in ("index_add", "scatter_add", "index_put", "unique", "bincount")}
        self.slot_of = torch.full((work.total,), -1, dtype=torch.int32)
        self.slot_of[work.hot] = torch.arange(len(work.hot), dtype=torch.int32)
        self.last_seen = torch.empty(work.total, dtype=torch.int32)
        self.places = torch.arange(self.largest, dtype=torch.int32)
        self.ones = torch.ones(self.largest, dtype=torch.int64)
        self.one = torch.ones((), dtype=torch.int64)

    def count_index_add(self, cut):
        return self.counts["index_add"].index_add_(0, cut.rows, self.ones[:len(cut.rows)])

    def count_scatter_add(self, cut):
        return self.counts["scatter_add"].scatter_add_(0, cut.rows, self.ones[:len(cut.rows)])

    def count_index_put(self, cut):
        return self.counts["index_put"].index_put_((cut.rows,), self.one, accumulate=True)

    def count_unique(self, cut):
        rows, times = torch.unique(cut.rows, return_counts=True)
        self.counts["unique"][rows] += times
        return self.counts["unique"]

    def count_bincount(self, cut):
        return self.counts["bincount"].add_(torch.bincount(cut.rows, minlength=self.total))

    def classify_index(self, cut):
        return self.slot_of[cut.rows]

    def classify_index_select(self, cut):
        return self.slot_of.index_select(0, cut.rows)

    def classify_gather(self, cut):
        return self.slot_of.gather(0, cut.rows)

    def classify_searchsorted(self, cut):
        at = torch.searchsorted(self.hot, cut.rows).clamp_(max=len(self.hot) - 1)
        return torch.where(self.hot[at] == cut.rows, at.int(), -1)

    def misses_last_seen(self, cut):
        missed = cut.rows[cut.slots < 0]
        place = self.places[:len(missed)]
        self.last_seen[missed] = place
        owner = self.last_seen[missed]
        owns = owner == place
        number = torch.cumsum(owns, 0, dtype=torch.int32)
        return missed[owns], number[owner] - 1


def parts(popular):
    return popular.nonzero().ravel(), (~popular).nonzero().ravel()


def partition_all(cut):
    return parts((cut.slots >= 0).view(-1, cut.columns).all(dim=1))


def partition_minimum(cut):
    return parts(cut.slots.view(-1, cut.columns).amin(dim=1) >= 0)


def partition_marks(cut):
    popular = torch.ones(cut.samples, dtype=torch.bool)
    popular[cut.sample[cut.slots < 0]] = False
    return parts(popular)


def partition_sums(cut):
    before = torch.zeros(len(cut.rows) + 1, dtype=torch.int32)
    torch.cumsum(cut.slots < 0, 0, out=before[1:])
    return parts(before[cut.ends[1:]] == before[cut.ends[:-1]])


def misses_unique(cut):
    return torch.unique(cut.rows[cut.slots < 0], return_inverse=True)
