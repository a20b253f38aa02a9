"""What a geometry cannot be."""

from dataclasses import replace

import pytest
from hotrow_rtl.config import PRESETS, preset

ECP5 = preset("ecp5")


@pytest.mark.parametrize("changes, message", [
    ({"burst_beats": 4}, "burst_beats must be 8 to 256, not 4"),
    ({"burst_beats": 512}, "burst_beats must be 8 to 256, not 512"),
    ({"row_bytes": 2048}, r"row_bytes must be at most 128 \* bus_bytes = 1024, .* not 2048"),
    ({"bus_bytes": 4}, "bus_bytes must be 8 to 64, not 4"),
    ({"lookup_lanes": 2}, "lookup_lanes must be 0 to 1, not 2"),
    ({"lane_banks": 2}, "which one bank serves: lane_banks must be 1 with lookup_lanes=1, not 2"),
    ({"arithmetic_lanes": 4}, "arithmetic_lanes must be 0 to 2, not 4"),
    ({"row_ports": 2}, "which one port moves: row_ports must be 1 with bus_bytes=8, not 2"),
    ({"bag_units": 2}, "bag_units must be 1 to 1, not 2"),
    ({"lane_banks": 3}, "lane_banks must be 1 to 2, not 3"),
    ({"lane_banks": 0}, "lane_banks must be 1 to 2, not 0"),
])
def test_narrow_buses_are_limited(changes, message):
    with pytest.raises(ValueError, match=message):
        replace(ECP5, **changes)


def test_banks():
    assert (ECP5.word_lanes, ECP5.lanes, ECP5.banks) == (2, 1, 1)
    assert all(config.banks == config.lane_banks * config.lanes for config in PRESETS.values())
    assert replace(preset("tiny"), lane_banks=1).banks == 4


@pytest.mark.parametrize("beats", [0, 16])
def test_lookups_join_within_bounds(beats):
    with pytest.raises(ValueError, match=f"window_beats must be 1 to 15, not {beats}"):
        replace(ECP5, window_beats=beats)
