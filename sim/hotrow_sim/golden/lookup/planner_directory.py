"""Golden model of the directory of a card with a planner, with the interface of `Directory`."""

import numpy as np
from hotrow_rtl.contract.encoding import NO_SLOT

from .counters import pack_key


class PlannerDirectory:
    """The rows in a planner's slots.

    Parameters
    ----------
    planner : Planner
    counters : Counters
        Supply the access count of an installed row.
    """

    def __init__(self, planner, counters):
        self.planner, self.counters = planner, counters

    def clear(self):
        self.planner.clear()

    def lookup(self, table, row, parts_log2, part):
        """See `Directory.lookup`."""
        keys = pack_key(self.planner.config, table, row).tolist()
        slot_of = self.planner.state.slot_of
        return np.fromiter((slot_of.get(key, NO_SLOT) for key in keys), np.uint32, len(keys))

    def install_each(self, table, row, parts_log2, part):
        """See `Directory.install_each`; the slots get numbers by the current policy."""
        keys = pack_key(self.planner.config, table, row).tolist()
        starts = self.planner.starts(table, row, parts_log2, part)
        counts = self.counters.counts_of(table, row).tolist()
        found = [self.planner.state.install(*each)
                 for each in zip(keys, starts, counts, strict=True)]
        return (np.array([NO_SLOT if each.slot is None else each.slot for each in found],
                         np.uint32), np.array([each.hit for each in found], bool))

    def remove(self, table, row, partition):
        """See `Directory.remove`."""
        slot = self.planner.state.remove(int(pack_key(self.planner.config, table, row)))
        return NO_SLOT if slot is None else slot
