"""The page of coverage: what is read from Verilator and from coverage.py, and what it states."""

import os
import subprocess
import sys

import hotrow
import numpy as np
import pytest

from tests.driver.interrupts import interrupted
from tests.support import points
from tests.support.coverage import CARD, card_page, python_page, read_counts, summaries, unit_of

OPENS = """
import sys
from tests.support import covered
from hotrow_sim.verilated import transport

def opened(card, *others):
    sys.exit(f"opened {card == covered.CARD}")

transport.device_library = opened
"""


def _file(lines, every, branches=0, all_branches=0):
    return {"summary": {"covered_lines": lines, "num_statements": every,
                        "covered_branches": branches, "num_branches": all_branches}}


def _point(kind, module, name, count, line=1):
    fields = {"f": "hotrow.v", "l": line, "n": 3, "t": kind, "page": f"v_{kind}/{module}",
              "o": name}
    packed = "".join(f"\1{key}\2{value}" for key, value in fields.items())
    return f"C '{packed}' {count}\n".encode()


def test_packages_and_the_files_with_few_lines():
    text = "\n".join(python_page(summaries({"files": {
        "sw_driver/hotrow/a.py": _file(90, 100, 1, 2), "sw_driver/hotrow/b.py": _file(89, 100),
        "sw_driver/hotrow/torch/c.py": _file(10, 10),
        "sw_driver/hotrow/torch/d.py": _file(0, 0)}})))
    assert "| hotrow | 89.5% | 50.0% |" in text and "| hotrow/torch | 100.0% | - |" in text
    assert "| all | 90.0% | 50.0% |" in text
    assert "| hotrow/b.py | 89.0% | - |\n" in text


def test_units_and_points_of_the_card():
    point, (module, toggle) = next(iter(points.SIGNALS.items()))
    counts = read_counts(
        b"# SystemC::Coverage-3\n" + _point("line", "hotrow.list_port.client_0", "block", 2)
        + _point("line", "hotrow.list_port.client_1", "block", 0)
        + _point("branch", "RowPort.reader", "if", 0, 2) + _point("toggle", module, toggle, 1))
    notes = {each for group in points.noted().values() for each in group}
    missed = sorted(notes)[0]
    text = "\n".join(card_page(counts, notes - {missed}))
    assert "| `hotrow.list_port` | 50.0% | - | - |" in text
    assert "| `RowPort.reader` | - | 0.0% | - |" in text and "| `all` | 50.0% | 0.0% |" in text
    assert f"Missed: {missed}, " in text and point not in text.split("Missed:")[1]


def test_units():
    assert unit_of("hotrow.engines.bitmap.even0.ram") == "hotrow.engines.bitmap"
    assert unit_of("hotrow.result_port_0.client_3") == "hotrow.result_port"
    assert unit_of("hotrow_ram__A3_D8_R1_W20") == "hotrow_ram"


@pytest.mark.parametrize("command", [code for flag, code, *_ in CARD if flag == "-c"])
def test_the_fuzzers_open_the_card_whose_execution_is_counted(command, tmp_path):
    found = subprocess.run([sys.executable, "-c", OPENS + command], text=True,
                           stderr=subprocess.PIPE, check=False,
                           env={**os.environ, "HOTROW_COVERAGE": str(tmp_path)})
    assert (found.returncode, found.stderr.strip()) == (1, "opened True")


def test_a_planted_interrupt_does_not_end_the_measurement():
    def measure(frame, event, argument):
        return None

    before = sys.gettrace()
    sys.settrace(measure)
    try:
        assert interrupted(lambda: hotrow.empty(4, np.float32), 1)
        assert sys.gettrace() is measure
    finally:
        sys.settrace(before)
