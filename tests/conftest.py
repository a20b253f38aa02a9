"""Ids of parametrized tests, values instead of the number of the case; and which cases are long."""

import gc
import re
from collections import defaultdict
from pathlib import Path
from zlib import crc32

import pytest

LONGEST = 60
APART = "card_kind", "card", "make_planner", "transport", "mode"  # cards and modes
SAMPLED = "driver", "torch"  # folders; tests/rtl has a rule of its own
# A design has many objects that live long: it elaborates in four fifths of the time.
gc.set_threshold(50_000, 20, 50)


def pytest_collection_finish():
    """Take modules and cases out of what the collector searches: a tenth of the suite's time."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)  # before `-m` deselects
def pytest_collection_modifyitems(items):
    """Mark further cases of a test long: of each card and mode, those whose values others have.

    So the default tier has each value of each parameter, and `make regress` further seeds and
    combinations. The names decide, so that a further case does not change the tier of others.
    """
    cases = defaultdict(list)
    for item in items:
        folder = item.path.relative_to(Path(__file__).parent).parts[0]
        if folder not in SAMPLED or not hasattr(item, "callspec"):
            continue
        if item.get_closest_marker("long"):
            continue
        apart = [repr(item.callspec.params[name]) for name in APART if name in item.callspec.params]
        cases[item.path, item.cls, item.originalname, *apart].append(item)
    for of_test in cases.values():
        seen = set()
        for item in sorted(of_test, key=lambda item: (
                any(mark.name == "slow" for mark in item.callspec.marks),
                crc32(item.name.encode()))):
            values = {(name, repr(value)) for name, value in item.callspec.params.items()
                      if name != "seed"}
            if seen and values <= seen:
                item.add_marker(pytest.mark.long)
            seen |= values or {()}


def pytest_make_parametrize_id(val):
    """Name a case by its collection or function: "samples=4" or "gather", not "changed0"."""
    if not isinstance(val, (dict, list, tuple)) and not callable(val):
        return None  # pytest names the others
    return re.sub(r"[^\w.,=:+*<>()-]+", "_", _text(val))[:LONGEST].strip("_") or None


def _text(value):
    match value:
        case dict():
            return ",".join(f"{key}={_text(part)}" for key, part in value.items())
        case list() | tuple():
            return ",".join(map(_text, value))
        case int() | float() | str() | None:
            return str(value)
    if getattr(value, "__name__", None) == "<lambda>":
        return ".".join(value.__code__.co_names[-3:]) or "lambda"
    name = getattr(value, "__name__", getattr(value, "name", None))
    return name if isinstance(name, str) else type(value).__name__
