"""Every unit beside its golden model, on both simulators; `make cocotb` runs all sizes."""

import pytest
from hotrow_rtl.units.catalog import UNITS

from tests.support.unit_files import CASES, files_of

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
    first = settings is CASES[name][0]
    simulate_unit(files_of(name, settings), f"tb_{name}", ROUNDS="1" if first else "3",
                  COCOTB_TEST_FILTER=SHORT.get(name, "") if first else "")
