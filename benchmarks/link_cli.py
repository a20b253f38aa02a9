"""`hotrow bench link`: bytes and frames of a training step on the link of a board."""

from hotrow.bench import options as bench
from hotrow.bench.cli import run
from hotrow.command import options as shared


def link(benchmarks):
    """Add `link` to the benchmarks of `hotrow bench`."""
    what = "bytes of a training step on the link of a board"
    parser = benchmarks.add_parser(
        "link", help=what, description=what[0].upper() + what[1:] + ", counted with a golden card; "
        "steps per second at the rates of lines, projected.")
    add = parser.add_argument
    shared.add_preset(parser)
    add("--optimizer", choices=("sgd", "rowwise_adagrad"), default="sgd", help="of the tables")
    add("--dim", type=shared.positive, default=16, help="elements of a row")
    add("--steps", type=shared.positive, default=10, help="counted steps")
    add("--warm-up", type=shared.positive, default=6, help="steps before the counted ones")
    add("--learning", type=shared.positive, default=4, help="batches that are counted first")
    bench.add_trace(parser, 1, rows=10_000, labelled=True)
    parser.set_defaults(run=run, measure=_measure, transport="link", tables=8, batch=128,
                        remark="counted on a simulated link, rates projected; no board has run it")


def _measure(options, trace, steps):
    from .link_bytes import measure  # loads PyTorch

    return measure(options, trace, steps)
