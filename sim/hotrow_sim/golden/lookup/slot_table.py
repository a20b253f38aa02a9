"""Golden model of the slots that the planner gives: who has which, needed till when, who leaves."""

from dataclasses import dataclass

from hotrow_rtl.config import Config

from .replacement_policy import POLICIES

NEVER = -1  # a batch before the first


@dataclass(frozen=True)
class Found:
    """Answer to the plan of one row.

    Members
    -------
    hit : bool
        It had a slot.
    slot : int or None
        The one that it has or entered; None if it is bypassed.
    victim : int or None
        Key of the row that left for it.
    dirty : bool
        The victim must be written back.
    first : bool
        The batch planned last has not come to the slot before.
    """

    hit: bool
    slot: int | None
    victim: int | None = None
    dirty: bool = False
    first: bool = True


class Slots:
    """Rows and their slots, one row at a time.

    A slot is held as long as the last batch that needs it, by PLAN or by MARK, is not retired. A
    row enters a free slot as in `Directory.install`; else, in the set with more slots that are not
    held (in either if they have as many), the place of the row that is not held and goes first by
    the policy, first among equals in order of choices and ways. So two choices even out what is
    held, too, and next to no row is bypassed.

    Parameters
    ----------
    config : Config
    policy : str
        One of `POLICIES`.
    admission : bool
        A row may take the place of another only if its own number would not be less.
    writes : bool
        Batches train: what they use is dirty.

    Members
    -------
    planned, retired : int
        Newest batch of each.
    """

    def __init__(self, config: Config, policy="lru", admission=False, writes=True):
        self.config = config
        self.choose(policy, admission, writes)
        self.clear()

    def choose(self, policy, admission, writes):
        """What the following batches go by; arguments as of the class."""
        self.policy, self.admission, self.writes = POLICIES[policy], admission, writes

    def clear(self):
        """Free every slot and forget all batches."""
        config = self.config
        self.slot_of = {}  # of each resident key
        self.key_at = [None] * config.slots
        self.number = [0] * config.slots
        self.dirty = [False] * config.slots
        self.needed = [NEVER] * config.slots  # last batch that needs the slot
        self.used = [NEVER] * config.slots  # last batch that planned it
        self.retired = self.planned = NEVER

    def begin(self, batch):
        """A batch is planned; every `sweep_batches` all slots are swept first: what was planned
        before `oldest_stamp` is not told apart any more, and numbers age."""
        self.planned = batch
        if batch % self.config.sweep_batches == 0:
            oldest = batch - self.config.oldest_stamp
            self.used = [max(oldest, used) for used in self.used]
            self.number = [self.policy.swept(number) for number in self.number]

    def find(self, key):
        """Slot of a row, or None."""
        return self.slot_of.get(key)

    def mark(self, batch, key):
        """Hold the row for a coming batch, if it is resident; return its slot or None."""
        slot = self.slot_of.get(key)
        if slot is not None:
            self.needed[slot] = max(self.needed[slot], batch)
        return slot

    def install(self, key, starts, count) -> Found:
        """Give a row a free slot, which no batch needs; arguments as of `plan`."""
        slot = self.slot_of.get(key)
        if slot is not None:
            return Found(True, slot, first=self.used[slot] != self.planned)
        slot = self._free(starts)
        if slot is not None:
            self._place(key, slot, count)
        return Found(False, slot)

    def remove(self, key):
        """Free the slot of a row and return it, or None."""
        slot = self.slot_of.pop(key, None)
        if slot is not None:
            self.key_at[slot], self.dirty[slot] = None, False
        return slot

    def plan(self, key, starts, count) -> Found:
        """Give a row of the batch begun last a slot; again and again for the same row alike.

        Parameters
        ----------
        key : int
        starts : sequence of int
            First slot of its set, for each hash choice.
        count : int
            What the access counters hold of the row.
        """
        slot = self.slot_of.get(key)
        if slot is None:
            found = self._enter(key, starts, count)
        else:
            found = Found(True, slot, first=self.used[slot] != self.planned)
            if found.first:
                self.number[slot] = self.policy.used(self.number[slot], count)
        if found.slot is not None:
            self.used[found.slot] = self.planned
            self.needed[found.slot] = max(self.needed[found.slot], self.planned)
            self.dirty[found.slot] |= self.writes
        return found

    def flush(self):
        """(slot, key) of every dirty row, which is clean then."""
        dirty = [(slot, key) for slot, key in enumerate(self.key_at) if self.dirty[slot]]
        self.dirty = [False] * self.config.slots
        return dirty

    def goes_before(self, slot):
        """What the slot's row is ordered by; the least goes first."""
        return self.number[slot], self.used[slot]

    def _enter(self, key, starts, count):
        slot = self._free(starts)
        victim, dirty = None, False
        if slot is None:
            slot = min(self._spare(starts), key=self.goes_before, default=None)
            if slot is None or (
                    self.admission and self.number[slot] > self.policy.filled(count)):
                return Found(False, None)
            victim, dirty = self.key_at[slot], self.dirty[slot]
            del self.slot_of[victim]
        self._place(key, slot, count)
        return Found(False, slot, victim, dirty)

    def _spare(self, starts):
        """The slots that are not held, of the set that has more of them."""
        ways = self.config.directory_ways
        spare = [[slot for slot in range(start, start + ways)
                  if self.needed[slot] <= self.retired] for start in starts]
        most = max(map(len, spare))
        return [slot for each in spare if len(each) == most for slot in each]

    def _free(self, starts):
        """The slot that a row enters while one is free, else None."""
        free = [[slot for slot in range(start, start + self.config.directory_ways)
                 if self.key_at[slot] is None] for start in starts]
        return next(iter(max(free, key=len)), None)  # the first choice among equals

    def _place(self, key, slot, count):
        self.slot_of[key], self.key_at[slot] = slot, key
        self.number[slot] = self.policy.filled(count)
        self.used[slot], self.dirty[slot], self.needed[slot] = self.planned, False, NEVER
