"""Output of commands: progress on standard error, results on standard output."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table


class Steps:
    """A progress bar on standard error, if that is a terminal; a context manager."""

    def __init__(self) -> None:
        console = Console(stderr=True, highlight=False)
        self._bars = Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
                              TimeRemainingColumn(), TextColumn("{task.fields[note]}"),
                              console=console, disable=not console.is_terminal)
        self._bar: TaskID | None = None

    def begin(self, what: str, total: float | None = None) -> Callable[..., None]:
        """Show the next step, of `total` parts; return a function to call as each is done."""
        if self._bar is not None:
            self._bars.remove_task(self._bar)
        bar = self._bar = self._bars.add_task(what, total=total, note="")

        def advance(note: str = "") -> None:
            self._bars.update(bar, advance=1, note=note)
        return advance

    def __enter__(self) -> "Steps":
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()


def print_json(result: object) -> None:
    """Print one JSON object on one line; numbers that are not finite become null."""
    print(json.dumps(finite(result), allow_nan=False))


def finite(value: Any) -> Any:
    """A JSON value in which null replaces numbers that are not finite."""
    if isinstance(value, dict):
        return {name: finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def console() -> Console:
    """Standard output."""
    return Console(highlight=False)


def show(result: Mapping[str, Any], title: str) -> None:
    """Print the figures of a result, then a table of each list of records in it."""
    flat = dict(_flat(result))
    figures = Table("figure", "value", title=title)
    for name, value in flat.items():
        if not _records(value):
            figures.add_row(name, text(value))
    console().print(figures)
    for name, value in flat.items():
        if _records(value):
            show_records(console(), name, [
                {key: each for key, each in record.items() if not isinstance(each, dict)}
                for record in value])


def show_records(console: Console, title: str, records: Sequence[Mapping[str, Any]]) -> None:
    """Print records as a table: one per row, or one per column where rows would be too wide."""
    heads = list(dict.fromkeys(key for record in records for key in record))
    rows = [[text(record.get(key)) for key in heads] for record in records]
    table = _table(title, [head.replace("_", " ") for head in heads], rows)
    if _fits(console, table):
        console.print(table)
        return
    at, count = 0, len(rows)
    while at < len(rows):  # as many columns as fit, at least one
        count = min(count, len(rows) - at)
        part = _table(title, heads[:1] + [row[0] for row in rows[at:at + count]],
                      [[head.replace("_", " "), *cells] for head, *cells in
                       list(zip(heads, *rows[at:at + count], strict=True))[1:]])
        if count > 1 and not _fits(console, part):
            count -= 1
            continue
        console.print(part)
        at += count


def text(value: object) -> str:
    """A figure as a cell of a table."""
    if value is None:
        return "-"
    if isinstance(value, float):
        if not math.isfinite(value):
            return "-"
        return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:,.4g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(text, value)) or "none"
    return f"{value:,}" if type(value) is int else escape(str(value))


def _records(value: object) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(*heads, title=title)
    for row in rows:
        table.add_row(*row)
    return table


def _fits(console: Console, table: Table) -> bool:
    return Measurement.get(console, console.options.update(max_width=10_000),
                           table).maximum <= console.width


def _flat(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """(name, value) of everything in nested dicts, the names joined by dots."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield above + name, value
