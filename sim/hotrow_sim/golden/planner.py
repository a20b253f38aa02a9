"""Golden model of the planner: slots for the rows of a batch before it trains.

Source: ScratchPipe (ISCA 2022, arXiv 2205.04702), section 4: tags change when a batch is planned,
and no victim is a row that a batch in the window needs. Its shift register per slot is a stamp
here: the last batch that needs the slot.
"""

from dataclasses import dataclass, field

import numpy as np
from hotrow_rtl.config import Config
from hotrow_rtl.contract import NO_SLOT
from hotrow_rtl.mixing import mix

from .counters import pack_key
from .directory import Directory
from .policies import POLICIES

NEVER = -1  # a batch before the first


@dataclass
class Plan:
    """What became of a batch.

    Members
    -------
    slots : uint32[n]
        Of each lookup; NO_SLOT of a bypassed row.
    fills : list of (slot, key)
        Rows to bring in, in order of their first lookup; keys as of `pack_key`.
    evictions : list of (slot, key, dirty)
        Rows that give up the slot of a fill; those that are not `dirty` need not be written back.
    bypassed : list of key
        Rows without a slot, each once, in order of their first lookup.
    unique, hits : int
        Rows of the batch, and those among them that had a slot.
    hit_lookups : int
        Lookups of those.
    wait_for : int
        No row of `fills` or `bypassed` may be read from its table before the rows that this batch
        bypassed are back there; `NEVER` if there is no such batch. Evicted rows need no such
        word: those that the batches of the window need are held.
    """

    slots: np.ndarray
    fills: list = field(default_factory=list)
    evictions: list = field(default_factory=list)
    bypassed: list = field(default_factory=list)
    unique: int = 0
    hits: int = 0
    hit_lookups: int = 0
    wait_for: int = NEVER


