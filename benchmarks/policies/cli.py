"""`hotrow bench policies`: hits, moves and bypasses of the planner's policies on a trace."""

import argparse

from hotrow.bench import options as bench
from hotrow.bench.lookups import batch_count
from hotrow.command import options as shared
from hotrow.command.terminal import Steps, print_json, show
from hotrow_rtl.config import preset
from hotrow_sim.golden.training_pipeline import StageOffsets

from .study import KNOWN, RUNS, sized, study


def policies(benchmarks):
    """Add `policies` to the benchmarks of `hotrow bench`."""
    what = "hits, moves and bypasses of replacement policies and of the offline optimum"
    parser = benchmarks.add_parser(
        "policies", help=what, description=what[0].upper() + what[1:] + ": a study with the "
        "golden planner, without time or hardware.")
    shared.add_preset(parser)
    parser.add_argument("--slots", type=shared.positive,
                        help="of the card; default as in the preset")
    parser.add_argument("--stages", type=_stages, default=StageOffsets(), metavar="C,I,T",
                        help="steps from PLAN to COLLECT, INSERT and TRAIN; default 1,3,4")
    parser.add_argument("--only", type=_policies, default=tuple(RUNS), metavar="NAME;NAME",
                        help="some of the policies, separated by semicolons; default all")
    parser.add_argument("--known", type=shared.positive, default=KNOWN,
                        help="batches ahead that `next` looks")
    parser.add_argument("--warm-share", type=shared.rate, default=1.0,
                        help="share of the slots that `freq, warm-up` fills")
    bench.add_trace(parser, 2**20)
    parser.set_defaults(run=run)


def run(options) -> int:
    """Study, then print tables or one JSON object.

    Raises
    ------
    Error, ValueError
        If the trace or the geometry does not fit.
    """
    with Steps() as steps:
        figures = _study(options, bench.trace_of(options), steps)
    result = {"benchmark": "policies", "preset": options.preset, "trace": options.trace,
              "batch": options.batch, "seed": options.seed} | figures
    print_json(result) if options.json else show(result, "hotrow bench policies")
    return 0


def _study(options, trace, steps):
    config = preset(options.preset)
    if options.slots:
        config = sized(config, options.slots)
    count = batch_count(trace, options.batch, options.lookups)
    advance, batches = steps.begin("making batches", count), []
    for number in range(count):
        samples = trace.batch(number, options.batch)
        batches.append((samples.lookup_columns, samples.ids.ravel()))
        advance()
    return study(config, batches, options.stages, steps.begin, options.only, options.known,
                 options.warm_share)


def _policies(text):
    found = tuple(name.strip() for name in text.split(";"))
    for name in found:
        if name not in RUNS:
            raise argparse.ArgumentTypeError(
                f"expected some of {'; '.join(RUNS)}, not {name!r}")
    return found


def _stages(text):
    try:
        collect, insert, train = map(int, text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected three integers such as 1,3,4, not {text!r}") from None
    if not 1 <= collect <= insert <= train:
        raise argparse.ArgumentTypeError(
            f"expected non-decreasing steps from 1 on, such as 1,3,4, not {text!r}")
    return StageOffsets(collect, insert, train)
