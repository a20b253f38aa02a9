"""A training run: a mode of the collection and a reference, side by side on the same batches."""

import copy
import math
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import torch
from torch import nn

from ... import device as driver
from ...command.terminal import Steps
from ...contract.errors import Error
from ...device import Device
from ...timeline import Timeline
from ...traces.trace import Samples, Trace
from ..collection.id_maps import KEPT
from ..memory.tables import EmbeddingTables
from ..optim.rules import OPTIMIZERS
from ..pipeline.checkpoint import Checkpoint
from ..store.placement_policy import LookAheadPolicy, share_of
from .check import BitCheck, StepCheck
from .collection_trainer import CollectionTrainer
from .dlrm import DLRM
from .learning import LearningSchedule
from .options import CACHED, TrainOptions
from .record import NO_DEVICE, CycleMeter, Predictions, Traffic
from .reference import ReferenceTrainer
from .trained_data import TrainedData

LEARNING_SHARE = 0.05  # of all batches, in which the device counts which rows are hot
_SETTINGS = ("trace", "ids", "dense", "label", "bag", "hash_rows", "any_ids", "optimizer",
             "batch_size", "dim", "mlp_scale", "lr", "seed")


def train(options: TrainOptions, steps: Steps, trace: Trace | None = None) -> dict[str, Any]:
    """Run.

    The mode and its reference start from one model and one set of tables. In modes hotline and
    resident the reference is plain PyTorch, and every step is checked against it (`StepCheck`). In
    scratchpipe and freqcache it is mode resident: predictions, final tables and state must have
    its bits. Loss and AUC rate predictions before the update on the same batch, over the second
    half of the run. Hit rate and popular fraction of hotline leave out the batches before the
    first learning.

    Parameters
    ----------
    options : TrainOptions
    trace : Trace, optional
        What `options.open_trace()` returned.
    steps : terminal.Steps
        Shows phases and batches.

    Returns
    -------
    dict
        The fields of the JSON report.

    Raises
    ------
    Error
    """
    trace = trace or options.open_trace()
    ahead = options.depth - 1 + options.look_ahead
    if options.any_ids and ahead > KEPT:
        raise Error(f"--any-ids takes at most {KEPT} batches ahead, and --depth {options.depth} "
                    f"with --look-ahead {options.look_ahead} is {ahead}: lower --depth")
    with ExitStack() as held:
        device = None
        if options.mode != "resident":
            device = held.enter_context(driver.open(options.transport, options.preset))
        timeline = None
        if options.timeline:
            assert device is not None  # TrainOptions refuses a timeline of mode resident
            timeline = held.enter_context(Timeline(device, options.timeline))
        run = _Run(options, trace, device, steps, timeline)
        held.callback(run.trainer.collection.abandon)
        return run.go()


