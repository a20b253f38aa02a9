"""Ideal caches without sets, holds or windows, as bounds for the policies."""

from collections import OrderedDict
from heapq import heappop, heappush

NEVER = float("inf")


def belady(batches, slots) -> list:
    """Hits of the offline optimum, which evicts the row with the latest next use.

    Parameters
    ----------
    batches : list of list of int
        Rows of each batch, each once.
    slots : int
        Capacity of the cache in rows.

    Returns
    -------
    list of int
        Hits of each batch, in rows.

    Source: Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems
    Journal 5 (1966). Every missed row is inserted.
    """
    sequence = [row for rows in batches for row in rows]
    following, comes = [NEVER] * len(sequence), {}
    for at in reversed(range(len(sequence))):
        following[at] = comes.get(sequence[at], NEVER)
        comes[sequence[at]] = at
    due, farthest = {}, []  # `farthest` keeps stale entries until they are popped
    coming, found = iter(following), []
    for rows in batches:
        hits = 0
        for row, next_use in zip(rows, coming, strict=False):
            if row in due:
                hits += 1
            elif len(due) == slots:
                while True:
                    negative, leaving = heappop(farthest)
                    if due.get(leaving) == -negative:
                        break
                del due[leaving]
            due[row] = next_use
            heappush(farthest, (-next_use, row))
        found.append(hits)
    return found


def least_recent(batches, slots) -> list:
    """Hits of LRU with all slots in one set; see `belady`."""
    found, held = [], OrderedDict()
    for rows in batches:
        hits = 0
        for row in rows:
            if row in held:
                hits += 1
                held.move_to_end(row)
            else:
                if len(held) == slots:
                    held.popitem(last=False)
                held[row] = True
        found.append(hits)
    return found