class Planner:
    """A directory whose rows come and go as batches need them.

    Batches are numbered upwards, planned in order and retired in order. A slot is held as long as
    the last batch that needs it, by PLAN or by MARK, is not retired. A row enters a free slot as in
    `Directory.install`; else the place of the row that is not held and that the policy gives the
    least number, first among equals in order of choices and ways; else it is bypassed.

    For a batch no row may be brought in that this batch itself evicts. So before a batch is planned
    its rows must be held: MARK it, at the latest after the plan before the oldest that is not
    retired yet.

    Parameters
    ----------
    config : Config
    policy : str
        One of `POLICIES`.
    admission : bool
        A row may take the place of another only if it was counted as often.
    writes : bool
        Batches train: what they use is dirty.
    stamps : int
        Entries of the table of bypassed rows; rows that share one wait for one another.
    """

    def __init__(self, config: Config, policy="lru", admission=False, writes=True, stamps=4096):
        self.config, self.policy, self.admission = config, POLICIES[policy], admission
        self.writes = writes
        self._directory = Directory(config)  # tells where a row may lie
        self._slot_of = {}  # of each resident key
        self._key_at = [None] * config.slots
        self._number = [0] * config.slots
        self._dirty = [False] * config.slots
        self._needed = [NEVER] * config.slots  # last batch that needs the slot
        self._bypassed_by = [NEVER] * stamps  # the last batch, of any row of an entry
        self.retired = self.planned = NEVER

    def mark(self, batch, table, row):
        """Hold the resident rows of a coming batch."""
        for key in np.unique(pack_key(self.config, table, row)).tolist():
            slot = self._slot_of.get(key)
            if slot is not None:
                self._needed[slot] = max(self._needed[slot], batch)

    def retire(self, batch):
        """A batch and all before it have trained, and their victims were read: holds end."""
        if batch > self.planned:
            raise ValueError(f"batch {batch} retires before it is planned; the last one was "
                             f"{self.planned}")
        self.retired = max(self.retired, batch)

    def plan(self, batch, table, row, parts_log2, part, counts=None) -> Plan:
        """Give every row of a batch a slot, or none.

        Parameters
        ----------
        batch : int
            One more than the last, or more.
        table, row : int[n]
            Of each lookup.
        parts_log2, part : int[n]
            Part of the directory that serves the lookup's table.
        counts : int[n], optional
            What the access counters hold of the lookup's row.

        Raises
        ------
        ValueError
            If a batch is planned out of order.
        """
        if batch <= self.planned:
            raise ValueError(f"batch {batch} is planned behind batch {self.planned}: number "
                             f"batches upwards")
        self.planned = batch
        keys = pack_key(self.config, np.asarray(table), np.asarray(row))
        unique, first, index = np.unique(keys, return_index=True, return_inverse=True)
        order = np.argsort(first)
        counts = (np.zeros(len(unique), np.int64) if counts is None
                  else np.asarray(counts)[first]).tolist()
        places = self._places(first, table, row, parts_log2, part)
        plan = Plan(slots=np.empty(0, np.uint32), unique=len(unique))
        slots, hits = np.empty(len(unique), np.uint32), np.zeros(len(unique), bool)
        unique = unique.tolist()
        for at in order.tolist():
            hits[at] = unique[at] in self._slot_of
            slots[at] = self._plan_row(
                plan, batch, unique[at], [places_[at] for places_ in places], counts[at])
        plan.slots = slots[index]
        plan.hits, plan.hit_lookups = int(hits.sum()), int(hits[index].sum())
        return plan

    def evict_all(self):
        """(slot, key) of every dirty row, which is clean then: what a flush writes back."""
        dirty = [(slot, self._key_at[slot]) for slot in range(self.config.slots)
                 if self._dirty[slot]]
        self._dirty = [False] * self.config.slots
        return dirty

    def _places(self, first, table, row, parts_log2, part):
        """First slot of each row's set, for each choice."""
        c = self.config
        columns = [np.asarray(column)[first] for column in (table, row, parts_log2, part)]
        return [((choice * c.directory_sets + self._directory.sets(choice, *columns))
                 * c.directory_ways).tolist() for choice in range(c.directory_choices)]

    def _plan_row(self, plan, batch, key, starts, count):
        slot = self._slot_of.get(key)
        if slot is not None:
            self._number[slot] = self.policy.used(self._number[slot], batch, count)
        else:
            self._wait(plan, batch, key)
            slot = self._enter(plan, batch, key, starts, count)
            if slot is None:
                plan.bypassed.append(key)
                self._bypassed_by[self._entry(key)] = batch
                return NO_SLOT
        self._needed[slot] = max(self._needed[slot], batch)
        self._dirty[slot] |= self.writes
        return slot

    def _enter(self, plan, batch, key, starts, count):
        """The slot that the row enters; None if there is none."""
        ways = range(self.config.directory_ways)
        free = [[start + way for way in ways if self._key_at[start + way] is None]
                for start in starts]
        slot = next(iter(max(free, key=len)), None)  # the first choice among equals
        if slot is None:
            slot = self._victim(starts, count)
            if slot is None:
                return None
            victim = self._key_at[slot]
            plan.evictions.append((slot, victim, self._dirty[slot]))
            del self._slot_of[victim]
        plan.fills.append((slot, key))
        self._slot_of[key], self._key_at[slot] = slot, key
        self._number[slot] = self.policy.filled(batch, count)
        self._dirty[slot], self._needed[slot] = False, NEVER
        return slot

    def _victim(self, starts, count):
        candidates = [slot for start in starts
                      for slot in range(start, start + self.config.directory_ways)
                      if self._needed[slot] <= self.retired]
        if not candidates:
            return None
        least = min(candidates, key=self._number.__getitem__)
        number = self._number[least]
        if self.admission and number > self.policy.filled(self.planned, count):
            return None
        if self.policy.ages:
            for slot in candidates:
                self._number[slot] -= number
        return least

    def _wait(self, plan, batch, key):
        """The newest earlier batch that may have bypassed this row. A stamp of this batch itself
        is another row's, in whose place there was one that is not known any more."""
        plan.wait_for = max(plan.wait_for, min(self._bypassed_by[self._entry(key)], batch - 1))

    def _entry(self, key):
        """Of the table of bypassed rows."""
        return mix(key, 0, self.config.key_width) % len(self._bypassed_by)
