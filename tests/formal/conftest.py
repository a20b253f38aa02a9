"""The tier of the proofs: `make formal`. The machine code of their Yosys takes a minute to make."""

from pathlib import Path

import pytest


@pytest.hookimpl(tryfirst=True)  # before `-m` deselects
def pytest_collection_modifyitems(items):
    """Mark the proofs."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.formal)
            item.add_marker(pytest.mark.slow)
