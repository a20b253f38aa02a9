"""Timing diagrams of every unit, drawn from its bench: `python -m tests.cocotb.timing_diagrams`.

Writes docs/images/timing_UNIT.svg; `pip install wavedrom` first.
"""

import json
import sys
import tempfile
from pathlib import Path

from hotrow_sim.bench import simulate_unit
from hotrow_sim.bench.timing import svg

from tests.support.unit_files import CASES, files_of

HERE = Path(__file__).parent
IMAGES = HERE.parents[1] / "docs" / "images"
# Which test of the bench, as a filter of cocotb.
TESTS = {"counters": "pace=1", "planner": "edges", "row_mover": "pace=0", "bridge": ""}


def draw(name: str) -> Path:
    """Run a test of a unit's bench in Icarus and draw its first transfers."""
    with tempfile.TemporaryDirectory(prefix="hotrow-timing-") as folder:
        for file, text in files_of(name, CASES[name][0]).items():
            Path(folder, file).write_text(text)
        description, = Path(folder).glob("hotrow_*.json")
        simulate_unit(description, f"tb_{name}", folder=folder, environment={
            "HOTROW_TIMING": f"{folder}/timing", "COCOTB_TEST_FILTER": TESTS.get(name, "edges"),
            "ROUNDS": "1"})
        text = svg(json.loads(Path(folder, "timing").read_text()))
    image = IMAGES / f"timing_{name}.svg"
    image.write_text(text)
    return image


if __name__ == "__main__":
    sys.path.append(str(HERE / "units"))
    for unit_name in sys.argv[1:] or CASES:
        print(draw(unit_name), flush=True)
