"""`hotrow demo`: hotrow's software, the same batches on the card, what a card would change."""

import os
from argparse import Namespace
from dataclasses import fields, replace

from hotrow.torch.training.cli import add_options
from hotrow.torch.training.options import TrainOptions

from .end_to_end import LINKS, project, question_of

# Criteo Kaggle's tables. The slope of the rank-frequency law is that of ad logs; Criteo's own is
# 1.15, at which more rows move: `--trace criteo-shape`.
TRACE = "criteo-shape:1.9"
MODE, SOFTWARE = "scratchpipe", "cpu"
TIMELINE = "hotrow-demo.json"
TRAINER, LINK = "desktop", "pcie3x16"  # of the virtual clock


def demo(subparsers):
    """Add `hotrow demo`."""
    parser = subparsers.add_parser(
        "demo", help="train with hotrow's software, repeat it on the simulated card, compare",
        description="Train a DLRM with hotrow's engine on this machine's cores, and check every "
        "bit of the tables; train on the same batches with the simulated card in the engine's "
        "place, and compare; then project a training step with and without a card over the number "
        "of cores that are free. The clicks are generated, with the table sizes of Criteo Kaggle: "
        "33.8 million rows, 4.4 GB of memory for the tables and their twin. The first run with "
        "transport sim builds the simulated device.")
    add_options(parser, TrainOptions(TRACE, mode=MODE, transport="sim", batch_size=512, batches=40,
                                     timeline=TIMELINE))
    parser.set_defaults(run=run, any_ids=None, tables=None, memory=None)


def run(arguments) -> int:
    """Train twice, compare, project, and print the story or one JSON object."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # see hotrow.torch.training.cli
    from hotrow.command.terminal import Steps, console, print_json
    from hotrow.memory.transport import find_transport

    given = {field.name: getattr(arguments, field.name) for field in fields(TrainOptions)
             if getattr(arguments, field.name) is not None}
    options = replace(TrainOptions(**given), timeline=None)
    find_transport(options.transport)  # before the minutes of the software
    trace = options.open_trace()  # before PyTorch is loaded
    from hotrow.torch.training.report import print_tables
    from hotrow.torch.training.train import train

    results = []
    for number, transport in enumerate(dict.fromkeys((SOFTWARE, options.transport)), 1):
        with Steps() as steps:
            results.append(train(replace(options, transport=transport), steps, trace))
        if not arguments.json:
            console().print(f"[bold]{number}. " + (
                "hotrow's software on this machine" if transport == SOFTWARE else
                f"The same batches, with the card ({transport}) in the engine's place") + "[/]")
            print_tables(results[-1])
            console().print()
    equal = all(result["table_sha256"] == results[0]["table_sha256"] for result in results)
    projected = None
    if options.mode != "resident":
        with Steps() as steps:
            projected = _project(arguments, options, steps)
    if arguments.json:
        print_json({**results[-1], "software": results[0], "answers_equal": equal,
                    "end_to_end": projected, "timeline": arguments.timeline})
    else:
        _print(results, equal, projected, arguments.timeline)
    return 0 if equal and all(result["check_held"] for result in results) else 1


def _project(arguments, options, steps):
    """The end-to-end figures of the mode on the demo's trace and card, with its timeline."""
    from pathlib import Path

    transport = options.transport if options.transport == "sim" else "model"
    question = Namespace(
        preset=arguments.preset, transport=transport, trainer=TRAINER, workload=None,
        modes=(options.mode,), link=LINKS[LINK], slots=None, batches=12, learning=4,
        timeline=arguments.timeline and Path(arguments.timeline),
        **{name: getattr(arguments, name) for name in (
            "trace", "ids", "label", "dense", "bag", "hash_rows", "batch_size", "dim", "seed")})
    return project(question_of(question), question, steps)


def _print(results, equal, projected, timeline):
    from hotrow.command.terminal import console, show_records

    out, first = console(), results[0]
    out.print(f"hotrow's engine took {first['host_seconds']:.1f} s for {first['batches']} batches, "
              "checks included" + "".join(
                  f"; with transport {result['transport']} {result['host_seconds']:.1f} s"
                  for result in results[1:]))
    if len(results) > 1:
        out.print(f"tables: {'equal to the bit' if equal else '[bold red]DIFFERENT[/]'} "
                  f"(SHA-256 {first['table_sha256'][:16]})")
    if not projected:
        return
    out.print(f"\n[bold]{len(results) + 1}. What a card would change[/]")
    show_records(out, f"A training step, {projected['figures']} (trainer: {TRAINER}, {LINK})", [
        {"free cores": cores, "without a card (ms)": step, "with the card (ms)":
         projected["step_ms"], "ratio": step / projected["step_ms"]}
        for cores, step in projected["step_ms_by_free_cores"].items()])
    replaced = projected["cores_replaced"]
    out.print(f"The driver takes {projected['host_ms']:.2f} ms a batch on one core, as measured on "
              "one machine. " + (f"{replaced} free core{'s' * (replaced != 1)} without a card "
                                 f"{'is' if replaced == 1 else 'are'} as fast as the card"
                 if replaced else "The card is faster than all cores here")
              + "; `hotrow explore --map` shows where it pays.")
    if timeline:
        out.print(f"timeline of the projected steps: {timeline} (open it at ui.perfetto.dev)")
