"""The open tools, for tests that do not use stand-ins."""

import pytest
from hotrow_boards.tools import tool


def real_tool(name: str) -> str:
    """Path of a tool; skips the test if the tool is missing."""
    try:
        return tool(name)
    except ValueError as missing:
        pytest.skip(str(missing))


def place_and_route_tools() -> None:
    """Skip the test if a tool for synthesis or routing is missing."""
    for name in ("yosys", "nextpnr-ecp5"):
        real_tool(name)
