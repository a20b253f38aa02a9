"""Every unit beside its golden model, on both simulators; `make cocotb` runs all sizes."""

import pytest
from hotrow_rtl.emit.unit import unit_files
from hotrow_rtl.units.catalog import UNITS, unit

# Parameters by unit: the first are for `make test`, in few rounds; all are for `make cocotb`.
CASES = {
    "counters": [
        {"lanes": 2, "counter_sets": 32, "counter_ways": 3, "counter_bits": 5},
        {"lanes": 4},
        {"lanes": 1, "counter_sets": 16, "counter_ways": 2, "counter_bits": 4},
        {"lanes": 8, "lane_banks": 1, "counter_ways": 8, "window_beats": 2},
    ],
}
SHORT = ("counters",)


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
def test_unit(simulate, name, settings, tmp_path):
    chosen = unit(name)
    files, _ = unit_files(chosen, chosen.config(settings))
    described = tmp_path / f"{chosen.module}.json"
    described.write_text(files[described.name])
    rounds = "1" if settings is CASES[name][0] else "3"
    simulate(files[f"{chosen.module}.v"], chosen.module, f"tb_{name}",
             HOTROW_UNIT=str(described), ROUNDS=rounds)
