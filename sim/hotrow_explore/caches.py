"""Caches of rows in one set, for `hotrow compare`: a policy is a class of a few lines.

A policy is made with the number of slots. `used(row, batch)` is called for every distinct row of a
batch, in the order of first lookup, whether it had a slot or not; then rows that the batch does not
look up leave their slots in the order of `rank(row)`, the lowest first, until the others have one.
"""

import importlib
import sys
from collections import Counter
from pathlib import Path

from hotrow.contract.errors import Error

NEVER = float("inf")
COUNTED = ("lookups", "hits", "distinct", "distinct_hits", "fetched", "returned")


class Lru:
    """Evicts what was used longest ago (least recently used)."""

    def __init__(self, slots):
        self.last = {}

    def used(self, row, batch):
        self.last[row] = batch

    def rank(self, row):
        return self.last[row]


class Lfu:
    """Evicts what was used in the fewest batches (least frequently used)."""

    def __init__(self, slots):
        self.count = Counter()

    def used(self, row, batch):
        self.count[row] += 1

    def rank(self, row):
        return self.count[row]


class Belady:
    """Evicts the row with the latest next use, which only the past can tell: the bound.

    Source: Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems
    Journal 5 (1966).
    """

    def __init__(self, slots, batches):
        self.coming, following = [], {}
        for number in range(len(batches) - 1, -1, -1):
            self.coming.append({row: following.get(row, NEVER) for row in batches[number]})
            following.update(dict.fromkeys(batches[number], number))
        self.coming.reverse()
        self.next = {}

    def used(self, row, batch):
        self.next[row] = self.coming[batch][row]

    def rank(self, row):
        return -self.next[row]


POLICIES = {"lru": Lru, "lfu": Lfu}


def policy_of(name):
    """The class of a name of `POLICIES`, or of `module:Class`.

    Raises
    ------
    Error
        There is none.
    """
    if name in POLICIES:
        return POLICIES[name]
    module, colon, last = name.partition(":")
    if not colon:
        raise Error(f"unknown policy {name!r}: expected {', '.join(POLICIES)}, or module:Class of "
                    "your own")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)
    try:
        found = getattr(importlib.import_module(module), last)
    except (ImportError, AttributeError) as missing:
        raise Error(f"policy {name!r}: {missing}; the module must be found from the folder where "
                    "hotrow runs, or in PYTHONPATH") from None
    lacking = [each for each in ("used", "rank") if not callable(getattr(found, each, None))]
    if lacking:
        raise Error(f"policy {name!r} has no method {lacking[0]}: see docs/compare.md")
    return found


def simulate(policy, slots, batches, lookups, warm_up):
    """Hits and moves of a policy.

    Parameters
    ----------
    policy : object
        With `used` and `rank`.
    slots : int
        Rows that the cache holds. A row that finds none, as the batch holds all, is bypassed.
    batches : list of list of int
        Distinct rows of each batch, in the order of first lookup.
    lookups : list of list of int
        How often the batch looks each of them up.
    warm_up : int
        Batches that do not count.

    Returns
    -------
    dict
        "lookups", "hits", "distinct", "distinct_hits", "fetched" and "returned" rows.
    """
    held: set = set()
    total = dict.fromkeys(COUNTED, 0)
    for number, (rows, counts) in enumerate(zip(batches, lookups, strict=True)):
        found = dict.fromkeys(total, 0)
        needed = {row for row in rows if row in held}
        for row, count in zip(rows, counts, strict=True):
            hit = row in needed
            found["lookups"] += count
            found["distinct"] += 1
            found["hits"] += count * hit
            found["distinct_hits"] += hit
            found["fetched"] += not hit
        for row in rows:
            policy.used(row, number)
        leaving = iter(())
        if len(held) + len(rows) - len(needed) > slots:
            leaving = iter(sorted((row for row in held if row not in needed), key=policy.rank))
        for row in rows:
            if row in needed:
                continue
            if len(held) >= slots:
                found["returned"] += 1
                victim = next(leaving, None)
                if victim is None:  # bypassed: trained, and written back at once
                    continue
                held.remove(victim)
            held.add(row)
        if number >= warm_up:
            for name, value in found.items():
                total[name] += value
    return total
