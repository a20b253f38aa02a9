"""A training run: a mode of the collection and a reference, side by side on the same batches."""

import copy
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import torch
from torch import nn

from ... import device as driver
from ...command.limits import free_memory
from ...command.terminal import Steps
from ...contract.errors import Error
from ...device import Device
from ...tables import MemoryPlan
from ...timeline import Timeline
from ...traces.trace import Samples, Trace
from ..collection.id_maps import KEPT
from ..memory.tables import EmbeddingTables
from ..optim.rules import OPTIMIZERS, Rule
from ..pipeline.checkpoint import Checkpoint
from ..store.placement_policy import LookAheadPolicy
from .check import BitCheck, StepCheck
from .collection_trainer import CollectionTrainer
from .dlrm import DLRM
from .learning import LearningSchedule
from .memory import plan_process
from .options import CACHED, EXACT, TrainOptions
from .placing import LEARNING_SHARE, cached_options, schedule_of
from .record import NO_DEVICE, CycleMeter, Predictions, Traffic
from .reference import ReferenceTrainer
from .resuming import Resuming
from .trainer import Trainer


def train(options: TrainOptions, steps: Steps, trace: Trace | None = None) -> dict[str, Any]:
    """Run.

    The mode and its reference start from one model and one set of tables. In modes hotline and
    resident the reference is plain PyTorch, and every step is checked against it (`StepCheck`). In
    the others it is mode resident: predictions, final tables and state must have its bits. Loss
    and AUC rate predictions before the update on the same batch, over the second half of the run.
    Hit rate and popular fraction of hotline leave out the batches before the first learning.
    Tables on disk train without a reference.

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
        if options.uses_card and not options.memory:
            device = held.enter_context(driver.open(options.transport, options.preset))
        run = _Run(options, trace, device, steps)
        held.callback(run.close)
        if options.timeline:
            assert run.device is not None  # TrainOptions refuses a timeline of mode resident
            run.timeline = held.enter_context(Timeline(run.device, options.timeline))
        return run.go()


class _Run:
    def __init__(self, options: TrainOptions, trace: Trace, device: Device | None, steps: Steps):
        self.options, self.trace, self.device, self.steps = options, trace, device, steps
        self.cached, self.exact = options.mode in CACHED, options.mode in EXACT
        self.timeline: Timeline | None = None
        self.plan: MemoryPlan | None = None
        self.total, self.first = options.total_batches(trace), 0
        self.resuming = Resuming(options, trace)
        rule = OPTIMIZERS[options.optimizer](options.lr)
        self.schedule = LearningSchedule(0, 0)
        chosen: dict[str, Any] = {}
        if self.cached:
            chosen = cached_options(options, trace, device)
        elif options.mode == "hotline":
            assert device is not None, "it needs a card"
            self.schedule = schedule_of(options, trace, device.geometry.slots)
            chosen = {"cold": options.cold, "workers": 1}  # which fetches beside popular samples
        torch.manual_seed(options.seed)
        model = DLRM(trace.dense_columns, len(trace.cardinalities), options.dim,
                     options.mlp_scale)
        ids: dict[str, Any] = {"any_ids": bool(options.any_ids), "seed": options.seed}
        self.reference: Trainer | None = None
        self.check: BitCheck | StepCheck | None = None
        if options.tables is None:
            self._begin(model, rule, ids, chosen)
        else:
            self._open(options.tables, model, rule, {**ids, **chosen})
        self.meter = CycleMeter(self.device) if self.device else None
        self.predictions, self.traffic = Predictions(), Traffic()
        self.history: list[dict[str, Any]] = []
        self.warmed = self.lookups = 0
        self.without_row = self.trainer.id_figures().get("default_lookups", 0)

    def _begin(self, model: nn.Module, rule: Rule, ids: dict[str, Any],
               chosen: dict[str, Any]) -> None:
        """Make tables in memory, and the reference beside."""
        options, trace = self.options, self.trace
        self.steps.begin(f"initialising twice {trace.rows:,} rows of {options.row_bytes} bytes")
        tables = EmbeddingTables(trace.cardinalities, options.dim,
                                 rule.initial if rule.state else None).initialise(options.seed)
        ids["id_maps"] = self._resume(options.resume, model, tables) if options.resume else None
        twins = copy.deepcopy(model), tables.copy(), rule
        self.trainer = CollectionTrainer(model, tables, rule, self.device, options.mode, **ids,
                                         **chosen)
        self.reference = (CollectionTrainer(*twins, **ids) if self.exact
                          else ReferenceTrainer(*twins))
        self.check = (BitCheck(self.reference) if self.exact
                      else StepCheck(self.trainer, self.reference))

    def _open(self, folder: str, model: nn.Module, rule: Rule, chosen: dict[str, Any]) -> None:
        """Open tables on disk, and continue at their last commit if that is asked for."""
        options = self.options
        self.steps.begin(f"opening the tables in {folder}")
        shape = EmbeddingTables(self.trace.cardinalities, options.dim,
                                rule.initial if rule.state else None, device="meta")
        memory = None
        if options.memory is not None:
            self.plan = plan_process(options, self.trace, model)
            memory = self.plan.limit - self.plan.process
            print(f"hotrow: {self.plan}", file=sys.stderr)
        self.trainer = CollectionTrainer(model, shape, rule, self.device, options.mode,
                                         path=folder, memory=memory, **chosen)
        collection = self.trainer.collection
        card = collection.store.card
        self.device = None if card is None else card.device
        try:
            kept = collection.open_commit()
            if options.resume is None:
                if collection.commits()[-1].number:
                    raise Error(f"the tables in {folder} are those of another run: continue it "
                                f"with --resume, or name another folder")
                self._commit(0)  # so that a run that ends early leaves tables with their model
            elif not isinstance(kept, dict) or "settings" not in kept:
                raise Error(f"the tables in {folder} have no run of hotrow train to continue: "
                            f"leave --resume out, and name an empty folder")
            else:
                self.first = self.resuming.go_on(folder, kept, model)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release batches that will not be trained, and close tables on disk at their last commit.
        """
        collection = self.trainer.collection
        collection.abandon()
        if self.options.tables is not None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of a run that failed: steps after that commit
                collection.close()

    def go(self) -> dict[str, Any]:
        """Train, check and report: dict."""
        started = time.monotonic()
        # Stages may run on threads at any time, while a check takes steps that do not count.
        meter, none = self.meter or nullcontext(), nullcontext()
        whole, inside = (meter, none) if self.exact else (none, meter)
        with whole:
            if self.options.mode == "freqcache":
                self._warm_up()
            self._train(inside)
            self.trainer.flush()
        self._carry()
        seconds = time.monotonic() - started
        self._keep(self.total)
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
            expected = check.step(samples) if check else None
            with meter, self._drawn(number):
                result = trainer.step(samples)
            if check and expected:
                check.compare(result, expected)
            self.lookups += samples.ids.size
            self.traffic.add(result, scored=number >= self.schedule.batches)
            assert samples.label is not None  # `TrainOptions.open_trace` refuses such a trace
            self.predictions.add(samples.label, result.logits,
                                 expected.logits if expected else None)
            done = number + 1
            if options.eval_every and done % options.eval_every == 0:
                here = done - self.first
                self.history.append({"batch": done, **self.predictions.score(
                    max(0, here - options.eval_every))})
            if done % options.checkpoint_every == 0 and done < self.total:
                self._keep(done)
            advance(_note(check, self.history))

    def _drawn(self, number: int) -> AbstractContextManager[None]:
        """The step of a batch as a slice of the timeline."""
        if self.timeline is None:
            return nullcontext()
        workers = 1 if self.options.mode == "hotline" else self.options.workers
        return self.timeline.step(f"batch {number}", overlapped=bool(workers))

    def _batches(self) -> Iterator[tuple[int, Samples]]:
        """Number and samples of each batch; in exact modes the coming ones are prefetched."""
        epoch, size = self.options.epoch_batches(self.trace), self.options.batch_size
        if not self.exact:
            for number in range(self.first, self.total):
                yield number, self.trace.batch(number % epoch, size)
            return
        ahead = self.trainer.collection.store.ahead
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
        options, trace, device, check = self.options, self.trace, self.device, self.check
        self.steps.begin("hashing the tables")
        digest = None
        if check or trace.rows * options.row_bytes <= free_memory():  # where resident would train
            digest = self.trainer.tables.sha256()
        held, equal = check.held if check else None, None
        if self.reference and self.exact:
            equal = digest == self.reference.tables.sha256()
            held = held and equal
        elif not device:
            equal = True
        scored = max(self.first, self.total // 2)
        return {
            "mode": options.mode, "optimizer": options.optimizer,
            "transport": options.transport if device else None,
            "preset": options.preset if device and not options.memory else None,
            "trace": trace.name, "synthetic": trace.synthetic, "tables": len(trace.columns),
            "rows": trace.rows, "dim": options.dim, "batch_size": options.batch_size,
            "epochs": options.epochs, "lr": options.lr, "seed": options.seed,
            "batches": self.total, "scored_from_batch": scored,
            **self.predictions.score(min(scored, self.total - 1) - self.first),
            "history": self.history,
            "max_row_difference": None if self.exact or not check else check.max_difference,
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
            "memory_plan": self.plan and str(self.plan),
            "disk": collection.disk.disk.store.figures() if collection.disk.any else None,
        }

    def _keep(self, batch: int) -> None:
        """Write the checkpoint of a batch, where the run writes any."""
        if self.options.tables is not None:
            self._commit(batch)
        elif self.options.checkpoint:
            self.trainer.flush()
            rows, maps = self.trainer.tables.rows, self.trainer.collection.id_maps
            Checkpoint(self.options.checkpoint).save(
                **self.resuming.parts(batch, self.trainer.model), rows=rows.array, side=rows.side,
                id_maps=maps and maps.state())

    def _commit(self, batch: int) -> None:
        self.trainer.collection.commit(self.resuming.parts(batch, self.trainer.model))

    def _resume(self, path: str, model: nn.Module, tables: EmbeddingTables) -> bytes | None:
        """Continue from a checkpoint: the state of its maps of ids, if it has any."""
        kept = Checkpoint(path).load()
        self.first = self.resuming.go_on(path, kept, model)
        if kept["rows"].shape != tables.rows.array.shape:
            raise Error(f"{path} holds {len(kept['rows'])} rows, and this trace needs "
                        f"{len(tables.rows)}")
        tables.rows.array.copy_(kept["rows"])
        if tables.rows.side is not None:
            tables.rows.side.copy_(kept["side"])
        maps: bytes | None = kept.get("id_maps")
        return maps


def _note(check: BitCheck | StepCheck | None, history: list[dict[str, Any]]) -> str:
    """The check's figure and the latest evaluation, beside the progress bar."""
    notes = [f"check {check.max_difference:.2g} of its limit"] if check else []
    if history:
        auc = history[-1]["auc"]
        notes.append(
            f"loss {history[-1]['loss']:.4f}, AUC {'-' if auc is None else f'{auc:.3f}'}")
    return ", ".join(notes)

