"""Cycles of the ring of banks, from the first beat to the last answered one, both included."""

from hotrow_rtl.config import RING_BEATS
from hotrow_rtl.lookup.banks.bank_queue import BACKLOG, IN_FLIGHT, BankQueue
from hotrow_rtl.lookup.banks.crossbar import BankCrossbar

ASKED = BankQueue.latency  # from the entry of a beat to the choice of its first request
LEAVES = BankCrossbar.latency - 3  # from its last answer to when it gives up its place


def ring_cycles(beats, wait, distance=1):
    """Beats offered without a gap and taken at once.

    Parameters
    ----------
    beats : sequence of dict
        Of each, by the number of the bank that its lanes ask: what they ask, in order. Of each
        request the sets that it needs to itself, as a tuple.
    wait : int
        Cycles from a request to its answer, if it need not wait for another.
    distance : int
        Of a bank: cycles from a request to the next that has a set in common with it.
    """
    entered, left = [], []
    banks = {}

    def inside(before, starts, ends):
        return sum(start < before for start in starts) - sum(end < before for end in ends)

    def open_at(cycle):
        """Decided in the cycle before, from what happened before that."""
        past = cycle - 1
        return inside(past, entered[-RING_BEATS:], left[-RING_BEATS:]) <= RING_BEATS - 2 and all(
            inside(past, *zip(*bank.beats[-BACKLOG:])) <= BACKLOG - 3
            for bank in banks.values())

    for asks in beats:
        cycle = entered[-1] + 1 if entered else 0
        while not open_at(cycle):
            cycle += 1
        entered.append(cycle)
        complete = cycle + 1
        for number, requests in asks.items():
            bank = banks.setdefault(number, _Bank(wait, distance))
            complete = max(complete, bank.serve(cycle, requests) + 1)
        left.append(max(complete + LEAVES, left[-1] + 1 if left else 0))
    return left[-1] + BankCrossbar.latency - LEAVES + 1


class _Bank:
    """One bank behind its feed.

    Members
    -------
    beats : list of tuple
        Of each beat so far: when it came to the feed, which gave the last of its requests when.
    """

    def __init__(self, wait, distance):
        self.wait, self.distance, self.beats = wait, distance, []
        self._given, self._begun, self._last = [], [], {}

    def serve(self, entry, requests):
        """Cycle of the answer to the last request of a beat."""
        given, begun = self._given, self._begun
        for sets in requests:
            # Two wait in the bank: one more is given when the first of them begins.
            given.append(max(entry + ASKED, *(
                before[-number] + least for before, number, least in (
                    (given, 1, 1), (begun, 2, 2), (begun, IN_FLIGHT, self.wait + 1))
                if len(before) >= number), 0))
            begun.append(max(given[-1], begun[-1] + 1 if begun else 0, *(
                self._last.get(each, -self.distance) + self.distance for each in sets), 0))
            self._last.update(dict.fromkeys(sets, begun[-1]))
        self.beats.append((entry + 1, given[-1]))
        return begun[-1] + self.wait
