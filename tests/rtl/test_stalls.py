"""Units with streams: stalls and gaps change when a payload leaves, never which."""

from dataclasses import replace

import pytest

from tests.rtl.test_restart import CASES, PORTS
from tests.support.stall_harness import check_stalls

NOT_USED = {"DmaReadPort": (), "DmaWritePort": ("written.1",),
            "RowPort": ("read_rows", "read_words", "written.1")}
UNITS = ("TableRangeCheck", "LaneMerger", "BankCrossbar", "LookupBank", "BankRequestStage",
         "Combiner", "CounterBank", "EntryCheck", "ListRequestStage", "SlotTable", "Victims",
         "RangeCheck", "LookupReader", "BatchStatistics", "BitmapWriteScheduler", "MissNumberBank",
         "MissTableBank", "SlotWords")


@pytest.mark.parametrize("name", NOT_USED)
def test_ports_with_restarts(name):
    """A list port takes requests while words of before the restart still come, from a memory that
    is late."""
    port = PORTS[name]
    case = replace(port, ignore=NOT_USED[name], settle=port.settle if name == "RowPort" else 0,
                   inputs=port.inputs | {"late": PORTS[f"{name} that stops"].inputs["late"]})
    check_stalls(case, cycles=200, busy=(None, *range(14, 60, 9)))


@pytest.mark.parametrize("name", UNITS)
def test_units(name):
    check_stalls(CASES[name], cycles=150)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 5))
@pytest.mark.parametrize("name", UNITS)
def test_units_for_longer(name, seed):
    check_stalls(CASES[name], seed=seed, cycles=1000)
