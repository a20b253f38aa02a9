"""The policy `next`: evicts the row with the latest next use among the known batches."""

from bisect import bisect_right

from hotrow_sim.golden.lookup.slot_table import Slots

NOT_KNOWN = float("inf")


class NextUse(Slots):
    """Slots whose victim is the row with the latest next use in the known batches.

    Rows without a known next use are evicted first, least recently used first. A card has no next
    use, so this policy exists in software only.

    Parameters
    ----------
    config : Config
    batches : list of list of int
        Keys of each batch, each once.
    known : int
        Batches after the planned one whose rows are known.
    """

    def __init__(self, config, batches, known):
        super().__init__(config)
        self._known, self._uses = known, {}
        for number, keys in enumerate(batches):
            for key in keys:
                self._uses.setdefault(key, []).append(number)

    def eviction_rank(self, slot):
        uses = self._uses[self.key_at[slot]]
        at = bisect_right(uses, self.planned)
        known = at < len(uses) and uses[at] - self.planned <= self._known
        return -uses[at] if known else -NOT_KNOWN, self.last_used[slot]
