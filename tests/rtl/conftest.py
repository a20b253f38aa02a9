"""Tiers of the simulations of units: which cases are slow, and which are long."""

from collections import defaultdict
from pathlib import Path
from zlib import crc32

import pytest

NARROW = 16  # bytes of bus; on wider ones Amaranth's simulator takes several times as long
SAMPLED = 8  # one in so many cases of a slow test is in the default tier; the others are long


@pytest.hookimpl(tryfirst=True)  # before `-m` deselects
def pytest_collection_modifyitems(items):
    """Mark cases slow or long, so that the default tier has each value of each parameter.

    One case of a test is quick; further ones are slow where they have a value that no case before
    them has, otherwise long: seeds, and combinations of values. Of a slow test, and of a file's
    cases with a wide bus, a sample is slow. A case whose own parameters are marked slow or long
    keeps that tier.
    The names decide, so that a further case does not change the tier of existing ones.
    """
    quick, slow = defaultdict(list), defaultdict(list)
    for item in items:
        if Path(__file__).parent not in item.path.parents or not hasattr(item, "callspec"):
            continue
        if any(mark.name in ("slow", "long") for mark in item.callspec.marks):
            continue
        if item.get_closest_marker("long"):
            continue
        if _wide(item):
            item.add_marker(pytest.mark.slow)
            slow[item.path].append(item)
            continue
        cases = slow if item.get_closest_marker("slow") else quick
        cases[item.path, item.cls, item.originalname].append(item)
    for cases in slow.values():
        for item in _by_name(cases)[-(-len(cases) // SAMPLED):]:
            item.add_marker(pytest.mark.long)
    for cases in quick.values():
        seen = set()
        for item in _by_name(cases):
            values = {(name, repr(value)) for name, value in item.callspec.params.items()
                      if name != "seed"}
            if seen:
                item.add_marker(pytest.mark.long if values <= seen else pytest.mark.slow)
            seen |= values or {()}


def _by_name(cases):
    return sorted(cases, key=lambda item: crc32(item.name.encode()))


def _wide(item):
    parameters = item.callspec.params.values()
    return (item.callspec.params.get("bus", NARROW) != NARROW
            or any(getattr(value, "bus_bytes", NARROW) > NARROW for value in parameters))
