"""Ids of parametrized tests: values instead of the number of the case."""

import gc
import re

LONGEST = 60
# A design has many objects that live long: it elaborates in four fifths of the time.
gc.set_threshold(50_000, 20, 50)


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
