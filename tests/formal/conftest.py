"""Tiers of the proofs: `make formal` runs all, `make test` those that take seconds."""

import pytest


def pytest_collection_modifyitems(items):
    """Mark the proofs that only `make formal` runs as slow."""
    for item in items:
        if item.path.parent.name == "formal" and item.get_closest_marker("formal"):
            item.add_marker(pytest.mark.slow)
