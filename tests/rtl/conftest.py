"""Tiers of the simulations of units: which cases are slow, and which are long."""

from collections import defaultdict
from pathlib import Path
from zlib import crc32

import pytest

NARROW = 16  # bytes of bus; on wider ones Amaranth's simulator takes several times as long


@pytest.hookimpl(tryfirst=True)  # before `-m` deselects
def pytest_collection_modifyitems(items):
    """Mark cases slow or long, so that the default tier has each value of each parameter.

    Of the cases of a test, one is of the test's own tier; further ones are slow where they have a
    value that no case before them has, otherwise long: seeds, and combinations of values. A case
    with a wide bus is slow. A case whose own parameters are marked slow or long keeps that tier.
    The names decide, so that a further case does not change the tier of existing ones.
    """
    cases = defaultdict(list)
    for item in items:
        if Path(__file__).parent not in item.path.parents or not hasattr(item, "callspec"):
            continue
        if any(mark.name in ("slow", "long") for mark in item.callspec.marks):
            continue
        if not item.get_closest_marker("long"):
            cases[item.path, item.cls, item.originalname].append(item)
    for of_test in cases.values():
        seen = set()
        for item in sorted(of_test, key=lambda item: (_wide(item), crc32(item.name.encode()))):
            values = {(name, repr(value)) for name, value in item.callspec.params.items()
                      if name != "seed"}
            if seen and values <= seen:
                item.add_marker(pytest.mark.long)
            elif seen or _wide(item):
                item.add_marker(pytest.mark.slow)
            seen |= values or {()}


def _wide(item):
    parameters = item.callspec.params.values()
    return (item.callspec.params.get("bus", NARROW) != NARROW
            or any(getattr(value, "bus_bytes", NARROW) > NARROW for value in parameters))
