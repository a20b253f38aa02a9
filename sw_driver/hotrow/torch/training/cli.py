"""`hotrow train` and `hotrow demo`; PyTorch is loaded only when one of them runs."""

import argparse
import os
from dataclasses import fields

from ..store.placement_policy import POLICIES
from .options import CACHED, COLD, MODES, OPTIMIZERS, HotBudget, TrainOptions


def train(subparsers):
    """Add `hotrow train`."""
    parser = subparsers.add_parser(
        "train", help="train a DLRM on a click log, checked against plain PyTorch",
        description="Train a DLRM with the accelerator in the loop and, beside it in the same run, "
        "plain nn.EmbeddingBag; check every step of the one against the other. Exit code 0 when "
        "the check held, 1 when it did not, 2 for an error of the user.")
    _add_options(parser, TrainOptions(""))
    parser.set_defaults(run=_run)


def demo(subparsers):
    """Add `hotrow demo`."""
    parser = subparsers.add_parser(
        "demo", help="train a DLRM with the simulated accelerator in the loop",
        description="hotrow train on generated clicks with the table sizes of Criteo Kaggle: 33.8 "
        "million rows, 4.4 GB of memory for the tables and their twin. The first run with "
        "transport sim builds the simulated device.")
    # Half the batch of `train`: more steps in the same simulated time learn more.
    _add_options(parser, TrainOptions("criteo-shape", batch_size=512))
    parser.set_defaults(run=_run)


def _add_options(parser, default):
    parser.add_argument(
        "--trace", default=default.trace or None, required=not default.trace,
        help="zipf:S[:rows], drift:S[:rows[:period]], uniform[:rows], single, criteo-shape[:S], "
        "criteo:FILE, or a tab-separated file (gzip or not) with a header"
        + _default(default.trace or None))
    parser.add_argument("--ids", type=_names, default=(), help="id columns, separated by commas")
    parser.add_argument("--label", help="label column, of 0 and 1")
    parser.add_argument("--dense", type=_names, default=(),
                        help="columns of numbers, taken as sign(x) log(1 + abs(x))")
    parser.add_argument("--bag", help="column whose equal consecutive values make one multi-hot "
                        "sample: distinct ids, mean of the dense columns, largest label")
    parser.add_argument("--mode", choices=MODES, default=default.mode, help=_default(default.mode))
    parser.add_argument("--transport", default=default.transport,
                        help="model, sim, or another that is installed" + _default("sim"))
    parser.add_argument("--preset", default=default.preset,
                        help="geometry of a simulated card" + _default(default.preset))
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default=default.optimizer,
                        help="of the tables; the dense part trains with SGD"
                        + _default(default.optimizer))
    parser.add_argument("--batch-size", type=_positive, default=default.batch_size,
                        help="samples" + _default(default.batch_size))
    parser.add_argument("--batches", type=_positive,
                        help="batches per epoch (default: the whole trace; 80 of a generated one)")
    parser.add_argument("--epochs", type=_positive, default=default.epochs,
                        help=_default(default.epochs))
    parser.add_argument("--dim", type=_positive, default=default.dim,
                        help="elements of an embedding, divisible by 4" + _default(default.dim))
    parser.add_argument("--mlp-scale", type=_rate, default=default.mlp_scale,
                        help="factor on the widths 512-256-64 and 512-256 of the two MLPs"
                        + _default(default.mlp_scale))
    parser.add_argument("--lr", type=_rate, default=default.lr, help=_default(default.lr))
    parser.add_argument("--seed", type=_natural, default=default.seed, help=_default(default.seed))
    hot = parser.add_mutually_exclusive_group()
    hot.add_argument("--slots", type=_slots, dest="hot_budget", help="rows to keep at the trainer")
    hot.add_argument("--hot-budget", type=_budget, dest="hot_budget",
                     help="the same as bytes of rows, like 512MB, or as a share of all rows, like "
                     "20%% (default: 25%%, or as much as the card's directory holds; modes "
                     "scratchpipe and freqcache take the whole directory, or a half, quarter or "
                     "eighth that has no more)")
    parser.add_argument("--relearn-every", type=_natural, default=default.relearn_every,
                        help="batches after which the hot rows are learned again; 0 for never"
                        + _default(default.relearn_every))
    parser.add_argument("--relearn-decay", type=_natural, default=default.relearn_decay,
                        help="binary places by which counts are shifted right before that, so that "
                        "old lookups weigh less" + _default(default.relearn_decay))
    parser.add_argument("--cold", choices=COLD, default=default.cold,
                        help="rows without a slot: gathered to the trainer, or pooled and updated "
                        "on a card with arithmetic" + _default(default.cold))
    cached = parser.add_argument_group(f"modes {' and '.join(CACHED)}")
    cached.add_argument("--policy", choices=POLICIES,
                        help="choice of the row that leaves its slot (default: lru, in freqcache "
                        "lfu)")
    cached.add_argument("--depth", type=_positive, default=default.depth,
                        help="batches planned and not trained" + _default(default.depth))
    cached.add_argument("--look-ahead", type=_natural, default=default.look_ahead,
                        help="batches beyond the one that is planned whose rows keep their slots"
                        + _default(default.look_ahead))
    cached.add_argument("--workers", type=_natural, default=default.workers,
                        help="threads that move rows while others train"
                        + _default(default.workers))
    cached.add_argument("--checkpoint", help="file to write the run to, whole or not at all")
    cached.add_argument("--checkpoint-every", type=_positive, default=default.checkpoint_every,
                        help="batches from one checkpoint to the next"
                        + _default(default.checkpoint_every))
    cached.add_argument("--resume", help="checkpoint to continue, with the options of its run")
    parser.add_argument("--eval-every", type=_positive,
                        help="report loss and AUC of every so many batches")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")


def _run(arguments):
    # Before PyTorch is loaded: its threads then sleep at a barrier. Spinning threads take ten times
    # as long on cores that they share, with the simulated device for example.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from . import report
    from .train import train as run

    given = {each.name: getattr(arguments, each.name) for each in fields(TrainOptions)}
    given["hot_budget"] = given["hot_budget"] or HotBudget()
    with report.Progress() as progress:
        result = run(TrainOptions(**given), progress)
    (report.print_json if arguments.json else report.print_tables)(result)
    return 0 if result["check_held"] else 1


def _default(value):
    return "" if value is None else f" (default: {value})"


def _names(text):
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise argparse.ArgumentTypeError(f"expected names separated by commas, not {text!r}")
    return names


def _integer(text, least):
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        raise argparse.ArgumentTypeError(f"expected an integer of at least {least}, not {text!r}")
    return number


def _natural(text):
    return _integer(text, 0)


def _positive(text):
    return _integer(text, 1)


def _slots(text):
    return HotBudget(f"--slots {text}", rows=_positive(text))


def _budget(text):
    try:
        return HotBudget.parse(text)
    except ValueError as wrong:
        raise argparse.ArgumentTypeError(str(wrong)) from None


def _rate(text):
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, not {text!r}")
    return number
