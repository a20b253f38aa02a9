"""A training run: one mode and the plain reference, side by side on the same batches."""

import copy
import math
import time
from contextlib import nullcontext

import torch

from ... import device as driver
from ..memory.tables import EmbeddingTables
from ..optim.arithmetic import OPTIMIZERS
from .check import StepCheck
from .dlrm import DLRM
from .hotline import HotlineTrainer
from .options import CACHED
from .pooled import PooledTrainer
from .record import NO_DEVICE, CycleMeter, Predictions, Traffic
from .reference import ReferenceTrainer
from .relearning import Relearning
from .resident import ResidentTrainer
from .train_cached import train_cached

LEARNING_SHARE = 0.05  # of all batches, for the device to learn which rows are hot


def train(options, progress):
    """Run.

    Both trainers start from one model and one set of tables. Every step of the mode is checked
    against the reference (`StepCheck`), then its free run takes the step. Loss and AUC are
    progressive: they rate predictions made before the update on the same batch, over the second
    half of the run. Hit rate and popular fraction leave out the batches that first taught the hot
    rows.

    Parameters
    ----------
    options : TrainOptions
    progress : Progress
        Told of each phase and batch, see `report.Progress`.

    Returns
    -------
    dict
        The fields of the JSON report.

    Raises
    ------
    Error
    """
    if options.mode in CACHED:
        return train_cached(options, progress)
    trace = options.open_trace()
    if options.mode == "resident":
        return _run(options, trace, None, progress)
    with driver.open(options.transport, options.preset) as device:
        return _run(options, trace, device, progress)


def _run(options, trace, device, progress):
    reference, trainer = _trainers(options, trace, device, progress)
    check = StepCheck(trainer, reference)
    predictions, traffic, history = Predictions(), Traffic(), []
    meter = CycleMeter(device) if device else nullcontext()
    epoch, total = options.epoch_batches(trace), options.total_batches(trace)
    learning = math.ceil(LEARNING_SHARE * total) if device else 0
    relearning = Relearning(options.relearn_every, options.relearn_decay)
    started = time.monotonic()
    for number in range(total):
        samples = trace.batch(number % epoch, options.batch_size)
        with meter:
            if number < learning:
                trainer.observe(samples)
                traffic.carry(0, samples.nbytes)
            elif number == learning and device:
                moved = relearning.first(trainer, check).moved
                traffic.carry(moved, moved * trainer.row_bytes)
            elif relearning.due(number - learning):
                moved = relearning.again(trainer, check).moved
                traffic.carry(moved, moved * trainer.row_bytes)
        expected = check.step(samples)
        with meter:
            result = trainer.step(samples)
        traffic.add(result, scored=number >= learning)
        predictions.add(samples.label, result.logits, expected.logits)
        done = number + 1
        if options.eval_every and done % options.eval_every == 0:
            history.append({"batch": done, **predictions.score(done - options.eval_every)})
        progress.batch(done, total, check.max_difference, history)
    seconds = time.monotonic() - started
    flushed = trainer.flush()
    traffic.carry(flushed, flushed * trainer.row_bytes)
    progress.phase("hashing the tables")
    return {
        **_setting(options, trace, device),
        "batches": total, "learning_batches": learning,
        "hot_rows": flushed if device else None, **relearning.figures(),
        "scored_from_batch": total // 2, **predictions.score(total // 2), "history": history,
        "max_row_difference": check.max_difference, "check_held": check.held,
        "table_sha256": trainer.tables.sha256(),
        "table_hash_equal": True if options.mode == "resident" else None,
        **traffic.figures(), "bypasses": 0,
        **(meter.figures(total) if device else NO_DEVICE),
        "host_seconds": seconds,
    }


def _setting(options, trace, device):
    """What the run was given, for the report."""
    return {
        "mode": options.mode, "optimizer": options.optimizer,
        "transport": options.transport if device else None,
        "preset": options.preset if device else None,
        "trace": trace.name, "synthetic": trace.synthetic,
        "tables": len(trace.columns), "rows": trace.rows, "dim": options.dim,
        "batch_size": options.batch_size, "epochs": options.epochs,
        "lr": options.lr, "seed": options.seed,
        "relearn_every": options.relearn_every, "relearn_decay": options.relearn_decay,
        "cold": options.cold if device else None,
    }


def _trainers(options, trace, device, progress):
    """The reference and the mode's trainer, equal at the start."""
    optimizer = OPTIMIZERS[options.optimizer](options.lr)
    hot_rows = device and options.hot_budget.resolve(
        trace.rows, options.row_bytes, device.geometry.slots)
    progress.phase(f"initialising twice {trace.rows:,} rows of {options.row_bytes} bytes")
    initial_state = optimizer.initial if optimizer.state_bytes else None
    tables = EmbeddingTables(trace.cardinalities, options.dim, initial_state)
    tables.initialise(options.seed)
    torch.manual_seed(options.seed)
    model = DLRM(trace.dense_columns, tables.count, options.dim, options.mlp_scale)
    twins = copy.deepcopy(model), tables.copy(), optimizer
    reference = ReferenceTrainer(model, tables, optimizer)
    if device:
        kind = PooledTrainer if options.cold == "pooled" else HotlineTrainer
        return reference, kind(*twins, device, hot_rows)
    return reference, ResidentTrainer(*twins)
