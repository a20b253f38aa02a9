"""`hotrow bench`: rates of the accelerator, counted in its own cycles."""

import argparse
import json
import sys

from .. import open as open_device
from ..errors import Error
from ..traces import open_trace
from . import lookups

BENCHMARKS = {"observe": lookups.observe, "split": lookups.split}
DEFAULT_LOOKUPS = 2**20


def bench(subparsers):
    """Add `hotrow bench`."""
    parser = subparsers.add_parser(
        "bench", help="rates of the accelerator, counted in its own cycles",
        description="Run a benchmark on the Verilated hardware. Commands are queued back to back; "
                    "cycles count from the start of the first to the end of the last.")
    parser.add_argument("name", choices=BENCHMARKS, metavar="NAME",
                        help=f"one of {', '.join(BENCHMARKS)}")
    parser.add_argument("--preset", default="ecp5-85f", help="geometry of the card")
    parser.add_argument("--transport", default="sim",
                        help="`sim`, or `model`, whose cycles are formulas")
    parser.add_argument("--trace", default="zipf:1.05", help="as for `hotrow train`")
    parser.add_argument("--ids", type=_names, default=(), help="id columns of a trace file")
    parser.add_argument("--bag", help="column that groups the rows of a trace file into bags")
    parser.add_argument("--tables", type=_positive, default=26, help="of a generated trace")
    parser.add_argument("--rows", type=_positive, default=2**20, help="of a generated table")
    parser.add_argument("--batch", type=_positive, default=2048, help="samples of a batch")
    parser.add_argument("--lookups", type=_positive, default=DEFAULT_LOOKUPS, help="at least")
    parser.add_argument("--slots", type=_positive,
                        help="hot rows that a split finds, at most; default all the card has")
    parser.add_argument("--latency", type=_positive, default=200,
                        help="cycles of the simulated memory")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.set_defaults(run=run)


def run(options) -> int:
    """Measure, then print a table or one JSON object.

    Raises
    ------
    Error
        If the trace or the geometry does not fit.
    """
    from rich.console import Console
    from rich.progress import Progress

    trace = open_trace(options.trace, ids=options.ids, bag=options.bag, seed=options.seed,
                       tables=options.tables, table_rows=options.rows)
    settings = {"latency": options.latency} if options.transport == "sim" else {}
    with open_device(options.transport, preset=options.preset, **settings) as device:
        device.check_ids = False  # on the card, which is what is measured
        if len(trace.cardinalities) > device.geometry.tables:
            raise Error(f"trace {trace.name} has {len(trace.cardinalities)} tables: this card "
                        f"holds at most {device.geometry.tables}")
        with Progress(console=Console(stderr=True)) as progress:
            loading = progress.add_task("loading", total=None)
            workload = lookups.load(device, trace, options.batch, options.lookups)
            progress.remove_task(loading)
            task = progress.add_task(options.name, total=len(workload.batches))
            figures = BENCHMARKS[options.name](
                device, workload, options.slots, lambda: progress.advance(task))
    result = {"benchmark": options.name, "preset": options.preset, "trace": options.trace,
              "transport": options.transport, "latency": options.latency,
              "batch": options.batch, "seed": options.seed, **figures}
    if options.json:
        print(json.dumps(result))
    else:
        _show(Console(), result)
    return 0


def _show(console, result):
    from rich.table import Table

    table = Table("figure", "value", title=f"hotrow bench {result['benchmark']}")
    for name, value in result.items():
        shown = f"{value:,.4g}" if isinstance(value, float) else (
            f"{value:,}" if isinstance(value, int) else str(value))
        table.add_row(name, shown)
    console.print(table)
    if result["transport"] == "sim":
        print("cycles of the Verilated hardware", file=sys.stderr)
    else:
        print("cycles by formula, not of the hardware", file=sys.stderr)


def _names(text):
    return tuple(name.strip() for name in text.split(","))


def _positive(text):
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected an integer of at least 1, not {text!r}")
    return number
