"""Which of the simulations of units count as slow."""

import pytest

NARROW = 16  # bytes of bus: on wider ones Amaranth's simulator takes several times as long


def pytest_collection_modifyitems(items):
    """Geometries with a wide bus are slow."""
    for item in items:
        if item.path.parent.name != "rtl" or not hasattr(item, "callspec"):
            continue
        parameters = item.callspec.params.values()
        wide = any(getattr(value, "bus_bytes", NARROW) > NARROW for value in parameters)
        if wide or item.callspec.params.get("bus", NARROW) != NARROW:
            item.add_marker(pytest.mark.slow)
