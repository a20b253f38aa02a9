"""`hotrow bench`: rates of the accelerator, in cycles that the card counts."""

import sys
from argparse import Namespace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, NoReturn

from ..command.cli import Subparsers
from ..command.limits import check_batch
from ..command.terminal import Steps
from ..contract.errors import Error
from ..contract.extras import advice
from ..traces import Trace
from . import options as shared

GROUP = "hotrow.benches"  # entry points of the benchmarks of other packages
LOOKUPS = 2**20

CHECKOUT = Path(__file__).resolve().parents[3]
# Benchmarks of the checkout, which the wheel does not contain.
SCRIPTS = {name: f"benchmarks.commands:{name}" for name in (
    "cpu", "gather", "host", "hotset", "overlap", "plan", "pool", "scatter", "train", "update")} | {
        "area": "benchmarks.synthesis.area_cli:area",
        "clock": "benchmarks.synthesis.clock_cli:clock",
        "policies": "benchmarks.policies.cli:policies"}


def bench(subparsers: Subparsers) -> None:
    """Add `hotrow bench`."""
    parser = subparsers.add_parser(
        "bench", help="rates of the accelerator, in cycles that the card counts",
        description="Rates in cycles of the Verilated hardware, and what to compare them with.")
    names = parser.add_subparsers(title="benchmarks", metavar="NAME", required=True, dest="name")
    for name, what in (("observe", "count every lookup of a trace"),
                       ("split", "slots of the lookups, and popular samples apart from the "
                                 "others")):
        each = names.add_parser(name, help=what, description=what[0].upper() + what[1:] + ".")
        shared.add_device(each)
        shared.add_trace(each, LOOKUPS)
        if name == "split":
            shared.add_hot_rows(each)
        shared.add_engine_threads(each)
        each.set_defaults(run=run, measure=_measure)

    scripts = {name: EntryPoint(name, value, GROUP) for name, value in SCRIPTS.items()}
    if (CHECKOUT / "benchmarks" / "commands.py").is_file():
        sys.path.insert(0, str(CHECKOUT))
    else:
        for name in scripts:
            _refuse(names, name, f"hotrow bench {name} needs a checkout of the project, whose "
                    "folder benchmarks/ contains it: run pip install -e . there")
        scripts = {}
    for name, entry in sorted(({e.name: e for e in entry_points(group=GROUP)} | scripts).items()):
        if name in names.choices:
            continue
        try:
            entry.load()(names)
        except ModuleNotFoundError as missing:
            _refuse(names, name, advice(missing))


def _refuse(names: Subparsers, name: str, reason: str) -> None:
    """Add a benchmark that ends with an error, whatever its options."""
    def run(options: Namespace) -> NoReturn:
        raise Error(reason)

    parser = names.add_parser(name, help=reason, prefix_chars="\0", add_help=False)
    parser.add_argument("options", nargs="*")
    parser.set_defaults(run=run)


def run(options: Namespace) -> int:
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


def _label(options: Namespace) -> str:
    """What the figures are, in words."""
    if "remark" in options:
        return str(options.remark)
    return {"sim": "cycles of the Verilated hardware",
            "cpu": "time of this machine's cores"}.get(
        options.transport, "cycles by formula, not of the hardware")


def _measure(options: Namespace, trace: Trace, steps: Steps) -> dict[str, Any]:
    """Observe or split the batches of a trace."""
    from . import lookups

    with shared.device_of(options) as device:
        steps.begin("loading")
        workload = lookups.load_some(trace, options.batch, options.lookups)
        workload.register(device)
        threads, count = shared.engine_threads(options), len(workload.batches)
        if options.name == "observe":
            return lookups.observe(device, workload, steps.begin("OBSERVE", count), threads)
        steps.begin("learning hot rows")
        hot = lookups.learn(device, workload, options.hot_rows)
        return lookups.split(device, workload, hot, steps.begin("SPLIT", count), threads)
