"""Which rows get slots: a planner's choice ahead of each batch, or rows that were learned."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np

from ...calls.batch_operands import StagedBatch
from ...calls.plans_at_once import Places
from ...contract.errors import Error
from ...contract.generated import MISS_FLAG
from ...device import Device
from ...memory.buffer import Held
from ...operands.batch import Batch
from ...operands.results import Observation, PlacedRows, Plan, RowList, Words
from ...queues.futures import Future

POLICIES = ("lru", "rrip", "lfu", "freq")
COUNTED = ("lfu", "freq")  # policies that read the access counters


def share_of(slots: int, wanted: float) -> int:
    """Parts to divide a directory into so that one has at most `wanted` slots: a power of two."""
    if wanted < 1:
        raise Error(f"a cache needs at least one slot, not {wanted:g}")
    share = 1
    while slots // share > wanted:
        share *= 2
    return share


_NONE = np.empty(0, np.uint32)


@dataclass(frozen=True, eq=False)
class SplitPlan:
    """The part of a `Plan` that SPLIT gives: rows without a slot are bypassed, and none leaves."""

    slots: Words  # of each lookup; for the k-th row without a slot MISS_FLAG | k
    fills: PlacedRows
    wait_for: int | None
    hits: int
    evictions: ClassVar[PlacedRows] = PlacedRows(_NONE, _NONE, _NONE)


Placement: TypeAlias = Plan | SplitPlan


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

    Attributes
    ----------
    window : int
        Batches that may be planned or marked, and not retired.
    replaces : bool
        True if rows can be installed beside resident ones; False if the directory must be cleared
        first.
    flag : int
        Bit that is set in the slot word of a row without a slot (SPLIT); 0 where such words are at
        least the number of the directory's slots (PLAN).
    """

    replaces, flag = False, 0

    def __init__(self, device: Device, policy: str) -> None:
        if not device.geometry.planner:
            raise Error("this card has no planner, which gives rows their slots in modes "
                        "scratchpipe and freqcache: use mode hotline, or a card with planner=True")
        if policy not in POLICIES:
            raise Error(f"policy is {', '.join(POLICIES)}, not {policy!r}")
        self.device, self.policy = device, policy
        self.window = device.plan_window
        self._marks: list[Future[Observation]] = []  # under way
        self._staged: dict[int, StagedBatch] = {}  # of batches between their mark and their plan

    def place(self, batch: Batch, number: int, retired: int,
              coming: Sequence[tuple[int, Batch]], lists: Held, places: Places) -> Placement:
        """Release the holds of batches up to `retired`, hold the slots of rows of coming batches,
        and plan a batch; `lists` keeps the memory of its lists, `places` as in
        `Device.plan_at_once`."""
        device, observe = self.device, self.policy in COUNTED
        retired = max(retired, device.retired_batch)
        plan = device.plan_at_once(
            batch, number, self.policy, observe, lists, retired, coming, places)
        if plan is None:
            if retired > device.retired_batch:
                device.retire(retired)
            for ahead, each in coming:
                self._staged[ahead] = device.stage(each)
                self._marks.append(device.mark_async(self._staged[ahead], ahead))
            plan = device.plan(self._staged.get(number, batch), number, self.policy,
                               observe=observe, lists=lists)
            for mark in self._take_marks():  # whose commands came before
                mark.result()
        self.drop(number, number + 1)
        return plan

    def drop(self, first: int, last: int) -> None:
        """Forget batches from number `first` on, up to `last`, that were marked."""
        for number in range(first, last):
            staged = self._staged.pop(number, None)
            if staged is not None:
                staged.release()

    def clear(self) -> None:
        """Free every slot, and number batches from 0 again."""
        for mark in self._take_marks():  # of batches that were dropped
            with suppress(Error):
                mark.result()
        self.device.clear_directory()

    def _take_marks(self) -> list[Future[Observation]]:
        marks, self._marks = self._marks, []
        return marks

    def install(self, rows: RowList) -> Words:
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
    replaces, flag = True, MISS_FLAG

    def __init__(self, device: Device) -> None:
        self.device, self.counting = device, True

    def drop(self, first: int, last: int) -> None:
        """Nothing is marked."""

    def place(self, batch: Batch, number: int, retired: int,
              coming: Sequence[tuple[int, Batch]], lists: Held, places: Places) -> Placement:
        split = self.device.split(batch, observe=self.counting)
        misses, first = split.misses, self.device.geometry.slots
        slots = np.arange(first, first + len(misses), dtype=np.uint32)
        # The batch before may have trained the same row without a slot.
        fills = PlacedRows(misses.table, misses.row, slots, entries=misses.entries)
        return SplitPlan(split.slots, fills, number - 1 if number else None, split.hits)

    def clear(self) -> None:
        self.device.clear_directory()

    def install(self, rows: RowList) -> Words:
        return self.device.install(rows).slots


Policy: TypeAlias = LookAheadPolicy | HotlinePolicy
