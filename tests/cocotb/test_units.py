"""Every unit beside its golden model; `make cocotb` runs the first size of each on both simulators,
and the second one on Icarus."""

import shutil

import pytest
from hotrow_rtl.units.catalog import UNITS

from tests.support.unit_files import CASES, files_of

# Which tests of a bench `make test` runs, as a filter of cocotb; "" for all.
SHORT = {"counters": "", "splitter": "commands.*1|edges|full|restart",
         "row_mover": "commands.*1|refused", "bridge": "0.0/limits=0|0.3/limits=1"}
QUICK = "icarus" if shutil.which("iverilog") else "verilator"  # which builds for half a minute


def cases():
    """(simulator, unit, parameters, rounds, filter)."""
    for name, settings in CASES.items():
        for number, each in enumerate(settings):
            for simulator in ("icarus", "verilator"):
                rounds, chosen, marks = "2", "", [pytest.mark.long]
                if number == 0 and simulator == QUICK and name in SHORT:
                    rounds, chosen, marks = "1", SHORT[name], [pytest.mark.slow]
                elif number > 1 or (number == 1 and simulator != QUICK):
                    marks.append(pytest.mark.nightly)
                label = ",".join(f"{key}={value}" for key, value in each.items())
                yield pytest.param(simulator, name, each, rounds, chosen, marks=marks,
                                   id=f"{simulator}-{name}-{label}")


def test_every_unit_has_cases():
    assert list(CASES) == list(UNITS)


@pytest.mark.parametrize("simulator, name, settings, rounds, chosen", list(cases()),
                         indirect=["simulator"])
def test_unit(simulate_unit, name, settings, rounds, chosen):
    if name == "bridge":
        pytest.importorskip("cocotbext.pcie", reason="cocotbext-pcie is not installed")
    simulate_unit(files_of(name, settings), f"tb_{name}", ROUNDS=rounds,
                  COCOTB_TEST_FILTER=chosen)
