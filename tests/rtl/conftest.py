"""Tiers of the simulations of units: which cases are slow, and which of those are long."""

from collections import defaultdict
from pathlib import Path
from zlib import crc32

import pytest

NARROW = 16  # bytes of bus; on wider ones Amaranth's simulator takes several times as long
SAMPLED = 8  # one in so many slow cases of a test stays slow, the others are long


@pytest.hookimpl(tryfirst=True)  # before `-m` deselects
def pytest_collection_modifyitems(items):
    """Mark cases with a wide bus slow, and most slow cases of a test long.

    A case whose own parameters are marked slow stays slow. Of the others, their names decide, so
    that new cases do not change the sample.
    """
    slow = defaultdict(list)
    for item in items:
        if Path(__file__).parent not in item.path.parents or not hasattr(item, "callspec"):
            continue
        if any(mark.name in ("slow", "long") for mark in item.callspec.marks):
            continue
        if _wide(item):
            item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("slow") and not item.get_closest_marker("long"):
            slow[item.path, item.originalname].append(item)
    for cases in slow.values():
        cases.sort(key=lambda item: crc32(item.name.encode()))
        for item in cases[-(-len(cases) // SAMPLED):]:
            item.add_marker(pytest.mark.long)


def _wide(item):
    parameters = item.callspec.params.values()
    return (item.callspec.params.get("bus", NARROW) != NARROW
            or any(getattr(value, "bus_bytes", NARROW) > NARROW for value in parameters))
