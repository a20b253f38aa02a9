"""Golden model of the planner's slots: owner, hold and eviction of each."""

from collections.abc import Callable
from dataclasses import dataclass

from hotrow_rtl.config import SLOT_NUMBER_WIDTH, Config

NEVER = -1  # a batch before the first
MOST = (1 << SLOT_NUMBER_WIDTH) - 1
RRIP_NEAR, RRIP_FILLED = 3, 1


@dataclass(frozen=True)
class Policy:
    """Updates of a slot's number.

    Attributes
    ----------
    filled : callable
        Access count of a row to the number of the slot that it fills.
    used : callable
        (number, count) to the number of a slot that a batch uses, once per batch.
    swept : callable
        Number to the number after a sweep.
    """

    filled: Callable[[int], int]
    used: Callable[[int, int], int]
    swept: Callable[[int], int] = lambda number: number


def _saturated(count):
    return min(count, MOST)
POLICIES = {
    "lru": Policy(lambda count: 0, lambda number, count: 0),
    "rrip": Policy(lambda count: RRIP_FILLED, lambda number, count: RRIP_NEAR,
                   lambda number: max(0, number - 1)),
    # The row's current access count, which the counters keep after an eviction.
    "lfu": Policy(_saturated, lambda number, count: _saturated(count)),
    # The row's access count when it filled the slot: a rank that later use does not change.
    "freq": Policy(_saturated, lambda number, count: number),
}


@dataclass(frozen=True)
class Found:
    """Response to the plan of one row.

    Attributes
    ----------
    hit : bool
        The row had a slot.
    slot : int or None
        Slot of the row; None if it is bypassed.
    victim : int or None
        Key of the row that was evicted from the slot.
    dirty : bool
        The victim must be written back.
    first : bool
        The current batch has not used the slot before.
    """

    hit: bool
    slot: int | None
    victim: int | None = None
    dirty: bool = False
    first: bool = True


class Slots:
    """Rows and their slots, one row at a time.

    A slot is held until the last batch that needs it, by PLAN or by MARK, is retired. A new row
    fills a free slot, chosen as in `Directory.install`. Without a free slot it evicts a row from
    the set with more slots that are not held (from either set on a tie): the row with the lowest
    `eviction_rank`, the first in order of choices and ways on a tie. Two choices thereby balance
    the held slots too, and almost no row is bypassed.

    Parameters
    ----------
    config : Config
    policy : str
        One of `POLICIES`.
    admission : bool
        A row evicts another only if its own number would be at least as high.
    writes : bool
        Batches train: slots that they use become dirty.

    Attributes
    ----------
    planned, retired : int
        Newest batch of each.
    slot_of : dict of int to int
        Slot by key of every resident row.
    """

    def __init__(self, config: Config, policy="lru", admission=False, writes=True):
        self.config = config
        self.set_policy(policy, admission, writes)
        self.clear()

    def set_policy(self, policy, admission, writes):
        """Policy of the following batches; see the class."""
        self.policy, self.admission, self.writes = POLICIES[policy], admission, writes

    def clear(self):
        """Free every slot and forget all batches."""
        config = self.config
        self.slot_of = {}
        self.key_at = [None] * config.slots
        self.number = [0] * config.slots
        self.dirty = [False] * config.slots
        self.needed_until = [NEVER] * config.slots  # last batch that needs the slot
        self.last_used = [NEVER] * config.slots  # last batch that was planned with the slot
        self.retired = self.planned = NEVER

    def begin_batch(self, batch):
        """Begin the plan of a batch. Every `sweep_batches` all slots are swept first: a last use
        older than `oldest_stamp` becomes that old, and numbers age."""
        self.planned = batch
        if batch % self.config.sweep_batches == 0:
            oldest = batch - self.config.oldest_stamp
            self.last_used = [max(oldest, used) for used in self.last_used]
            self.number = [self.policy.swept(number) for number in self.number]

    def find(self, key):
        """Slot of a row, or None."""
        return self.slot_of.get(key)

    def mark(self, batch, key):
        """Hold the row for a coming batch if it is resident; return its slot or None."""
        slot = self.slot_of.get(key)
        if slot is not None:
            self.needed_until[slot] = max(self.needed_until[slot], batch)
        return slot

    def install(self, key, starts, count) -> Found:
        """Give a row a free slot without a hold; arguments as for `plan`."""
        slot = self.slot_of.get(key)
        if slot is not None:
            return Found(True, slot, first=self.last_used[slot] != self.planned)
        slot = self._free_slot(starts)
        if slot is not None:
            self._fill(key, slot, count)
        return Found(False, slot)

    def remove(self, key):
        """Free the slot of a row and return it, or None."""
        slot = self.slot_of.pop(key, None)
        if slot is not None:
            self.key_at[slot], self.dirty[slot] = None, False
        return slot

    def plan(self, key, starts, count) -> Found:
        """Give a row of the current batch a slot; idempotent within a batch.

        Parameters
        ----------
        key : int
        starts : sequence of int
            First slot of its set, per hash choice.
        count : int
            Access count of the row.
        """
        slot = self.slot_of.get(key)
        if slot is None:
            found = self._allocate(key, starts, count)
        else:
            found = Found(True, slot, first=self.last_used[slot] != self.planned)
            if found.first:
                self.number[slot] = self.policy.used(self.number[slot], count)
        if found.slot is not None:
            self.last_used[found.slot] = self.planned
            self.needed_until[found.slot] = max(self.needed_until[found.slot], self.planned)
            self.dirty[found.slot] |= self.writes
        return found

    def flush(self):
        """(slot, key) of every dirty row; makes them clean."""
        dirty = [(slot, key) for slot, key in enumerate(self.key_at) if self.dirty[slot]]
        self.dirty = [False] * self.config.slots
        return dirty

    def eviction_rank(self, slot):
        """Sort key of the slot's row; the lowest is evicted."""
        return self.number[slot], self.last_used[slot]

    def _allocate(self, key, starts, count):
        slot = self._free_slot(starts)
        victim, dirty = None, False
        if slot is None:
            slot = min(self._evictable(starts), key=self.eviction_rank, default=None)
            if slot is None or (
                    self.admission and self.number[slot] > self.policy.filled(count)):
                return Found(False, None)
            victim, dirty = self.key_at[slot], self.dirty[slot]
            del self.slot_of[victim]
        self._fill(key, slot, count)
        return Found(False, slot, victim, dirty)

    def _evictable(self, starts):
        """The slots that are not held, of the set that has more of them."""
        ways = self.config.directory_ways
        spare = [[slot for slot in range(start, start + ways)
                  if self.needed_until[slot] <= self.retired] for start in starts]
        most = max(map(len, spare))
        return [slot for each in spare if len(each) == most for slot in each]

    def _free_slot(self, starts):
        """The free slot that a row fills, or None; the first choice on a tie."""
        free = [[slot for slot in range(start, start + self.config.directory_ways)
                 if self.key_at[slot] is None] for start in starts]
        return next(iter(max(free, key=len)), None)

    def _fill(self, key, slot, count):
        self.slot_of[key], self.key_at[slot] = slot, key
        self.number[slot] = self.policy.filled(count)
        self.last_used[slot], self.dirty[slot] = self.planned, False
        self.needed_until[slot] = NEVER
