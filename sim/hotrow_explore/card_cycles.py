"""Cycles of the card for the batches of a training run: decisions, and moves of as many rows."""

from dataclasses import dataclass, replace

import numpy as np
from hotrow import RowList, empty
from hotrow import open as open_device
from hotrow.bench.lookups import load
from hotrow.contract.geometry import preset as preset_of

from .virtual_clock import DEPTH, LOOK_AHEAD

POLICY = {"scratchpipe": "lru", "freqcache": "lfu"}
MOVED_ROWS = 2**16  # of the table whose rows are moved
_TIMEOUT = 3600.0


@dataclass(frozen=True)
class Measured:
    """What the card did with one batch: cycles, rows and samples."""

    lookups: int
    plan: int
    gather: int
    scatter: int
    fetched: int
    returned: int
    hits: int
    popular: float
    wait_for: int = -1


def measure(mode, question, options, taken, advance) -> list[Measured]:
    """Run every batch through the card."""
    work, slots = question.workload, int(question.hot_rows)
    card = preset_of(options.preset)
    if mode != "hotline":
        card = sized(card, slots)
    workload, figures = load(work.trace, taken), []
    learning, batches = options.learning, workload.batches
    with (open_device(options.transport, card, timeout=_TIMEOUT) as device,
          open_device(options.transport, card, timeout=_TIMEOUT) as mover):
        workload.register(device)
        rows = Mover(mover, work.row_bytes, options.seed)
        if mode == "hotline":
            for batch in batches[:learning]:
                device.observe(batch)
            device.install(device.harvest(slots))
        for number, batch in enumerate(batches):
            if mode != "hotline":
                found = _plan(device, mode, batches, number)
            elif number >= learning:
                found = _split(device, batch)
            if number >= learning:  # the batches before fill counters and slots
                found["wait_for"] = max(-1, found["wait_for"] - learning)
                figures.append(Measured(
                    **found, lookups=batch.lookups, gather=rows.gather(found["fetched"]),
                    scatter=rows.scatter(found["returned"])))
                advance()
    return figures


def sized(card, slots):
    """A variant with a directory of at least `slots` slots, at most the card's."""
    sets = card.directory_sets
    while sets > 2 * card.banks and sets // 2 * (card.slots // card.directory_sets) >= slots:
        sets //= 2
    return card if sets == card.directory_sets else replace(
        card, name=f"{card.name}-{sets}-sets", directory_sets=sets,
        directory_partitions=min(card.directory_partitions, sets // card.banks))


def _split(device, batch):
    split = device.split(batch, observe=True)
    return {"plan": split.cycles, "fetched": len(split.misses), "returned": len(split.misses),
            "hits": split.hits, "popular": split.n_popular / batch.samples, "wait_for": -1}


def _plan(device, mode, batches, number):
    """Plan a batch and mark the coming ones, as the pipeline does."""
    if number >= DEPTH:
        device.retire(number - DEPTH)
    cycles, last = 0, min(number + LOOK_AHEAD, len(batches) - 1)
    for coming in range(number + (LOOK_AHEAD if number else 1), last + 1):
        cycles += device.mark(batches[coming], coming).cycles
    plan = device.plan(batches[number], number, POLICY[mode], observe=mode == "freqcache")
    return {"plan": cycles + plan.cycles, "fetched": len(plan.fills),
            "returned": len(plan.evictions), "hits": plan.hits, "popular": 0.0,
            "wait_for": -1 if plan.wait_for is None else plan.wait_for}


class Mover:
    """Cycles of GATHER and SCATTER of random rows."""

    def __init__(self, device, row_bytes, seed):
        self.device = device
        device.check_ids = False
        table = device.register_table(empty((MOVED_ROWS, row_bytes // 4), np.float32))
        self.target = empty((MOVED_ROWS, row_bytes // 4), np.float32)
        device.register(self.target)
        self.rows = np.random.default_rng(seed).permutation(MOVED_ROWS).astype(np.uint32)
        self.table = np.full(MOVED_ROWS, table.number, np.uint32)

    def gather(self, count):
        return self._cycles(count, lambda rows, part: self.device.gather_async(rows, part))

    def scatter(self, count):
        return self._cycles(count, lambda rows, part: self.device.scatter_async(rows, part))

    def _cycles(self, count, submit):
        total = 0
        for first in range(0, count, MOVED_ROWS):
            size = min(MOVED_ROWS, count - first)
            future = submit(RowList(self.table[:size], self.rows[:size]), self.target[:size])
            future.result()
            total += future.cycles
        return total
