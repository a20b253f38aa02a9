"""The result of a training run as tables on standard output."""

from typing import Any

from rich.console import Console
from rich.table import Table

from ...command.terminal import console as standard_output
from .check import ABSOLUTE, OF_STEP, RELATIVE

_LEARNS = 20  # batches from which an AUC is printed
_OF_IDS = {"rows_used": "ids that have a row", "ids_admitted": "ids that got a row",
           "ids_expired": "ids that lost it again", "default_lookups": "lookups of default rows"}


def print_tables(result: dict[str, Any]) -> None:
    """Print a result as tables."""
    console = standard_output()
    source = "SYNTHETIC (generated, with a planted signal)" if result["synthetic"] else "recorded"
    console.print(f"[bold]hotrow, mode {result['mode']}[/]: {result['batches']} batches of "
                  f"{result['batch_size']} from {result['trace']}")
    console.print(f"input: {source}; {result['tables']} tables, {result['rows']:,} rows, "
                  f"dim {result['dim']}")
    first = result["scored_from_batch"] + 1
    _section(console, f"Predictions made before the update, batches {first} to "
             f"{result['batches']}", _quality(result))
    if result["device_commands"]:
        _section(console, _title(result), _rates(result))
        if result["transport"] != "cpu":  # whose cycles are nanoseconds of this machine
            what = ("modelled cycles" if result["transport"] == "model"
                    else "cycles, from the hardware's own counters")
            _section(console, f"Device {what} ({result['transport']}, {result['preset']})",
                     _cycles(result))
            console.print(_projection(result))
    console.print(_verdict(result))


def _title(result: dict[str, Any]) -> str:
    if result["mode"] == "near_memory":
        return "Tables on the card: pooled rows and their gradients move"
    if result["mode"] != "hotline":
        return f"{result['slots']:,} slots, policy {result['policy']}"
    learned = result["learning_batches"]
    return ("Hot rows, learned on the first "
            f"{'batch' if learned == 1 else f'{learned} batches'}, rated on the others")


def _section(console: Console, title: str, table: Table) -> None:
    console.print(f"\n[bold]{title}[/]")
    console.print(table)


def _grid(*columns: str) -> Table:
    table = Table(show_header=any(columns))
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i else "left")
    return table


def _quality(result: dict[str, Any]) -> Table:
    table = _grid("", "log loss", "AUC")
    beside = "nn.EmbeddingBag" if result["max_row_difference"] is not None else "resident"
    for name, suffix in ((result["mode"], ""), (beside, "_reference")):
        if result["loss" + suffix] is None:
            continue
        auc, few = result["auc" + suffix], result["batches"] < _LEARNS
        table.add_row(name, f"{result['loss' + suffix]:.6f}",
                      f"under {_LEARNS} batches: nothing learned" if few else
                      "one class only" if auc is None else f"{auc:.4f}")
    return table


def _rates(result: dict[str, Any]) -> Table:
    table = _grid("", "")
    if result["mode"] == "hotline":
        table.add_row("rows in slots", f"{result['hot_rows']:,}")
    elif result["mode"] != "near_memory":
        table.add_row("rows without a slot, per batch",
                      f"{result['bypasses'] / result['batches']:,.0f}")
    for name, what in _OF_IDS.items():
        if name in result:
            table.add_row(what, f"{result[name]:,}")
    if result.get("relearned"):
        table.add_row(f"rows replaced, each of {result['relearned']} times learned again",
                      f"{result['rows_replaced'] / result['relearned']:,.0f}")
    if result["hit_rate"] is not None:
        table.add_row("lookups that hit", f"{result['hit_rate']:.1%}")
    if result.get("disk"):
        table.add_row("rows fetched from the folder, per batch",
                      f"{result['disk']['rows_fetched'] / result['batches']:,.0f}")
        table.add_row("bytes written to it", f"{result['disk']['bytes_written']:,}")
    if result["popular_fraction"] is not None:
        table.add_row("samples wholly hot (popular)", f"{result['popular_fraction']:.1%}")
    table.add_row("rows moved per batch, there and back",
                  f"{result['rows_moved'] / result['batches']:,.0f}")
    table.add_row("bytes over the link per batch",
                  f"{result['link_bytes'] / result['batches']:,.0f}")
    return table


def _cycles(result: dict[str, Any]) -> Table:
    table = _grid("command", "commands", "cycles", "per command", "per batch")
    for name, entry in result["device_commands"].items():
        table.add_row(name, f"{entry['commands']:,}", f"{entry['cycles']:,}",
                      f"{entry['cycles'] / entry['commands']:,.0f}",
                      f"{entry['cycles_per_batch']:,.0f}")
    table.add_row("total", "", f"{result['device_cycles']:,}", "",
                  f"{result['device_cycles'] / result['batches']:,.0f}")
    return table


def _projection(result: dict[str, Any]) -> str:
    milliseconds = result["seconds_at_clock"] * 1e3
    return (f"Projected, not measured: {milliseconds:,.1f} ms at the card's {result['clock_mhz']} "
            f"MHz with one command at a time, {milliseconds / result['batches']:,.3f} ms per batch")


def _verdict(result: dict[str, Any]) -> str:
    if result["check_held"] is None:
        return ("\nno check beside: tables on disk train alone, and end with the bits of --mode "
                f"resident; tables {result['table_sha256'] or 'larger than memory, not hashed'}")
    colour, word = ("green", "held") if result["check_held"] else ("red", "FAILED")
    if result["max_row_difference"] is None:
        return (f"\n[bold {colour}]check {word}[/]: every prediction, and at the end every row and "
                "its state, to the bit, against mode resident")
    return (f"\n[bold {colour}]check {word}[/]: step by step, every touched row, its state and "
            "every dense parameter against plain PyTorch; largest difference "
            f"{result['max_row_difference']:.3g} of the limit, which is {RELATIVE:g} relative + "
            f"{ABSOLUTE:g} + {OF_STEP:g} of the step")
