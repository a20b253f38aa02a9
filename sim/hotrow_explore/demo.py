"""`hotrow demo`: what the accelerator does for a training step, in a few minutes."""

import os
from argparse import Namespace
from dataclasses import fields, replace

from hotrow.torch.training.cli import add_options
from hotrow.torch.training.options import TrainOptions

from .end_to_end import LINKS, project, question_of

# Criteo Kaggle's tables with the skew of ad logs: the card's rows then cover about as many lookups
# and samples as in the papers.
TRACE = "criteo-shape:1.9"
MODES = ("hotline", "scratchpipe")
TIMELINE = "hotrow-demo.json"
TRAINER, LINK = "desktop", "pcie3x16"  # of the virtual clock


def demo(subparsers):
    """Add `hotrow demo`."""
    parser = subparsers.add_parser(
        "demo", help="train a DLRM with the simulated accelerator in the loop",
        description="Train a DLRM in modes hotline and scratchpipe with the simulated accelerator "
        "in the loop, and project a training step with and without it. The clicks are generated, "
        "with the table sizes of Criteo Kaggle: 33.8 million rows, 4.4 GB of memory for the tables "
        "and their twin. The first run with transport sim builds the simulated device.")
    # Half the batch of `train`: more steps in the same simulated time learn more.
    add_options(parser, TrainOptions(TRACE, batch_size=512, batches=80, timeline=TIMELINE))
    parser.set_defaults(run=run, mode=None)


def run(arguments) -> int:
    """Train, check, project, and print the story or one JSON object."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # see hotrow.torch.training.cli
    from hotrow.command.terminal import Steps, print_json
    from hotrow.torch.training.train import train

    given = {each.name: getattr(arguments, each.name) for each in fields(TrainOptions)
             if getattr(arguments, each.name) is not None}
    modes = (arguments.mode,) if arguments.mode else MODES
    with Steps() as steps:
        results = [train(_options(given, mode, mode == modes[0]), steps) for mode in modes]
        projected = _project(arguments, modes, steps) if arguments.mode != "resident" else None
    first, *others = results
    if arguments.json:
        print_json({**first, **{each["mode"]: each for each in others}, "end_to_end": projected,
                    "timeline": arguments.timeline})
    else:
        _print(results, projected, arguments.timeline)
    return 0 if all(each["check_held"] for each in results) else 1


def _options(given, mode, first):
    """Options of a mode; the first mode writes the timeline."""
    options = TrainOptions(**given | {"mode": mode})
    return replace(options, timeline=options.timeline if first and mode != "resident" else None)


def _project(arguments, modes, steps):
    """The end-to-end figures of the modes on the demo's trace and card."""
    options = Namespace(
        preset=arguments.preset, transport=arguments.transport, trainer=TRAINER, workload=None,
        modes=(*modes, "resident-host"), link=LINKS[LINK], slots=None, batches=12, learning=4,
        timeline=None, **{name: getattr(arguments, name) for name in (
            "trace", "ids", "label", "dense", "bag", "hash_rows", "batch_size", "dim", "seed")})
    return project(question_of(options), options, steps)


def _print(results, projected, timeline):
    from hotrow.command.terminal import console, show_records
    from hotrow.torch.training.report import print_tables

    for result in results:
        print_tables(result)
        console().print()
    if not projected:
        return
    show_records(console(), f"A training step, {projected['figures']}", [
        {"mode": each["mode"], "ms, tables on the host": plain, "ms, host's cores move rows":
         each["step_ms_without_card"], "ms, with the card": each["step_ms"],
         "gather hidden": each["gather_hidden"], "plan hidden": each["plan_hidden"]}
        for plain in [projected["modes"][-1]["step_ms"]] for each in projected["modes"][:-1]])
    console().print(_what_it_hides(projected["modes"]))
    if timeline and results[0]["transport"]:
        console().print(f"timeline of mode {results[0]['mode']}: {timeline} (open it at "
                        "ui.perfetto.dev)")


def _what_it_hides(modes):
    *carded, plain = modes
    best = min(carded, key=lambda each: each["step_ms"])
    stalls = sum(best["stalls"].values())
    return (f"What the card hides: {100 * (best['gather_hidden'] or 0):.0f} % of the time to fetch "
            f"{best['rows_fetched']:,.0f} rows a batch and to return as many; a step of "
            f"{best['mode']} takes {best['step_ms']:.2f} ms, {stalls:.2f} ms of them waiting; "
            f"with tables on the host it takes {plain['step_ms']:.2f} ms "
            f"(trainer: {TRAINER}, {LINK})")
