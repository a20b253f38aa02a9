"""Replacement policies: the priority of a row in its slot.

Source: see ``hotrow_sim.golden.lookup.slot_table``.
"""

from amaranth import Mux

from .payloads import Policy

RRIP_NEAR, RRIP_FILLED = 3, 1


def filled(policy, count):
    """Priority of a row with that access count when it enters a slot."""
    return Mux(policy == Policy.LRU, 0, Mux(policy == Policy.RRIP, RRIP_FILLED, count))


def used(policy, priority, count):
    """Priority of a row when a batch needs it, the first time in that batch."""
    return Mux(policy == Policy.LRU, 0, Mux(policy == Policy.RRIP, RRIP_NEAR, Mux(
        policy == Policy.LFU, count, priority)))


def swept(policy, priority):
    """Priority after a sweep."""
    return (priority - ((policy == Policy.RRIP) & priority.any()))[:len(priority)]
