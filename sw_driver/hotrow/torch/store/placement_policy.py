"""Which rows get slots: a planner's choice ahead of each batch, or rows that were learned."""

from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from ...contract.errors import Error
from ...contract.generated import MISS_FLAG
from ...operands.results import Observation, PlacedRows
from ...queues.futures import Future

POLICIES = ("lru", "rrip", "lfu", "freq")
COUNTED = ("lfu", "freq")  # policies that read the access counters


def share_of(slots, wanted):
    """Parts to divide a directory into so that one has at most `wanted` slots: a power of two."""
    if wanted < 1:
        raise Error(f"a cache needs at least one slot, not {wanted:g}")
    share = 1
    while slots // share > wanted:
        share *= 2
    return share


@dataclass(frozen=True, eq=False)
class Placement:
    """Slots for the rows of a batch."""

    # uint32[lookups]; for the k-th row without a slot the directory's slots + k, or flag | k
    slots: np.ndarray
    fills: PlacedRows  # rows to fetch, each once, with slots numbered likewise
    evictions: PlacedRows  # rows that leave their slots before
    wait_for: int  # batch whose bypassed rows must be in the tables before rows are read, or -1
    hits: int  # lookups that found a slot
    flag: int = 0


class LookAheadPolicy:
    """Modes `scratchpipe` and `freqcache`: the card's planner gives slots before a batch trains.

    Sources: ScratchPipe (ISCA 2022, arXiv 2205.04702) for the holds of batches before and after
    the planned one; "A Frequency-aware Software Cache for Large Recommendation System Embeddings"
    (arXiv 2208.05321) for ranks by access counts.

    Parameters
    ----------
    device : Device
    policy : str
        Choice of victims, one of `POLICIES`.
    admission : bool
        Whether a row whose count is below its victim's is bypassed.

    Attributes
    ----------
    window : int
        Batches that may be planned or marked, and not retired.
    replaces : bool
        Whether `install` may follow rows that keep their slots; otherwise only `clear`.
    """

    replaces = False

    def __init__(self, device, policy, admission=False):
        if not device.geometry.planner:
            raise Error("this card has no planner, which gives rows their slots in modes "
                        "scratchpipe and freqcache: use mode hotline, or a card with planner=True")
        if policy not in POLICIES:
            raise Error(f"policy is {', '.join(POLICIES)}, not {policy!r}")
        self.device, self.policy, self.admission = device, policy, admission
        self.window = device.plan_window
        self._marks: list[Future[Observation]] = []  # under way

    @property
    def next(self):
        """Number of the batch to be placed next."""
        return self.device.next_batch

    def stage(self, batch):
        """Put a batch where the device finds it, for mark and place: StagedBatch."""
        return self.device.stage(batch)

    def mark(self, batch, number):
        """Hold the slots of a coming batch's rows, before the next batch is placed."""
        self._marks.append(self.device.mark_async(batch, number))

    def retire(self, number):
        """Release the holds of batches up to this one."""
        if number > self.device.retired_batch:
            self.device.retire(number)

    def place(self, batch, number) -> Placement:
        """Plan a batch."""
        if self.admission and self.policy in COUNTED:
            self.device.observe(batch)
        plan = self.device.plan(batch, number, self.policy, self.admission,
                                observe=self.policy in COUNTED and not self.admission)
        for mark in self._taken_marks():  # whose commands came before
            mark.result()
        return Placement(plan.slots, plan.fills, plan.evictions,
                         -1 if plan.wait_for is None else plan.wait_for, plan.hits)

    def clear(self):
        """Free every slot, and number batches from 0 again."""
        for mark in self._taken_marks():  # of batches that were dropped
            with suppress(Error):
                mark.result()
        self.device.clear_directory()

    def _taken_marks(self):
        marks, self._marks = self._marks, []
        return marks

    def install(self, rows):
        """Give rows a slot each before the first batch: slots, as in `Device.install`."""
        return self.device.install(rows, policy=self.policy).slots


class HotlinePolicy:
    """Mode `hotline`: learned rows have a slot; all others are bypassed.

    Source: Hotline (ISCA 2024, arXiv 2204.05436).

    Attributes
    ----------
    counting : bool
        Whether a batch's lookups are counted in the pass that splits it.
    """

    window = 1 << 16  # no limit: nothing is held
    replaces = True

    def __init__(self, device):
        self.device, self.next, self.counting = device, 0, True

    def stage(self, batch):
        return self.device.stage(batch)

    def mark(self, batch, number):
        pass

    def retire(self, number):
        pass

    def place(self, batch, number) -> Placement:
        split = self.device.split(batch, observe=self.counting)
        self.next = number + 1
        misses, none = split.misses, np.empty(0, np.uint32)
        first = self.device.geometry.slots
        places = np.arange(first, first + len(misses), dtype=np.uint32)
        # The batch before may have trained the same row without a slot.
        return Placement(split.slots, PlacedRows(misses.table, misses.row, places),
                         PlacedRows(none, none, none), number - 1, split.hits, MISS_FLAG)

    def clear(self):
        self.device.clear_directory()
        self.next = 0

    def install(self, rows):
        return self.device.install(rows).slots
