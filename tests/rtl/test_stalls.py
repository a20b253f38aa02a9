"""Units with streams: stalls and gaps change when a payload leaves, never which."""

from dataclasses import replace

import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.contract.encoding import Opcode, Status
from hotrow_rtl.interfaces.records import command
from hotrow_rtl.lookup.dispatch.issue import LookupIssue
from hotrow_rtl.lookup.reader.reader import verdict

from tests.rtl.test_restart import CASES, PORTS
from tests.support.restart_harness import Case, payload
from tests.support.stall_harness import check_stalls

ISSUED = Opcode.OBSERVE, Opcode.SPLIT, Opcode.HARVEST, Opcode.DECAY, Opcode.INSTALL, Opcode.REMOVE
# `lists` fires with `jobs`; what comes behind the units is idle at once.
ISSUE = Case(
    lambda: LookupIssue(replace(preset("tiny"), planner=False)),
    inputs={"idle": lambda rng: 1, "cleared": lambda rng: 1, "lists.ready": lambda rng: 1,
            "command.payload": payload(command, opcode=lambda rng: rng.choice(ISSUED)),
            "verdict.payload": payload(verdict, status=lambda rng: rng.choice(
                [Status.OK, Status.OK, Status.LOOKUPS]))},
    replies={"verdict": "reader"}, rests=("command",))
NOT_USED = {"DmaReadPort": (), "DmaWritePort": ("written.1",),
            "RowPort": ("read_rows", "read_words", "written.1")}
UNITS = ("TableRangeCheck", "LaneMerger", "BankCrossbar", "LookupBank", "BankRequestStage",
         "Combiner", "CounterBank", "EntryCheck", "ListRequestStage", "SlotTable", "Victims",
         "RangeCheck", "LookupReader", "BatchStatistics", "BitmapWriteScheduler", "MissNumberBank",
         "MissTableBank", "SlotWords")


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.long if name == "RowPort" else ()) for name in NOT_USED])
def test_ports_with_restarts(name):
    """A list port takes requests while words of before the restart still come, from a memory that
    is late."""
    port = PORTS[name]
    case = replace(port, ignore=NOT_USED[name], settle=port.settle if name == "RowPort" else 0,
                   inputs=port.inputs | {"late": PORTS[f"{name} that stops"].inputs["late"]})
    check_stalls(case, cycles=200, busy=(None, 14, 32, 50))


@pytest.mark.parametrize("name", UNITS)
def test_units(name):
    check_stalls(CASES[name], cycles=100)


def test_issue():
    """A command stands until every unit has it, however late each one takes it."""
    check_stalls(ISSUE, cycles=400)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 5))
@pytest.mark.parametrize("name", UNITS)
def test_units_for_longer(name, seed):
    check_stalls(CASES[name], seed=seed, cycles=1000)
