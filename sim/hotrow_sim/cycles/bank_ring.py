"""Cycles of the ring of banks, from the first beat to the last answered one, both included."""

from hotrow_rtl.bank_feed import BACKLOG, BankFeed
from hotrow_rtl.bank_ring import BankRing
from hotrow_rtl.config import RING_BEATS

ASKED = BankFeed.latency - 1  # from the entry of a beat to the choice of its first request
LEAVES = BankRing.latency - 3  # from its last answer to when it gives up its place


def ring_cycles(beats, wait):
    """Beats offered without a gap and taken at once, by banks that never stall.

    Parameters
    ----------
    beats : sequence of dict
        Of each: how many of its lanes ask a bank, by the number of the bank.
    wait : int
        Cycles from a request to its answer, fewer than `bank_feed.IN_FLIGHT`.
    """
    entered, left = [], []
    chosen = {}  # by bank: (entry of the beat, choice of its last request) of each beat so far

    def inside(before, starts, ends):
        return sum(start < before for start in starts) - sum(end < before for end in ends)

    def open_at(cycle):
        """Decided in the cycle before, from what happened before that."""
        past = cycle - 1
        return inside(past, entered[-RING_BEATS:], left[-RING_BEATS:]) <= RING_BEATS - 2 and all(
            inside(past, *zip(*recent[-BACKLOG:])) <= BACKLOG - 2 for recent in chosen.values())

    for asks in beats:
        cycle = entered[-1] + 1 if entered else 0
        while not open_at(cycle):
            cycle += 1
        entered.append(cycle)
        complete = cycle + 1
        for bank, count in asks.items():
            earlier = chosen.setdefault(bank, [])
            first = max(cycle + ASKED, earlier[-1][1] + 1 if earlier else 0)
            earlier.append((cycle, first + count - 1))
            complete = max(complete, first + count + wait)
        left.append(max(complete + LEAVES, left[-1] + 1 if left else 0))
    return left[-1] + BankRing.latency - LEAVES + 1
