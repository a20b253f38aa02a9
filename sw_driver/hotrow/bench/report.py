"""A result as tables on the terminal."""

from rich.console import Console
from rich.markup import escape
from rich.table import Table


def show(result):
    """Print the figures of a result, then a table of each list of records in it."""
    console = Console()
    flat = dict(_flat(result))
    figures = Table("figure", "value", title=f"hotrow bench {result['benchmark']}")
    for name, value in flat.items():
        if not isinstance(value, list):
            figures.add_row(name, _text(value))
    console.print(figures)
    for name, records in flat.items():
        if isinstance(records, list):
            shown = [{key: value for key, value in record.items() if not isinstance(value, dict)}
                     for record in records]
            table = Table(*(key.replace("_", " ") for key in shown[0]), title=name)
            for record in shown:
                table.add_row(*map(_text, record.values()))
            console.print(table)


def _flat(values, above=""):
    """(name, value) of everything in nested dicts, the names joined by dots."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{name}.")
        else:
            yield above + name, value


def _text(value):
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 10_000 else f"{value:,.4g}"
    return f"{value:,}" if type(value) is int else escape(str(value))
