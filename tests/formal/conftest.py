"""Proofs that take long: `make formal` runs them, `make test` does not."""

import pytest


def pytest_collection_modifyitems(items):
    """What is left to `make formal` is slow as well."""
    for item in items:
        if item.path.parent.name == "formal" and item.get_closest_marker("formal"):
            item.add_marker(pytest.mark.slow)
