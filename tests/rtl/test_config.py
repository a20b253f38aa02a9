"""What a geometry cannot be."""

from dataclasses import replace

import pytest
from hotrow_rtl.config import PRESETS, preset

SMALL = preset("ecp5-small")


@pytest.mark.parametrize("changes, message", [
    ({"arithmetic": True}, "a bus of 8 bytes takes arithmetic=False, planner=False and row_ports=1,"
                           " not True, False and 1: widen bus_bytes"),
    ({"planner": True}, "not False, True and 1: widen bus_bytes"),
    ({"row_ports": 2}, "not False, False and 2: widen bus_bytes"),
    ({"burst_beats": 4}, "burst_beats must be 8 to 512, not 4"),
    ({"bus_bytes": 4}, "bus_bytes must be 8 to 64, not 4"),
    ({"lane_banks": 3}, "lane_banks must be 1 to 2, not 3"),
    ({"lane_banks": 0}, "lane_banks must be 1 to 2, not 0"),
])
def test_narrow_buses_are_limited(changes, message):
    with pytest.raises(ValueError, match=message):
        replace(SMALL, **changes)


def test_banks():
    assert (SMALL.lanes, SMALL.banks) == (2, 2)
    assert all(config.banks == config.lane_banks * config.lanes for config in PRESETS.values())
    assert replace(preset("tiny"), lane_banks=1).banks == 4


@pytest.mark.parametrize("beats", [0, 16])
def test_lookups_join_within_bounds(beats):
    with pytest.raises(ValueError, match=f"window_beats must be 1 to 15, not {beats}"):
        replace(SMALL, window_beats=beats)


def test_with_planner():
    alike = preset("ecp5-85f").with_planner()
    assert (alike.planner, alike.window_beats) == (True, 8)
    assert replace(alike, planner=False, window_beats=4) == preset("ecp5-85f")
    assert alike.with_planner() is alike
