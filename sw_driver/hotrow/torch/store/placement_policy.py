"""How a device says where the rows of a batch go: by plans of coming batches, or by what is hot."""

from dataclasses import dataclass

import numpy as np

from ... import device as driver
from ...contract import MISS_FLAG
from ...errors import Error
from ...geometry import preset as named
from ...results import PlacedRows

SIMULATED = ("model", "sim")  # transports to a card of which any geometry can be had
POLICIES = ("lru", "rrip", "lfu", "freq")
COUNTED = ("lfu", "freq")  # policies that go by the access counters


def open_planner(transport, preset):
    """Open a device; a simulated card gets a planner where its preset has none: Device."""
    if transport not in SIMULATED:
        return driver.open(transport, preset)
    return driver.open(transport, named(preset).with_planner())


def share_of(slots, wanted):
    """Of so many parts of the directory one is taken, so that there are no more slots than
    wanted: a power of two.

    Parameters
    ----------
    slots : int
        Of the directory.
    wanted : float

    Raises
    ------
    Error
    """
    if wanted < 1:
        raise Error(f"a cache needs at least one slot, not {wanted:g}")
    share = 1
    while slots // share > wanted:
        share *= 2
    return share


@dataclass(frozen=True, eq=False)
class Placing:
    """Where the rows of a batch go.

    Members
    -------
    slots : int64[lookups]
        Slot of each, or the directory's slots + k of the k-th row without one.
    fills : PlacedRows
        Rows to bring, likewise; each once.
    evictions : PlacedRows
        Rows to be taken back from their slots before.
    wait_for : int
        Number of the batch whose rows without a slot must be back before rows are read; -1 for
        none.
    hits : int
        Lookups that found a slot.
    """

    slots: np.ndarray
    fills: PlacedRows
    evictions: PlacedRows
    wait_for: int
    hits: int


class LookAhead:
    """Modes `scratchpipe` and `freqcache`: the card's planner gives slots before a batch trains.

    Sources: ScratchPipe (ISCA 2022, arXiv 2205.04702) for the holds of batches before and after
    the one that is planned; "A Frequency-aware Software Cache for Large Recommendation System
    Embeddings" (arXiv 2208.05321) for ranks by access counts.

    Parameters
    ----------
    device : Device
    policy : str
        Which row leaves, one of `POLICIES`.
    admission : bool
        Whether rows that count less than who would leave are kept out.

    Members
    -------
    window : int
        Batches that may be planned or marked, and not retired.
    """

    def __init__(self, device, policy, admission=False):
        if not device.geometry.planner:
            raise Error("this card has no planner, which gives rows their slots in modes "
                        "scratchpipe and freqcache: use mode hotline, or a card with planner=True")
        if policy not in POLICIES:
            raise Error(f"policy is {', '.join(POLICIES)}, not {policy!r}")
        self.device, self.policy, self.admission = device, policy, admission
        self.window = device.plan_window

    @property
    def next(self):
        """Number of the batch to be placed next."""
        return self.device.next_batch

    def mark(self, batch, number):
        """Keep the slots that rows of a coming batch have."""
        self.device.mark(batch, number)

    def retire(self, number):
        """Batches up to this one need their slots no longer."""
        if number > self.device.retired_batch:
            self.device.retire(number)

    def place(self, batch, number) -> Placing:
        if self.admission and self.policy in COUNTED:
            self.device.observe(batch)
        plan = self.device.plan(batch, number, self.policy, self.admission,
                                observe=self.policy in COUNTED and not self.admission)
        return Placing(plan.slots.astype(np.int64), plan.fills, plan.evictions,
                       -1 if plan.wait_for is None else plan.wait_for, plan.hits)

    def clear(self):
        """Free every slot, and begin again with batch 0."""
        self.device.clear_directory()

    def install(self, rows):
        """Give rows a slot each before the first batch: slots, as of `Device.install`."""
        return self.device.install(rows, policy=self.policy).slots


class HotRows:
    """Mode `hotline`: rows that were learned have a slot; the others come for one batch each.

    Source: Hotline (ISCA 2024, arXiv 2204.05436).

    Parameters
    ----------
    device : Device
    """

    window = 1 << 16  # any number: nothing is held

    def __init__(self, device):
        self.device, self.next = device, 0

    def mark(self, batch, number):
        pass

    def retire(self, number):
        pass

    def place(self, batch, number) -> Placing:
        split = self.device.split(batch, observe=True)
        self.next = number + 1
        slots, first = split.slots.astype(np.int64), self.device.geometry.slots
        slots = np.where(slots & MISS_FLAG != 0, first + (slots & ~MISS_FLAG), slots)
        misses, none = split.misses, np.empty(0, np.uint32)
        places = first + np.arange(len(misses), dtype=np.uint32)
        # A row without a slot may be one of the batch before, too.
        return Placing(slots, PlacedRows(misses.table, misses.row, places),
                       PlacedRows(none, none, none), number - 1, split.hits)

    def clear(self):
        self.device.clear_directory()
        self.next = 0

    def install(self, rows):
        return self.device.install(rows).slots
