"""PLAN and MARK: the golden planner, its batches numbered as the host does."""

import numpy as np
from hotrow_rtl.contract.encoding import NO_SLOT, Opcode, PlanFlag, PlanPolicy, Status

from ..golden.lookup.counters import pack_key, unpack_key
from ..golden.lookup.plan_lists import plan_lists
from ..golden.lookup.planner import Planner
from ..golden.records import ROW_RECORD
from .outcome import Outcome

WORD = 0xFFFF_FFFF
HALF_RANGE = 1 << 31


class Planning:
    """The planner of a card, and which batches it has planned and retired.

    Parameters
    ----------
    config : Config
    counters : Counters

    Members
    -------
    planner : Planner
    """

    def __init__(self, config, counters):
        self.config, self.counters = config, counters
        self.planner = Planner(config)

    @property
    def retired(self):
        """The register PLAN_RETIRED."""
        return self.planner.state.retired & WORD

    def retire(self, number):
        """Write it; return whether that is accepted."""
        state = self.planner.state
        ahead = (number - state.retired) & WORD
        if ahead > state.planned - state.retired:
            return False
        self.planner.retire(state.retired + ahead)
        return True

    def refusal(self, command):
        """Outcome of a PLAN or MARK that may not be served now, or None."""
        state, number = self.planner.state, command["value"]
        ahead = (number - state.planned) & WORD
        in_order = ahead == 1 if command["opcode"] == Opcode.PLAN else 0 < ahead < HALF_RANGE
        if not in_order:
            return Outcome(Status.BATCH_ORDER, error_index=state.planned + 1 & WORD)
        if state.planned + ahead - state.retired > self.config.sweep_batches:
            return Outcome(Status.WINDOW, error_index=self.retired)
        return None

    def choose(self, flags):
        """Take on the policy that the flags of a PLAN or INSTALL tell."""
        policy = PlanPolicy(flags // PlanFlag.POLICY_LOW).name.lower()
        self.planner.state.choose(
            policy, bool(flags & PlanFlag.ADMIT), not flags & PlanFlag.READ_ONLY)

    def mark(self, command, table, row):
        """Hold the rows; return how many of the lookups have a slot."""
        state = self.planner.state
        batch = state.planned + ((command["value"] - state.planned) & WORD)
        keys, times = np.unique(pack_key(self.config, table, row), return_counts=True)
        return sum(times for key, times in zip(keys.tolist(), times.tolist())
                   if state.mark(batch, key) is not None)

    def plan(self, command, lookups, beat, outcome):
        """Plan the batch.

        Parameters
        ----------
        command : dict of str to int
        lookups : (table, row, parts_log2, part)
            Of the lookups that are not refused.
        beat : int64[n]
        outcome : Outcome
            In which all counts but that of the lookups are noted.

        Returns
        -------
        dict of str to ndarray
            The results by operand; `slots` of these lookups only.
        """
        flags, (table, row, *_) = command["flags"], lookups
        self.choose(flags)
        counts = (self.counters.observe_each(table, row, beat)[1] if flags & PlanFlag.COUNT
                  else self.counters.held(table, row))
        state = self.planner.state
        plan = self.planner.plan(state.planned + 1, *lookups, counts)
        lists = plan_lists(self.config, pack_key(self.config, table, row), beat, plan)
        wait_for = plan.wait_for
        if lists.relisted and state.planned - 1 > state.retired:
            wait_for = state.planned - 1  # its entry has the stamp of this batch
        outcome.hits, outcome.misses = lists.hits, outcome.lookups - lists.hits
        outcome.entries, outcome.evictions = len(lists.fill_keys), len(lists.victim_keys)
        outcome.unique = plan.hits + outcome.entries
        outcome.bypasses, outcome.refused = lists.bypasses, lists.unkept
        outcome.wait_for = wait_for & WORD
        return {"slots": lists.slots, "popular": lists.fill_numbers,
                "nonpopular": lists.victim_slots, "misses": self._entries(lists.fill_keys),
                "victims": self._entries(lists.victim_keys)}

    def _entries(self, keys):
        entries = np.zeros(len(keys), ROW_RECORD)
        entries["table"], entries["row"] = unpack_key(self.config, keys)
        return entries


def all_slots(slots, refused):
    """A word for every lookup of the batch, given those of the lookups that are not `refused`."""
    words = np.full(len(refused), NO_SLOT, np.uint32)
    words[~refused] = slots
    return words
