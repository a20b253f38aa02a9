"""Golden model of the planner: slots for the rows of a batch before it trains.

Source: ScratchPipe (ISCA 2022, arXiv 2205.04702), section 4: tags change when a batch is planned,
and a row that a batch in the window needs is never evicted. A stamp per slot, the last batch that
needs the slot, replaces ScratchPipe's shift register.
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
    """The plan of a batch.

    Attributes
    ----------
    slots : uint32[n]
        Per lookup; NO_SLOT for a bypassed row.
    fills : list of (slot, key)
        Rows to read, in order of their first lookup; keys from `pack_key`.
    evictions : list of (slot, key, dirty)
        Rows that fills replace; rows that are not `dirty` need no write-back.
    bypassed : list of key
        Rows without a slot, each once, in order of their first lookup.
    unique, hits : int
        Rows of the batch, and the rows that had a slot.
    hit_lookups : int
        Lookups of rows that had a slot.
    wait_for : int
        Rows of `fills` and `bypassed` may be read from their table only after the bypassed rows of
        this batch are written back; `NEVER` if there is no such batch or it is retired. Evicted
        rows need no such rule, as rows that the batches of the window need are held.
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
    """Gives the rows of batches their slots; `Slots` decides row by row.

    Batches have consecutive numbers, and are planned and retired in order. A row that finds no slot
    is bypassed.

    The rows of a batch must be held before it is planned, so that the batch does not evict a row
    that it needs: MARK a batch no later than after the plan that precedes the oldest batch that is
    not retired.

    Parameters
    ----------
    config : Config
    policy, admission, writes
        As for `Slots`.

    Attributes
    ----------
    state : Slots
    """

    def __init__(self, config: Config, policy="lru", admission=False, writes=True):
        self.config = config
        self.state = Slots(config, policy, admission, writes)
        self._directory = Directory(config)  # computes the sets of a row
        self._clear_bypass_table()

    def _clear_bypass_table(self):
        # The last batch that bypassed any row of an entry: rows of one entry wait for each other.
        self._bypassed_by = [NEVER] * self.config.bypass_stamps

    def clear(self):
        """Free every slot and forget all batches."""
        self.state.clear()
        self._clear_bypass_table()

    def starts(self, table, row, parts_log2, part):
        """First slot of each row's set per hash choice, the `starts` of `Slots`."""
        return list(zip(*self._directory.set_starts(table, row, parts_log2, part), strict=True))

    def mark(self, batch, table, row):
        """Hold the resident rows of a coming batch."""
        for key in np.unique(pack_key(self.config, table, row)).tolist():
            self.state.mark(batch, key)

    def retire(self, batch):
        """End the holds of a batch and all before it: they trained, and their victims were
        read."""
        if batch > self.state.planned:
            raise ValueError(f"expected a batch up to {self.state.planned}, the last one that was "
                             f"planned, not {batch}")
        self.state.retired = max(self.state.retired, batch)

    def plan(self, batch, table, row, parts_log2, part, counts=None) -> Plan:
        """Give every row of a batch a slot, or none.

        Parameters
        ----------
        batch : int
            Any number for the first batch, then one more than the last.
        table, row : int[n]
            Per lookup.
        parts_log2, part : int[n]
            Directory partition of each lookup's table.
        counts : int[n], optional
            Access count of each lookup's row.

        Raises
        ------
        ValueError
            If the batch is out of order.
        """
        last = self.state.planned
        if last not in (NEVER, batch - 1):
            raise ValueError(f"expected batch {last + 1} after batch {last}, not {batch}")
        self.state.begin_batch(batch)
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
        """Whether the row had a slot, and the slot that it has now."""
        batch = self.state.planned
        found = self.state.plan(key, starts, count)
        if found.hit:
            return True, found.slot
        # An entry with this batch's stamp was bypassed by another row, and its previous stamp is
        # lost: wait for the batch before.
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
