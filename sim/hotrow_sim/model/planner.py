"""PLAN and MARK: the golden planner with the host's batch numbers, which wrap around."""

import numpy as np
from hotrow_rtl.contract.encoding import Opcode, PlanFlag, PlanPolicy, Status

from ..golden.lookup.counters import pack_key, unpack_key
from ..golden.lookup.plan_lists import plan_lists
from ..golden.lookup.planner import Planner
from ..golden.outcome import Outcome
from ..golden.records import ROW_RECORD
from .command_queue import HALF_RANGE, WORD, ahead


class PlanEngine:
    """The planner of a card, and the batches that it has planned and retired.

    Parameters
    ----------
    config : Config
    counters : Counters

    Attributes
    ----------
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
        """Write PLAN_RETIRED; return whether the card accepts it."""
        state = self.planner.state
        distance = ahead(number, state.retired)
        if distance > state.planned - state.retired:
            return False
        self.planner.retire(state.retired + distance)
        return True

    def refusal(self, command):
        """Outcome of a PLAN or MARK that is out of order or beyond the window, or None."""
        state = self.planner.state
        distance = ahead(command["value"], state.planned)
        in_order = (distance == 1 if command["opcode"] == Opcode.PLAN
                    else 0 < distance < HALF_RANGE)
        if not in_order:
            return Outcome(Status.BATCH_ORDER, error_index=state.planned + 1 & WORD)
        if state.planned + distance - state.retired > self.config.sweep_batches:
            return Outcome(Status.WINDOW, error_index=self.retired)
        return None

    def set_policy(self, flags):
        """Adopt the policy in the flags of a PLAN or INSTALL."""
        policy = PlanPolicy(flags // PlanFlag.POLICY_LOW).name.lower()
        self.planner.state.set_policy(
            policy, bool(flags & PlanFlag.ADMIT), not flags & PlanFlag.READ_ONLY)

    def mark(self, command, table, row):
        """Hold the rows; return the number of lookups that have a slot."""
        state = self.planner.state
        batch = state.planned + ahead(command["value"], state.planned)
        keys, times = np.unique(pack_key(self.config, table, row), return_counts=True)
        return sum(times for key, times in zip(keys.tolist(), times.tolist(), strict=True)
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
            Receives all counts except the number of lookups.

        Returns
        -------
        dict of str to ndarray
            The results by operand; `slots` of these lookups only.
        """
        flags, (table, row, *_) = command["flags"], lookups
        self.set_policy(flags)
        counts = (self.counters.observe_with_counts(table, row, beat)[1] if flags & PlanFlag.COUNT
                  else self.counters.counts_of(table, row))
        state = self.planner.state
        plan = self.planner.plan(state.planned + 1, *lookups, counts)
        lists = plan_lists(self.config, pack_key(self.config, table, row), beat, plan)
        wait_for = plan.wait_for
        if lists.relisted and state.planned - 1 > state.retired:
            wait_for = state.planned - 1  # the bypass table already has the stamp of this batch
        outcome.hits, outcome.misses = lists.hits, outcome.lookups - lists.hits
        outcome.entries, outcome.evictions = len(lists.fill_keys), len(lists.victim_keys)
        outcome.unique = plan.hits + outcome.entries
        outcome.bypasses, outcome.refused = lists.bypasses, lists.unkept
        outcome.wait_for = wait_for & WORD
        return {"slots": lists.slots, "fill_slots": lists.fill_numbers,
                "victim_slots": lists.victim_slots, "fills": self._entries(lists.fill_keys),
                "victims": self._entries(lists.victim_keys)}

    def _entries(self, keys):
        entries = np.zeros(len(keys), ROW_RECORD)
        entries["table"], entries["row"] = unpack_key(self.config, keys)
        return entries
