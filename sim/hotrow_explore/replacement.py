"""Rows and pages that a memory of fewer rows than the tables fetches in a step, expected.

Che's approximation: a memory that evicts what was used longest ago holds what was accessed in the
last W batches, where W is such that these are as many as fit (Che, Tung, Wang, IEEE JSAC 2002).
Accesses follow a workload's law; ranks of nearly equal frequency are taken together.
"""

from collections import Counter
from functools import lru_cache

import numpy as np

PAGE = 4096  # bytes


def fetched_rows(workload, held) -> float:
    """Rows that a step fetches into a memory of `held` rows."""
    return _fetched(_kinds(workload), workload.batch, workload.slope, held, 1)


def fetched_pages(workload, held) -> float:
    """Pages that a step fetches into a memory of `held` pages; popular rows lie anywhere."""
    rows = max(1, PAGE // workload.row_bytes)
    pages = _fetched(_kinds(workload), workload.batch, workload.slope,
                     held * min(1, PAGE / workload.row_bytes), rows)
    return pages * max(1, workload.row_bytes / PAGE)


def _kinds(workload):
    return tuple(Counter(zip(workload.rows, workload.lookups, strict=True)).items())


@lru_cache(maxsize=512)
def _fetched(kinds, batch, slope, held, together):
    """Groups of `together` rows, of which those of `held` groups are in memory."""
    if held >= sum(many * -(-rows // together) for (rows, _), many in kinds):
        return 0.0
    parts = [_absence(rows, lookups * batch, slope, together, many)
             for (rows, lookups), many in kinds]
    width, log_absent = (np.concatenate(each) for each in zip(*parts, strict=True))
    low, high = -20.0, 60.0  # log of the batches
    for _ in range(60):
        middle = (low + high) / 2
        full = -(width * np.expm1(np.exp(middle) * log_absent)).sum()
        low, high = (middle, high) if full < held else (low, middle)
    return float(-(width * np.expm1(log_absent) * np.exp(np.exp(low) * log_absent)).sum())


def _absence(rows, accesses, slope, together, many):
    """(groups, log of the probability that a batch does not access one) of ranks of one table.

    A group is as popular as its most popular row, whose rank is the lowest, and the mean of the
    rows of higher rank for each of the others.
    """
    edges = np.unique(np.r_[np.arange(min(rows, 1000)), rows,
                            np.geomspace(1, rows, 4000).astype(int)])
    width = np.diff(edges).astype(float)
    weight = width * ((edges[:-1] + edges[1:] + 1) / 2) ** -slope
    share = weight / weight.sum()
    rest = np.maximum(rows - edges[1:], 1.0)
    mean = np.maximum(0.0, 1 - np.cumsum(share)) / rest
    leads = (1 - edges[:-1] / rows) ** (together - 1)
    each = np.minimum(share / width + (together - 1) * mean, 1 - 1e-12)
    return many * width * leads, accesses * np.log1p(-each)
