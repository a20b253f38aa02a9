"""`hotrow bench`: rates of the accelerator, in cycles that the card counts."""

import sys
from importlib import import_module
from importlib.metadata import entry_points

from ..command.limits import check_batch
from ..command.options import positive, positives
from ..contract.extras import advice
from . import options as shared

GROUP = "hotrow.benches"  # entry points of the benchmarks of other packages

LOOKUPS, OVERLAP_LOOKUPS = 2**20, 2**19
HOTSET_LOOKUPS, HOTSET_ROWS = 50_000_000, 10_000_000
MOVES = {"gather": "copy random rows of a table to consecutive rows",
         "scatter": "copy consecutive rows to random rows of a table",
         "pool": "sum bags of random rows of a table to one row each",
         "update": "steps of SGD on random rows of a table, with several gradients per row"}
BAGS = {"pool": "rows of a bag", "update": "gradients of a row"}


def bench(subparsers):
    """Add `hotrow bench`."""
    parser = subparsers.add_parser(
        "bench", help="rates of the accelerator, in cycles that the card counts",
        description="Rates in cycles of the Verilated hardware, and what to compare them with.")
    names = parser.add_subparsers(title="benchmarks", metavar="NAME", required=True, dest="name")

    def add(name, what, lookups=LOOKUPS, measure=None, **rows):
        each = names.add_parser(name, help=what, description=what[0].upper() + what[1:] + ".")
        shared.add_device(each)
        shared.add_trace(each, lookups, **rows)
        each.set_defaults(run=run, measure=measure or _module(name))
        return each

    each = add("observe", "count every lookup of a trace", measure=_observe)
    shared.add_engine_threads(each)

    each = add("split", "slots of the lookups, and popular samples apart from the others",
               measure=_split)
    shared.add_hot_rows(each)
    shared.add_engine_threads(each)

    each = add("plan", "slots for the rows of coming batches, compared with the CPU")
    shared.add_planner(each)
    shared.add_engine_threads(each)

    each = add("overlap", "split batches while the missed rows of the previous batch are gathered",
               OVERLAP_LOOKUPS)
    shared.add_hot_rows(each)
    each.add_argument("--row-bytes", type=positive, default=64,
                      help="bytes of a row, a multiple of 16")

    each = add("hotset", "lookups covered by the hot rows that the counters find",
               HOTSET_LOOKUPS, total_rows=HOTSET_ROWS)
    each.add_argument("--k", type=positives, default=(4096,),
                      help="hot rows to find; several values are separated by commas")
    each.add_argument("--entries-per-k", type=positive, default=4,
                      help="counters of the card per hot row")

    each = add("cpu", "the work of observe and split on the CPU, compared with the card")
    shared.add_hot_rows(each)
    each.add_argument("--threads", type=positive, help="of PyTorch; default all cores")
    each.add_argument("--clock-mhz", type=positive,
                      help="of the card; default the preset's assumed clock")

    each = add("train", "training steps in every mode, compared with other libraries",
               labelled=True)
    shared.add_training(each)
    each.set_defaults(transport="model", preset="alveo-u55c", trace="criteo-shape",
                      remark="wall clock with a simulated card: not the speed of a card")

    each = add("host", "the host's time of a training step, compared with CPU libraries",
               rows=100_000)
    shared.add_host(each)
    each.set_defaults(transport="model", preset="alveo-u55c",
                      remark="time of this machine's processor, the device's own time left out")

    for name, what in MOVES.items():
        each = names.add_parser(name, help=what, description=what[0].upper() + what[1:] + ".")
        shared.add_device(each, moves=True)
        shared.add_moves(each)
        if name in BAGS:
            shared.add_bags(each, BAGS[name])
        each.set_defaults(run=run, measure=_move, trace=None)

    for entry in sorted(entry_points(group=GROUP)):
        try:
            entry.load()(names)
        except ModuleNotFoundError as missing:
            names.add_parser(entry.name, help=advice(missing)).set_defaults(run=_refuse(missing))


def _refuse(missing):
    def run(options):
        raise missing
    return run


def run(options) -> int:
    """Measure, then print tables or one JSON object.

    Returns
    -------
    int
        1 if the results of the card and the CPU differ, else 0.

    Raises
    ------
    Error
        The trace or the geometry does not fit.
    """
    from ..command.terminal import Steps, print_json, show

    trace = shared.trace_of(options) if options.trace else None
    if trace and not getattr(options, "room", None):  # which reduces the batch
        check_batch(trace, options.batch, options.preset)
    with Steps() as steps:
        figures = options.measure(options, trace, steps)
    result = {"benchmark": options.name, **shared.named(options), **figures}
    if options.json:
        print_json(result)
    else:
        show(result, f"hotrow bench {options.name}")
        print(_label(options), file=sys.stderr)
    return 0 if figures.get("agrees", True) else 1


def _label(options):
    """What the figures are, in words."""
    if "remark" in options:
        return options.remark
    return {"sim": "cycles of the Verilated hardware",
            "cpu": "time of this machine's cores"}.get(
        options.transport, "cycles by formula, not of the hardware")


def _observe(options, trace, steps):
    from . import lookups

    with shared.device_of(options) as device:
        steps.begin("loading")
        workload = lookups.load_some(trace, options.batch, options.lookups)
        workload.register(device)
        return lookups.observe(device, workload, steps.begin("OBSERVE", len(workload.batches)),
                               shared.engine_threads(options))


def _split(options, trace, steps):
    from . import lookups

    with shared.device_of(options) as device:
        steps.begin("loading")
        workload = lookups.load_some(trace, options.batch, options.lookups)
        workload.register(device)
        steps.begin("learning hot rows")
        hot = lookups.learn(device, workload, options.hot_rows)
        return lookups.split(device, workload, hot, steps.begin("SPLIT", len(workload.batches)),
                             shared.engine_threads(options))


def _module(name):
    """The function of a module, both of that name; it is loaded when it is called."""
    def measure(options, trace, steps):
        return getattr(import_module(f".{name}", __package__), name)(options, trace, steps)
    return measure


def _move(options, trace, steps):
    from .moves import measure

    return measure(options.name, options, steps)
