"""Golden model of the planner: slots for the rows of a batch before it trains.

Source: ScratchPipe (ISCA 2022, arXiv 2205.04702), section 4: tags change when a batch is planned,
and no victim is a row that a batch in the window needs. Its shift register per slot is a stamp
here: the last batch that needs the slot.
"""

from dataclasses import dataclass, field

import numpy as np
from hotrow_rtl.config import Config
from hotrow_rtl.contract.encoding import NO_SLOT
from hotrow_rtl.lookup.hashing.xorshift import hash_key

from .counters import pack_key
from .directory import Directory
from .slot_table import NEVER, Slots

__all__ = ["NEVER", "Plan", "Planner"]


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
        bypassed are back there; `NEVER` if there is no such batch, or it is retired. Evicted rows
        need no such word: those that the batches of the window need are held.
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
    """Gives the rows of batches their slots, as `Slots` does row by row.

    Batches are numbered upwards, planned in order and retired in order. A row that finds no slot is
    bypassed.

    For a batch no row may be brought in that this batch itself evicts. So before a batch is planned
    its rows must be held: MARK it, at the latest after the plan before the oldest that is not
    retired yet.

    Parameters
    ----------
    config : Config
    policy, admission, writes
        As of `Slots`.

    Members
    -------
    state : Slots
    """

    def __init__(self, config: Config, policy="lru", admission=False, writes=True):
        self.config = config
        self.state = Slots(config, policy, admission, writes)
        self._directory = Directory(config)  # tells where a row may lie
        self._forget_bypassed()

    def _forget_bypassed(self):
        # The last batch that bypassed any row of an entry: such rows wait for one another.
        self._bypassed_by = [NEVER] * self.config.bypass_stamps

    def clear(self):
        """Free every slot and forget all batches."""
        self.state.clear()
        self._forget_bypassed()

    def starts(self, table, row, parts_log2, part):
        """First slot of each row's set, for each hash choice: what `Slots` takes as `starts`."""
        return list(zip(*self._directory.set_starts(table, row, parts_log2, part)))

    def mark(self, batch, table, row):
        """Hold the resident rows of a coming batch."""
        for key in np.unique(pack_key(self.config, table, row)).tolist():
            self.state.mark(batch, key)

    def retire(self, batch):
        """A batch and all before it have trained, and their victims were read: holds end."""
        if batch > self.state.planned:
            raise ValueError(f"batch {batch} retires before it is planned; the last one was "
                             f"{self.state.planned}")
        self.state.retired = max(self.state.retired, batch)

    def plan(self, batch, table, row, parts_log2, part, counts=None) -> Plan:
        """Give every row of a batch a slot, or none.

        Parameters
        ----------
        batch : int
            The first one any, then one more than the last.
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
        last = self.state.planned
        if last not in (NEVER, batch - 1):
            raise ValueError(f"batch {batch} is planned behind batch {last}: expected batch "
                             f"{last + 1}")
        self.state.begin(batch)
        keys = pack_key(self.config, np.asarray(table), np.asarray(row))
        unique, first, index = np.unique(keys, return_index=True, return_inverse=True)
        counts = (np.zeros(len(unique), np.int64) if counts is None
                  else np.asarray(counts)[first]).tolist()
        columns = [np.asarray(column)[first] for column in (table, row, parts_log2, part)]
        starts = self.starts(*columns)
        plan = Plan(slots=np.empty(0, np.uint32), unique=len(unique))
        slots, hits = np.empty(len(unique), np.uint32), np.zeros(len(unique), bool)
        unique = unique.tolist()
        for at in np.argsort(first).tolist():
            hits[at], slots[at] = self._plan_row(plan, unique[at], starts[at], counts[at])
        plan.slots = slots[index]
        plan.hits, plan.hit_lookups = int(hits.sum()), int(hits[index].sum())
        return plan

    def _plan_row(self, plan, key, starts, count):
        """Whether the row had a slot, and the one that it has."""
        batch = self.state.planned
        found = self.state.plan(key, starts, count)
        if found.hit:
            return True, found.slot
        # A stamp of this batch is another row's, in whose place there was one that is not known.
        entry = hash_key(key, 0, self.config.key_width) % len(self._bypassed_by)
        bypassed_by = min(self._bypassed_by[entry], batch - 1)
        if bypassed_by > self.state.retired:
            plan.wait_for = max(plan.wait_for, bypassed_by)
        if found.slot is None:
            plan.bypassed.append(key)
            self._bypassed_by[entry] = batch
            return False, NO_SLOT
        if found.victim is not None:
            plan.evictions.append((found.slot, found.victim, found.dirty))
        plan.fills.append((found.slot, key))
        return False, found.slot
