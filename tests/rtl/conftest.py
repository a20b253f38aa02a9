"""Which of the simulations of units count as slow, and how many of those run by default."""

from collections import defaultdict

import pytest

NARROW = 16  # bytes of bus: on wider ones Amaranth's simulator takes several times as long
SAMPLED = 8  # of so many slow cases of one test, one


@pytest.hookimpl(tryfirst=True)  # before what `-m` leaves out is chosen
def pytest_collection_modifyitems(items):
    """Geometries with a wide bus are slow; of a test's slow cases most are `long`."""
    slow = defaultdict(list)
    for item in items:
        if item.path.parent.name != "rtl" or not hasattr(item, "callspec"):
            continue
        if _wide(item):
            item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("slow") and not item.get_closest_marker("long"):
            slow[item.path, item.originalname].append(item)
    for cases in slow.values():
        for number, item in enumerate(cases):
            if number % SAMPLED:
                item.add_marker(pytest.mark.long)


def _wide(item):
    parameters = item.callspec.params.values()
    return (item.callspec.params.get("bus", NARROW) != NARROW
            or any(getattr(value, "bus_bytes", NARROW) > NARROW for value in parameters))
