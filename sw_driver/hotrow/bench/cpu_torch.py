"""The steps of `cpu_work` in PyTorch, in every way that could be the fastest."""

import torch

from .cpu_work import Cut, Work


def tensors(work: Work) -> Work:
    """The same work in tensors on the same memory."""
    return Work(work.total, torch.from_numpy(work.hot), [
        Cut(*map(torch.from_numpy, (cut.rows, cut.slots, cut.sample, cut.ends)), cut.columns)
        for cut in work.cuts])


def variants(work: Work) -> dict:
    """Functions of a `Cut` of tensors by step and name; they return what those of NumPy do."""
    total, hot = work.total, work.hot
    largest = max(len(cut.rows) for cut in work.cuts)
    counts = {name: torch.zeros(total, dtype=torch.int64)
              for name in ("index_add", "scatter_add", "index_put", "unique", "bincount")}
    slot_of = torch.full((total,), -1, dtype=torch.int32)
    slot_of[hot] = torch.arange(len(hot), dtype=torch.int32)
    last_seen = torch.empty(total, dtype=torch.int32)
    places, ones = torch.arange(largest, dtype=torch.int32), torch.ones(largest, dtype=torch.int64)
    one = torch.ones((), dtype=torch.int64)

    def count_index_add(cut):
        return counts["index_add"].index_add_(0, cut.rows, ones[:len(cut.rows)])

    def count_scatter_add(cut):
        return counts["scatter_add"].scatter_add_(0, cut.rows, ones[:len(cut.rows)])

    def count_index_put(cut):
        return counts["index_put"].index_put_((cut.rows,), one, accumulate=True)

    def count_unique(cut):
        rows, times = torch.unique(cut.rows, return_counts=True)
        counts["unique"][rows] += times
        return counts["unique"]

    def count_bincount(cut):
        return counts["bincount"].add_(torch.bincount(cut.rows, minlength=total))

    def classify_index(cut):
        return slot_of[cut.rows]

    def classify_index_select(cut):
        return slot_of.index_select(0, cut.rows)

    def classify_gather(cut):
        return slot_of.gather(0, cut.rows)

    def classify_searchsorted(cut):
        at = torch.searchsorted(hot, cut.rows).clamp_(max=len(hot) - 1)
        return torch.where(hot[at] == cut.rows, at.int(), -1)

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

    def misses_last_seen(cut):
        missed = cut.rows[cut.slots < 0]
        place = places[:len(missed)]
        last_seen[missed] = place
        owner = last_seen[missed]
        owns = owner == place
        number = torch.cumsum(owns, 0, dtype=torch.int32)
        return missed[owns], number[owner] - 1

    dense = all(cut.columns for cut in work.cuts)
    small = total <= 16 * largest
    return {
        "count": {"index_add": count_index_add, "scatter_add": count_scatter_add,
                  "index_put": count_index_put, "unique": count_unique} | (
            {"bincount": count_bincount} if small else {}),
        "classify": {"index": classify_index, "index_select": classify_index_select,
                     "gather": classify_gather} | (
            {"searchsorted": classify_searchsorted} if len(hot) else {}),
        "partition": {"marks": partition_marks, "sums": partition_sums} | (
            {"all": partition_all, "minimum": partition_minimum} if dense else {}),
        "misses": {"unique": misses_unique, "last seen": misses_last_seen},
    }
