"""Cycles of the bank crossbar, from the first beat to the last answered beat, both included."""

from hotrow_rtl.config import RING_BEATS
from hotrow_rtl.lookup.banks.bank_queue import BACKLOG, IN_FLIGHT, BankQueue
from hotrow_rtl.lookup.banks.crossbar import BankCrossbar

REQUESTED = BankQueue.latency  # from the entry of a beat to the choice of its first request
RELEASED = BankCrossbar.latency - 3  # from the last answer of a beat to the release of its entry


def crossbar_cycles(beats, wait, distance=1):
    """Cycles of beats that are offered and accepted without idle cycles.

    Parameters
    ----------
    beats : sequence of dict
        Per beat, by number of the bank, its requests in order. A request is the tuple of the sets
        that it locks.
    wait : int
        Cycles from a request to its answer.
    distance : int
        Cycles of a bank between two requests with a common set.
    """
    entered, left = [], []
    banks = {}

    def occupancy(before, starts, ends):
        return sum(start < before for start in starts) - sum(end < before for end in ends)

    def ready(cycle):
        """The hardware computes ready one cycle ahead."""
        past = cycle - 1
        return (occupancy(past, entered[-RING_BEATS:], left[-RING_BEATS:]) <= RING_BEATS - 2
                and all(occupancy(past, *zip(*bank.beats[-BACKLOG:], strict=True)) <= BACKLOG - 3
                        for bank in banks.values()))

    for requests_by_bank in beats:
        cycle = entered[-1] + 1 if entered else 0
        while not ready(cycle):
            cycle += 1
        entered.append(cycle)
        complete = cycle + 1
        for number, requests in requests_by_bank.items():
            bank = banks.setdefault(number, _Bank(wait, distance))
            complete = max(complete, bank.serve(cycle, requests) + 1)
        left.append(max(complete + RELEASED, left[-1] + 1 if left else 0))
    return left[-1] + BankCrossbar.latency - RELEASED + 1


class _Bank:
    """A bank and its queue.

    Attributes
    ----------
    beats : list of tuple
        Per beat the cycles of its entry to the queue and of its last request.
    """

    def __init__(self, wait, distance):
        self.wait, self.distance, self.beats = wait, distance, []
        self._requested, self._begun, self._last = [], [], {}

    def serve(self, entry, requests):
        """Cycle of the answer to the last request of a beat."""
        requested, begun = self._requested, self._begun
        for sets in requests:
            # The bank buffers two requests: the queue issues one more when the first begins.
            requested.append(max(entry + REQUESTED, *(
                before[-number] + least for before, number, least in (
                    (requested, 1, 1), (begun, 2, 2), (begun, IN_FLIGHT, self.wait + 1))
                if len(before) >= number), 0))
            begun.append(max(requested[-1], begun[-1] + 1 if begun else 0, *(
                self._last.get(each, -self.distance) + self.distance for each in sets), 0))
            self._last.update(dict.fromkeys(sets, begun[-1]))
        self.beats.append((entry + 1, requested[-1]))
        return begun[-1] + self.wait
