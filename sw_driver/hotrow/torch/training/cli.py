"""`hotrow train`; PyTorch is loaded only when it runs."""

import argparse
import os
from dataclasses import fields
from functools import partial

from ...command import options as shared
from ...command.cli import Subparsers
from ...command.options import HotBudget, natural, positive, rate
from ...memory.transport import find_transport
from ..store.placement_policy import POLICIES
from .options import CACHED, COLD, MODES, OPTIMIZERS, TrainOptions


def train(subparsers: Subparsers) -> None:
    """Add `hotrow train`."""
    parser = subparsers.add_parser(
        "train", help="train a DLRM on a click log, checked against plain PyTorch",
        description="Train a DLRM with the accelerator in the loop and, beside it in the same run, "
        "plain nn.EmbeddingBag; check every step of the one against the other. Exit code 0 when "
        "the check held, 1 when it did not, 2 for an error of the user.")
    add_options(parser, TrainOptions(""))
    parser.add_argument("--any-ids", type=partial(natural, least=2), metavar="ROWS",
                        help="take strings, hex values and integers of 64 bits as ids, without a "
                        "limit to their number: each column has a table of at most so many rows, "
                        "where a new id takes the row that was looked up least recently; for modes "
                        + " and ".join(CACHED))
    parser.add_argument("--tables", metavar="FOLDER",
                        help="keep the tables in a folder, larger than memory, and train without "
                        "the run beside; --checkpoint-every commits, and a bare --resume continues "
                        f"at the last commit; by default with mode {CACHED[0]}")
    parser.add_argument("--memory", metavar="BYTES",
                        help="of the whole process with --tables, like 2GB, by which slots are "
                        "chosen")
    parser.set_defaults(run=_run, mode=None)


def add_options(parser: argparse.ArgumentParser, default: TrainOptions) -> None:
    """Add the options of a training run, with the defaults of a TrainOptions."""
    add = parser.add_argument
    shared.add_trace(parser, default.trace or None, required=not default.trace)
    add("--mode", choices=MODES, default=default.mode, help="placement of the rows")
    add("--transport", default=default.transport, help="model, sim, or another that is installed")
    shared.add_preset(parser, default.preset)
    add("--optimizer", choices=OPTIMIZERS, default=default.optimizer,
        help="of the tables; the dense part trains with SGD")
    shared.add_batch_size(parser, default.batch_size)
    add("--batches", type=positive, default=default.batches,
        help="batches per epoch; default the whole trace, 80 of a generated one")
    add("--epochs", type=positive, default=default.epochs, help="passes over the trace")
    add("--dim", type=positive, default=default.dim,
        help="elements of an embedding, divisible by 4")
    add("--mlp-scale", type=rate, default=default.mlp_scale,
        help="factor on the widths 512-256-64 and 512-256 of the two MLPs")
    add("--lr", type=rate, default=default.lr, help="learning rate")
    add("--seed", type=natural, default=default.seed, help="of generated data and of the model")
    hot = parser.add_mutually_exclusive_group()
    hot.add_argument("--slots", type=shared.slots, dest="hot_budget", metavar="ROWS",
                     help="rows to keep at the trainer")
    hot.add_argument("--hot-budget", type=shared.hot_budget, dest="hot_budget", metavar="BYTES",
                     help="the same as bytes of rows, like 512MB, or as a share of all rows, like "
                     "20%%; default 25%%, or as much as the card's directory holds; modes "
                     "scratchpipe and freqcache take the whole directory, or a half, quarter or "
                     "eighth that has no more")
    add("--relearn-every", type=natural, metavar="BATCHES", default=default.relearn_every,
        help="batches after which the hot rows are learned again; 0 for never")
    add("--relearn-decay", type=natural, metavar="PLACES", default=default.relearn_decay,
        help="binary places by which counts are shifted right before that, so that old lookups "
        "weigh less")
    add("--cold", choices=COLD, default=default.cold,
        help="rows without a slot: gathered to the trainer, or pooled and updated on a card with "
        "arithmetic")
    add = parser.add_argument_group(f"modes {' and '.join(CACHED)}").add_argument
    add("--policy", choices=POLICIES,
        help="choice of the row that leaves its slot; default lru, in freqcache lfu")
    add("--depth", type=positive, default=default.depth, help="batches planned and not trained")
    add("--look-ahead", type=natural, default=default.look_ahead,
        help="batches beyond the one that is planned whose rows keep their slots")
    add("--workers", type=natural, default=default.workers,
        help="threads that move rows while others train")
    add("--checkpoint", metavar="FILE", type=shared.output_file,
        help="file to write the run to, whole or not at all")
    add("--checkpoint-every", type=positive, metavar="BATCHES", default=default.checkpoint_every,
        help="batches from one checkpoint to the next")
    add("--resume", metavar="FILE", nargs="?", const="",
        help="checkpoint to continue, with the options of its run")
    parser.add_argument("--timeline", metavar="FILE", default=default.timeline,
                        type=shared.output_file, help="write every command of the card and every "
                        "step of the trainer as a trace for ui.perfetto.dev and chrome://tracing")
    parser.add_argument("--eval-every", type=positive, metavar="BATCHES",
                        help="report loss and AUC of every so many batches")
    shared.add_json(parser)


def _run(arguments: argparse.Namespace) -> int:
    # Before PyTorch is loaded: its threads then sleep at a barrier. Spinning threads take ten times
    # as long on cores that they share, with the simulated device for example.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    given = {each.name: getattr(arguments, each.name) for each in fields(TrainOptions)}
    given["hot_budget"] = given["hot_budget"] or HotBudget()
    on_disk = given["tables"] is not None
    given["mode"] = given["mode"] or (CACHED[0] if on_disk else TrainOptions.mode)
    options = TrainOptions(**given)
    find_transport(options.transport)
    trace = options.open_trace()  # before PyTorch is loaded, which takes seconds
    from ...command.terminal import Steps, print_json
    from .report import print_tables
    from .train import train as run

    with Steps() as steps:
        result = run(options, steps, trace)
    (print_json if arguments.json else print_tables)(result)
    return 1 if result["check_held"] is False else 0
