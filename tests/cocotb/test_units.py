"""Every unit beside its golden model, on both simulators; `make cocotb` runs all sizes."""

import pytest
from hotrow_rtl.emit.unit import unit_files
from hotrow_rtl.units.catalog import UNITS, unit

# Parameters by unit; all are for `make cocotb`, the first of those in SHORT for `make test`.
CASES = {
    "counters": [
        {"lanes": 2, "counter_sets": 32, "counter_ways": 3, "counter_bits": 5},
        {"lanes": 4},
        {"lanes": 1, "counter_sets": 16, "counter_ways": 2, "counter_bits": 4},
        {"lanes": 8, "lane_banks": 1, "counter_ways": 8, "window_beats": 2},
    ],
    "splitter": [
        {"lanes": 1, "counter_sets": 16, "counter_ways": 2, "directory_sets": 16,
         "directory_ways": 2, "directory_choices": 1, "miss_entries": 32, "tables": 4,
         "window_beats": 2},
        {"lanes": 2, "counter_sets": 16, "counter_ways": 2, "directory_sets": 16,
         "directory_ways": 2, "miss_entries": 32, "tables": 4, "window_beats": 2},
        {"lanes": 4, "directory_partitions": 4, "directory_choices": 1},
        {"lanes": 1, "directory_sets": 32, "miss_entries": 32},
    ],
    "planner": [
        {"lanes": 2, "counter_sets": 16, "counter_ways": 2, "directory_sets": 16,
         "directory_ways": 2, "miss_entries": 32, "tables": 4, "stamp_bits": 5},
        {"lanes": 4, "directory_partitions": 4},
        {"lanes": 1, "directory_choices": 1, "directory_sets": 32, "stamp_bits": 4},
    ],
    "row_mover": [
        {"lanes": 1, "tables": 16, "handles": 8},
        {"lanes": 2, "tables": 16, "handles": 8},
        {"lanes": 4, "tables": 16, "handles": 8, "row_ports": 2},
        {"lanes": 16, "tables": 16, "handles": 8, "row_ports": 4},
    ],
    "pooling": [{"arithmetic_lanes": 2}, {"arithmetic_lanes": 1}, {"arithmetic_lanes": 8}],
    "update": [{"arithmetic_lanes": 2}, {"arithmetic_lanes": 1}, {"arithmetic_lanes": 8}],
    "list_writer": [{"lanes": 2}, {"lanes": 1}, {"lanes": 8}],
    "bridge": [{"lanes": 2}, {"lanes": 4}],
}
# Which tests of the bench `make test` runs, as a filter of cocotb; "" for all.
SHORT = {"counters": "", "splitter": "edges", "row_mover": "refused", "bridge": ""}


def cases():
    for name, settings in CASES.items():
        for number, each in enumerate(settings):
            short = number == 0 and name in SHORT
            label = ",".join(f"{key}={value}" for key, value in each.items())
            yield pytest.param(name, each, id=f"{name}-{label}",
                               marks=pytest.mark.slow if short else pytest.mark.long)


def test_every_unit_has_cases():
    assert list(CASES) == list(UNITS)


@pytest.mark.parametrize("name, settings", list(cases()))
def test_unit(simulate_unit, name, settings):
    if name == "bridge":
        pytest.importorskip("cocotbext.pcie", reason="cocotbext-pcie is not installed")
    chosen = unit(name)
    files, _ = unit_files(chosen, chosen.config(settings))
    first = settings is CASES[name][0]
    simulate_unit(files, f"tb_{name}", ROUNDS="1" if first else "3",
                  COCOTB_TEST_FILTER=SHORT.get(name, "") if first else "")
