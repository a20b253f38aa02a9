"""The open tools themselves, where a test has no use for stand-ins."""

import pytest
from hotrow_boards.tools import tool


def real_tool(name: str) -> str:
    """The tool; the test is skipped, with how to get it, where it is missing."""
    try:
        return tool(name)
    except ValueError as missing:
        pytest.skip(str(missing))


def place_and_route_tools() -> None:
    """Skip where a netlist cannot be made and routed."""
    for name in ("yosys", "nextpnr-ecp5"):
        real_tool(name)
