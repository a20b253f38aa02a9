"""Command lines of the benchmarks of this folder."""

from importlib import import_module

from hotrow.bench import options as shared
from hotrow.bench.cli import LOOKUPS, run
from hotrow.command.options import add_preset, positive, positives

from . import options as own

OVERLAP_LOOKUPS = 2**19
HOTSET_LOOKUPS, HOTSET_ROWS = 50_000_000, 10_000_000
BAGS = {"pool": "rows of a bag", "update": "gradients of a row"}


def plan(names):
    """Add `hotrow bench plan`."""
    parser = _on_trace(names, "plan", "slots for the rows of coming batches, compared with the CPU")
    own.add_planner(parser)
    shared.add_engine_threads(parser)


def overlap(names):
    """Add `hotrow bench overlap`."""
    parser = _on_trace(names, "overlap", "split batches while the missed rows of the previous "
                       "batch are gathered", OVERLAP_LOOKUPS)
    shared.add_hot_rows(parser)
    parser.add_argument("--row-bytes", type=positive, default=64,
                        help="bytes of a row, a multiple of 16")


def hotset(names):
    """Add `hotrow bench hotset`."""
    parser = _on_trace(names, "hotset", "lookups covered by the hot rows that the counters find",
                       HOTSET_LOOKUPS, total_rows=HOTSET_ROWS)
    parser.add_argument("--k", type=positives, default=(4096,),
                        help="hot rows to find; several values are separated by commas")
    parser.add_argument("--entries-per-k", type=positive, default=4,
                        help="counters of the card per hot row")


def train(names):
    """Add `hotrow bench train`."""
    parser = _on_trace(names, "train", "training steps in every mode, compared with other "
                       "libraries", labelled=True)
    own.add_training(parser)
    parser.set_defaults(transport="model", preset="alveo-u55c", trace="criteo-shape",
                        remark="wall clock with a simulated card: not the speed of a card")


def host(names):
    """Add `hotrow bench host`."""
    parser = _on_trace(names, "host", "the host's time of a training step, compared with CPU "
                       "libraries", device=add_preset, rows=100_000)
    own.add_host(parser)
    parser.set_defaults(transport="cpu", preset="alveo-u55c",
                        remark="time of this machine's processor, all threads")


def cpu(names):
    """Add `hotrow bench cpu`."""
    def measure(options, trace, steps):
        return import_module(".cpu", __package__).cpu(options, steps)

    what = "steps on the CPU by batch, row and bag, compared with CPU libraries"
    parser = names.add_parser("cpu", help=what, description=what[0].upper() + what[1:] + ".")
    own.add_cells(parser)
    parser.set_defaults(run=run, measure=measure, trace=None, transport="cpu",
                        remark="time of this machine's processor, all threads")


def gather(names):
    """Add `hotrow bench gather`."""
    _moves(names, "gather", "copy random rows of a table to consecutive rows")


def scatter(names):
    """Add `hotrow bench scatter`."""
    _moves(names, "scatter", "copy consecutive rows to random rows of a table")


def pool(names):
    """Add `hotrow bench pool`."""
    _moves(names, "pool", "sum bags of random rows of a table to one row each")


def update(names):
    """Add `hotrow bench update`."""
    _moves(names, "update",
           "steps of SGD on random rows of a table, with several gradients per row")


def _on_trace(names, name, what, lookups=LOOKUPS, device=shared.add_device, **rows):
    """Parser of a benchmark on the batches of a trace: a function in the module of its name."""
    def measure(options, trace, steps):
        return getattr(import_module(f".{name}", __package__), name)(options, trace, steps)

    parser = names.add_parser(name, help=what, description=what[0].upper() + what[1:] + ".")
    device(parser)
    shared.add_trace(parser, lookups, **rows)
    parser.set_defaults(run=run, measure=measure)
    return parser


def _moves(names, name, what):
    """Parser of a benchmark of the row ports."""
    def measure(options, trace, steps):
        return import_module(".moves", __package__).measure(name, options, steps)

    parser = names.add_parser(name, help=what, description=what[0].upper() + what[1:] + ".")
    shared.add_device(parser)
    own.add_moves(parser)
    shared.add_engine_threads(parser)
    if name in BAGS:
        parser.add_argument("--bag", type=positive, default=20, help=BAGS[name])
        parser.add_argument("--bag-units", type=positive,
                            help="units that process bags; default as in the preset")
    parser.set_defaults(run=run, measure=measure, trace=None)