class _Run:
    def __init__(self, options: TrainOptions, trace: Trace, device: Device | None, steps: Steps,
                 timeline: Timeline | None = None):
        self.options, self.trace, self.device, self.steps = options, trace, device, steps
        self.cached, self.timeline = options.mode in CACHED, timeline
        self.total, self.first = options.total_batches(trace), 0
        self.data = TrainedData(trace, options.batch_size)
        rule = OPTIMIZERS[options.optimizer](options.lr)
        self.schedule = LearningSchedule(0, 0)
        chosen = self._mode_options(device.geometry.slots) if device else {}
        steps.begin(f"initialising twice {trace.rows:,} rows of {options.row_bytes} bytes")
        tables = EmbeddingTables(trace.cardinalities, options.dim,
                                 rule.initial if rule.state else None).initialise(options.seed)
        torch.manual_seed(options.seed)
        model = DLRM(trace.dense_columns, tables.count, options.dim, options.mlp_scale)
        maps = self._resume(options.resume, model, tables) if options.resume else None
        twins = copy.deepcopy(model), tables.copy(), rule
        ids: dict[str, Any] = {"any_ids": bool(options.any_ids), "seed": options.seed,
                               "id_maps": maps}
        self.trainer = CollectionTrainer(model, tables, rule, device, options.mode, **ids, **chosen)
        self.reference = (CollectionTrainer(*twins, **ids) if self.cached
                          else ReferenceTrainer(*twins))
        self.check = (BitCheck(self.reference) if self.cached
                      else StepCheck(self.trainer, self.reference))
        self.meter = CycleMeter(device) if device else None
        self.predictions, self.traffic = Predictions(), Traffic()
        self.history: list[dict[str, Any]] = []
        self.warmed = self.lookups = 0
        self.without_row = self.trainer.id_figures().get("default_lookups", 0)

    def _mode_options(self, slots: int) -> dict[str, Any]:
        """Options of the collection for the mode."""
        options, budget = self.options, self.options.hot_budget
        if not self.cached:
            self.schedule = LearningSchedule(
                math.ceil(LEARNING_SHARE * self.total),
                budget.resolve(self.trace.rows, options.row_bytes, slots),
                options.relearn_every, options.relearn_decay)
            return {"cold": options.cold, "workers": 1}  # which fetches beside popular samples
        share = 1 if not budget.asked else share_of(
            slots, budget.resolve(self.trace.rows, options.row_bytes, slots))
        return {"policy": options.policy, "share": share, "depth": options.depth,
                "look_ahead": options.look_ahead, "workers": options.workers}

    def go(self) -> dict[str, Any]:
        """Train, check and report: dict."""
        started = time.monotonic()
        # Stages may run on threads at any time, while a check takes steps that do not count.
        meter, none = self.meter or nullcontext(), nullcontext()
        whole, inside = (meter, none) if self.cached else (none, meter)
        with whole:
            if self.options.mode == "freqcache":
                self._warm_up()
            self._train(inside)
            self.trainer.flush()
        self._carry()
        seconds = time.monotonic() - started
        if self.options.checkpoint:
            self._save(self.options.checkpoint, self.total)
        report = self._report(seconds)
        without = report.get("default_lookups", 0) - self.without_row
        if without > self.lookups / 2:
            print(f"hotrow: warning: {without / self.lookups:.0%} of lookups found no row for "
                  f"their id and read the default row, which learns nothing of it: ask for more "
                  f"rows than --any-ids {self.options.any_ids}", file=sys.stderr)
        return report

    def _train(self, meter: AbstractContextManager[object]) -> None:
        options, trainer, check = self.options, self.trainer, self.check
        advance = self.steps.begin("training", self.total - self.first)
        for number, samples in self._batches():
            if options.mode == "hotline" and isinstance(check, StepCheck):
                with meter:
                    self.schedule.before(number, samples, trainer, check)
                self._carry()
            expected = check.step(samples)
            with meter, self._drawn(number):
                result = trainer.step(samples)
            check.compare(result, expected)
            self.lookups += samples.ids.size
            self.traffic.add(result, scored=number >= self.schedule.batches)
            assert samples.label is not None  # `TrainOptions.open_trace` refuses such a trace
            self.predictions.add(samples.label, result.logits, expected.logits)
            done = number + 1
            if options.eval_every and done % options.eval_every == 0:
                here = done - self.first
                self.history.append({"batch": done, **self.predictions.score(
                    max(0, here - options.eval_every))})
            if options.checkpoint and done % options.checkpoint_every == 0:
                self._save(options.checkpoint, done)
            advance(_note(check.max_difference, self.history))

    def _drawn(self, number: int) -> AbstractContextManager[None]:
        """The step of a batch as a slice of the timeline."""
        if self.timeline is None:
            return nullcontext()
        workers = 1 if self.options.mode == "hotline" else self.options.workers
        return self.timeline.step(f"batch {number}", overlapped=bool(workers))

    def _batches(self) -> Iterator[tuple[int, Samples]]:
        """Number and samples of each batch; in cached modes the coming ones are prefetched."""
        epoch, size = self.options.epoch_batches(self.trace), self.options.batch_size
        if not self.cached:
            for number in range(self.first, self.total):
                yield number, self.trace.batch(number % epoch, size)
            return
        ahead = self.options.depth - 1 + self.options.look_ahead
        coming, announced = {}, self.first
        for number in range(self.first, self.total):
            # Not beyond the epoch's end: what comes then may depend on how it ended.
            end = min(self.total, number + ahead + 1, (number // epoch + 1) * epoch)
            while announced < end:
                coming[announced] = self.trace.batch(announced % epoch, size)
                self.trainer.prefetch(coming[announced])
                announced += 1
            yield number, coming.pop(number)

    def _warm_up(self) -> None:
        """Mode freqcache counts the first batches, and gives the most accessed rows their slots."""
        epoch = self.options.epoch_batches(self.trace)
        for number in range(max(1, int(LEARNING_SHARE * self.total))):
            self.trainer.observe(self.trace.batch(number % epoch, self.options.batch_size))
        self.warmed = self.trainer.collection.learn()

    def _carry(self) -> None:
        """Add to the traffic what crossed the link since the last step."""
        done = self.trainer.counted()
        self.traffic.carry(done.get("rows_moved", 0), done.get("link_bytes", 0))

    def _report(self, seconds: float) -> dict[str, Any]:
        options, trace, device = self.options, self.trace, self.device
        self.steps.begin("hashing the tables")
        digest, held, equal = self.trainer.tables.sha256(), self.check.held, None
        if self.cached:
            equal = digest == self.reference.tables.sha256()
            held = held and equal
        elif not device:
            equal = True
        scored = max(self.first, self.total // 2)
        return {
            "mode": options.mode, "optimizer": options.optimizer,
            "transport": options.transport if device else None,
            "preset": options.preset if device else None,
            "trace": trace.name, "synthetic": trace.synthetic, "tables": len(trace.columns),
            "rows": trace.rows, "dim": options.dim, "batch_size": options.batch_size,
            "epochs": options.epochs, "lr": options.lr, "seed": options.seed,
            "batches": self.total, "scored_from_batch": scored,
            **self.predictions.score(min(scored, self.total - 1) - self.first),
            "history": self.history,
            "max_row_difference": None if self.cached else self.check.max_difference,
            "check_held": held, "table_sha256": digest, "table_hash_equal": equal,
            **self.traffic.figures(), **self.trainer.id_figures(),
            **(self._cached_figures() if self.cached
               else self._hotline_figures()),
            **(self.meter.figures(self.total - self.first) if self.meter else NO_DEVICE),
            "host_seconds": seconds,
        }

    def _hotline_figures(self) -> dict[str, Any]:
        options, storage = self.options, self.trainer.storage
        return {
            "relearn_every": options.relearn_every, "relearn_decay": options.relearn_decay,
            "cold": options.cold if self.device else None,
            "learning_batches": self.schedule.batches,
            "hot_rows": storage.count if storage else None, "bypasses": 0,
            "relearned": self.schedule.times, "rows_replaced": self.schedule.replaced,
        }

    def _cached_figures(self) -> dict[str, Any]:
        cache = self.trainer.cache
        assert cache is not None and isinstance(cache.policy, LookAheadPolicy)
        options, collection = self.options, self.trainer.collection
        figures, memory = collection.statistics, collection.memory
        return {
            "popular_fraction": None, "first_batch": self.first,
            "policy": cache.policy.policy, "depth": options.depth,
            "look_ahead": options.look_ahead, "workers": options.workers,
            "slots": cache.slots, "warmed_rows": self.warmed,
            "fills": figures["fills"], "evictions": figures["evictions"],
            "bypasses": figures["bypasses"], "trainer_bytes": self.trainer.most_bytes,
            "slot_bytes": memory["slots"],
            "metadata_bits_per_slot": memory["metadata_bits_per_slot"],
        }

    # Checkpoints, in cached modes.

    def _save(self, path: str, batch: int) -> None:
        self.trainer.flush()
        rows, maps = self.trainer.tables.rows, self.trainer.collection.id_maps
        Checkpoint(path).save(
            batch=batch, settings=_settings(self.options),
            trained=self.data.after(min(batch, self.options.epoch_batches(self.trace))),
            model=self.trainer.model.state_dict(),
            rows=rows.array, side=rows.side, random=torch.get_rng_state(),
            id_maps=maps and maps.state())

    def _resume(self, path: str, model: nn.Module, tables: EmbeddingTables) -> bytes | None:
        """Continue from a checkpoint: the state of its maps of ids, if it has any."""
        kept, ours = Checkpoint(path).load(), _settings(self.options)
        for name, value in ours.items():
            begun = kept["settings"].get(name)
            if value != begun:
                raise Error(f"{path} was trained with --{name.replace('_', '-')} {_shown(begun)}, "
                            f"not {_shown(value)}: use the options that the run began with")
        if kept["batch"] >= self.total:
            raise Error(f"{path} has trained {kept['batch']} batches, and this run is to end with "
                        f"{self.total}: ask for more --batches or --epochs")
        self._check_data(path, kept["trained"])
        model.load_state_dict(kept["model"])
        if kept["rows"].shape != tables.rows.array.shape:
            raise Error(f"{path} holds {len(kept['rows'])} rows, and this trace needs "
                        f"{len(tables.rows)}")
        tables.rows.array.copy_(kept["rows"])
        if tables.rows.side is not None:
            tables.rows.side.copy_(kept["side"])
        torch.set_rng_state(kept["random"])
        self.first = kept["batch"]
        maps: bytes | None = kept.get("id_maps")
        return maps


    def _check_data(self, path: str, trained: dict[str, Any]) -> None:
        """Raise Error unless the trace begins with the data that a checkpoint has trained."""
        samples, begun = trained["samples"], trained["digests"]
        here = TrainedData.digests(self.trace, samples)
        changed = [name for name, digest in begun.items() if here.get(name) != digest]
        if changed:
            raise Error(f"{', '.join(changed)} of the {samples} samples that {path} has trained "
                        f"are others in {self.trace.name} now: cells were changed, moved or taken "
                        f"out, or one is no integer, so that all are read as strings. Resume with "
                        f"the data of the run, to which lines were added at the end at most")


def _shown(value: Any) -> str:
    """An option's value as it is written."""
    return ",".join(value) if isinstance(value, (tuple, list)) else str(value)


def _note(difference: float, history: list[dict[str, Any]]) -> str:
    """The check's figure and the latest evaluation, beside the progress bar."""
    note = f"check {difference:.2g} of its limit"
    if history:
        auc = history[-1]["auc"]
        note += f", loss {history[-1]['loss']:.4f}, AUC {'-' if auc is None else f'{auc:.3f}'}"
    return note


def _settings(options: TrainOptions) -> dict[str, Any]:
    values = {name: getattr(options, name) for name in _SETTINGS}
    return {name: [*value] if isinstance(value, tuple) else value
            for name, value in values.items()}
