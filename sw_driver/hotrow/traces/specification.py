"""Opening the trace that the text of `--trace` names."""

from collections.abc import Sequence
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import TypeVar

from ..command.options import TRACES
from .criteo import open_criteo
from .drifting import PERIOD, DriftingTrace
from .log import open_log
from .synthetic import CRITEO_SLOPE, SyntheticTrace, criteo_shape
from .trace import Trace, TraceError

N = TypeVar("N", int, float)
SAMPLE = "sample"  # a short log of this package: clicked, item, user, price
GENERATED_TABLES, GENERATED_ROWS = 26, 2**20


def open_trace(spec: str, ids: Sequence[str] = (), label: str | None = None,
               dense: Sequence[str] = (), bag: str | None = None, rows: Sequence[int] | None = None,
               seed: int = 0, tables: int = GENERATED_TABLES, table_rows: int = GENERATED_ROWS,
               hash_rows: int | None = None, any_ids: int | None = None,
               numbered: bool = False) -> Trace:
    """Open a trace.

    Parameters
    ----------
    spec : str
        `zipf:S[:rows]`, `uniform[:rows]` (`tables` equal tables, `table_rows` each by default),
        `drift:S[:rows[:period]]` (the hot rows are replaced within `period` batches),
        `single` (the same id in every lookup), `criteo-shape[:S]` (Criteo Kaggle's 26 tables),
        `criteo:FILE`, `sample` (a short generated log of this package, with columns clicked, item,
        user and price), or the path of a file with a header,
        separated by tabs, commas or semicolons, or of Parquet.
    ids, label, dense, bag, rows
        Columns of such a file, see `open_log`.
    seed, tables, table_rows : int
        For generated traces.
    hash_rows : int, optional
        For files: the row of an id is the id modulo this number.
    any_ids : int, optional
        For files: ids are any integers or strings, and a table has at most so many rows.
    numbered : bool
        For files: number ids that are no rows, see `open_log`.

    Returns
    -------
    Trace

    Raises
    ------
    TraceError
    """
    if seed < 0 or tables < 1:
        raise TraceError(f"a seed is 0 or more, and there is at least one table: got {seed} and "
                         f"{tables}")
    kind, *arguments = spec.split(":")
    generators = {"zipf": _zipf, "drift": _drift, "uniform": _uniform, "single": _single,
                  "criteo-shape": _criteo}
    if spec == SAMPLE:
        path = str(files(__package__) / "sample.tsv")
        try:
            sample = open_log(path, ids, label, dense, bag, rows, hash_rows, any_ids, numbered)
        except TraceError as wrong:
            raise TraceError(str(wrong).replace(path, SAMPLE)) from None
        sample.name, sample.synthetic = SAMPLE, True
        return sample
    if kind not in generators and kind != "criteo":
        close = get_close_matches(kind, (*generators, "criteo", SAMPLE), 1)
        if close and not Path(spec).exists():
            raise TraceError(f"no trace file {spec}: did you mean {close[0]}?")
        return open_log(spec, ids, label, dense, bag, rows, hash_rows, any_ids, numbered)
    if ids or label or dense or bag or rows:
        raise TraceError(f"trace {spec!r} has columns of its own: leave --ids, --label, --dense "
                         "and --bag out")
    if kind == "criteo":
        if not any(arguments):
            raise TraceError(f"trace {spec!r} names no file: write criteo:FILE")
        return open_criteo(spec.partition(":")[2], hash_rows, any_ids)
    if hash_rows or any_ids:
        raise TraceError(f"trace {spec!r} is generated, with ids from 0: leave "
                         f"{'--hash-rows' if hash_rows else '--any-ids'} out")
    return generators[kind](spec, arguments, seed, tables, table_rows)


def _zipf(spec: str, arguments: list[str], seed: int, tables: int, rows: int) -> Trace:
    if not 1 <= len(arguments) <= 2:
        raise _malformed(spec, "zipf:S[:rows]")
    slope = _number(spec, arguments[0], float, "slope")
    return SyntheticTrace(spec, [_rows(spec, arguments[1:], rows)] * tables, slope, seed=seed)


def _drift(spec: str, arguments: list[str], seed: int, tables: int, rows: int) -> Trace:
    if not 1 <= len(arguments) <= 3:
        raise _malformed(spec, "drift:S[:rows[:period]]")
    slope = _number(spec, arguments[0], float, "slope")
    cardinalities = [_rows(spec, arguments[1:2], rows)] * tables
    period = PERIOD
    if arguments[2:]:
        period = _number(spec, arguments[2], int, "number of batches")
    if not 1 <= period < 2**32:
        raise TraceError(f"trace {spec!r}: a period is 1 or more batches, not {period}")
    return DriftingTrace(spec, cardinalities, slope, period, seed)


def _uniform(spec: str, arguments: list[str], seed: int, tables: int, rows: int) -> Trace:
    if len(arguments) > 1:
        raise _malformed(spec, "uniform[:rows]")
    return SyntheticTrace(spec, [_rows(spec, arguments, rows)] * tables, 0.0, seed=seed)


def _single(spec: str, arguments: list[str], seed: int, tables: int, rows: int) -> Trace:
    if arguments:
        raise _malformed(spec, "single")
    return SyntheticTrace(spec, [_rows(spec, arguments, rows)] * tables, None, seed=seed)


def _criteo(spec: str, arguments: list[str], seed: int, tables: int, rows: int) -> Trace:
    if len(arguments) > 1:
        raise _malformed(spec, "criteo-shape[:S]")
    slope = _number(spec, arguments[0], float, "slope") if arguments else CRITEO_SLOPE
    return criteo_shape(slope, seed)


def _rows(spec: str, arguments: list[str], default: int) -> int:
    rows = _number(spec, arguments[0], int, "number of rows") if arguments else default
    if not 1 <= rows <= 2**32:
        raise TraceError(f"trace {spec!r}: a table has 1 to 2**32 rows, not {rows}")
    return rows


def _number(spec: str, text: str, kind: type[N], what: str) -> N:
    try:
        number = kind(text)
    except ValueError:
        number = -1
    if not 0 <= number < float("inf"):
        raise TraceError(f"trace {spec!r}: {text!r} is no {what}; expected {TRACES}")
    return number


def _malformed(spec: str, form: str) -> TraceError:
    return TraceError(f"trace {spec!r} does not read as {form}")
