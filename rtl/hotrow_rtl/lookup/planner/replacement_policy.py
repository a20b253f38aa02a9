"""Replacement policies: the number that a slot is given, and by which its row leaves or stays.

Source: see ``hotrow_sim.golden.lookup.replacement_policy``.
"""

from amaranth import Mux

from .payloads import Policy

RRIP_NEAR, RRIP_FILLED = 3, 1


def filled(policy, count):
    """Number of a slot that a row of that access count enters."""
    return Mux(policy == Policy.LRU, 0, Mux(policy == Policy.RRIP, RRIP_FILLED, count))


def used(policy, number, count):
    """Number of a slot whose row a batch needs, the first time in that batch."""
    return Mux(policy == Policy.LRU, 0, Mux(policy == Policy.RRIP, RRIP_NEAR, Mux(
        policy == Policy.LFU, count, number)))


def swept(policy, number):
    """Number after a sweep."""
    return (number - ((policy == Policy.RRIP) & number.any()))[:len(number)]
