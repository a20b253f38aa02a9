"""Replacement policies: the number of a slot, by which the victim is chosen.

Source: see ``hotrow_sim.golden.lookup.replacement_policy``.
"""

from amaranth import Mux

from .payloads import Policy

RRIP_NEAR, RRIP_FILLED = 3, 1


def filled(policy, count):
    """Return the number of a slot that a row with access count `count` fills."""
    return Mux(policy == Policy.LRU, 0, Mux(policy == Policy.RRIP, RRIP_FILLED, count))


def used(policy, number, count):
    """Return the number of a slot at the first lookup of a batch."""
    return Mux(policy == Policy.LRU, 0, Mux(policy == Policy.RRIP, RRIP_NEAR, Mux(
        policy == Policy.LFU, count, number)))


def swept(policy, number):
    """Return the number after a sweep."""
    return (number - ((policy == Policy.RRIP) & number.any()))[:len(number)]
