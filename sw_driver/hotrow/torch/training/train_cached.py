"""A training run in mode `scratchpipe` or `freqcache`, beside `resident` on the same batches."""

import copy
import time
from contextlib import ExitStack

import torch

from ...errors import Error
from ..memory.tables import EmbeddingTables
from ..optim.arithmetic import OPTIMIZERS
from ..pipeline.checkpoint import Checkpoint
from ..store.placement_policy import open_planner, share_of
from .collection_trainer import CollectionTrainer
from .dlrm import DLRM
from .record import CycleMeter, Predictions, Traffic
from .resident import ResidentTrainer

WARM_UP = 0.05  # of all batches are counted for freqcache, as hotline learns
_KEPT = ("trace", "optimizer", "batch_size", "dim", "mlp_scale", "lr", "seed")  # to go on with


def train_cached(options, progress):
    """Run; arguments, result and errors as of `train.train`.

    The check is that final tables, state and predictions have the bits of mode `resident`, which
    trains beside it; that one is checked against plain PyTorch by `--mode resident`.
    """
    trace = options.open_trace()
    with ExitStack() as held:
        device = held.enter_context(open_planner(options.transport, options.preset))
        run = _Run(options, trace, device, progress)
        held.callback(run.trainer.collection.abandon)
        return run.go()


class _Run:
    def __init__(self, options, trace, device, progress):
        self.options, self.trace, self.device, self.progress = options, trace, device, progress
        rule = OPTIMIZERS[options.optimizer](options.lr)
        share = _share(options, trace, device.geometry.slots)
        progress.phase(f"initialising twice {trace.rows:,} rows of {options.row_bytes} bytes")
        tables = EmbeddingTables(trace.cardinalities, options.dim,
                                 rule.initial if rule.state else None, rule.state or "row")
        tables.initialise(options.seed)
        torch.manual_seed(options.seed)
        model = DLRM(trace.dense_columns, tables.count, options.dim, options.mlp_scale)
        self.total, self.first = options.total_batches(trace), 0
        if options.resume:
            self._resume(model, tables)
        self.resident = ResidentTrainer(copy.deepcopy(model), tables.copy(), rule)
        self.trainer = CollectionTrainer(
            model, tables, rule, device, options.mode, policy=options.policy, share=share,
            depth=options.depth, look_ahead=options.look_ahead, workers=options.workers)
        self.meter = CycleMeter(device)
        self.predictions, self.traffic, self.same, self.warm = Predictions(), Traffic(), True, 0

    def go(self):
        started = time.monotonic()
        with self.meter:  # all the time: the stages may have threads of their own
            self._warm_up()
            history = self._train()
            self.trainer.flush()
        if self.options.checkpoint:
            self._save(self.total)
        return self._report(time.monotonic() - started, history)

    def _train(self):
        """Train, and look at every so many batches: a list of dict."""
        options, trainer, history = self.options, self.trainer, []
        ahead = options.depth - 1 + options.look_ahead
        epoch, coming, asked = options.epoch_batches(self.trace), {}, self.first
        for number in range(self.first, self.total):
            # Never beyond the epoch under way: what comes then may depend on how it ended.
            end = min(self.total, number + ahead + 1, (number // epoch + 1) * epoch)
            while asked < end:
                coming[asked] = self.trace.batch(asked % epoch, options.batch_size)
                trainer.prefetch(coming[asked])
                asked += 1
            samples = coming.pop(number)
            result = trainer.step(samples)
            expected = self.resident.step(samples)
            self.same &= bool((result.logits == expected.logits).all())
            self.traffic.add(result, scored=True)
            self.predictions.add(samples.label, result.logits, expected.logits)
            done = number + 1
            if options.eval_every and done % options.eval_every == 0:
                here = done - self.first
                history.append({"batch": done, **self.predictions.score(
                    max(0, here - options.eval_every))})
            if options.checkpoint and done % options.checkpoint_every == 0:
                self._save(done)
            self.progress.batch(done, self.total, 0.0 if self.same else float("inf"), history)
        return history

    def _warm_up(self):
        """Mode freqcache counts the first batches, and gives the most accessed rows their slots."""
        if self.options.mode != "freqcache":
            return
        epoch = self.options.epoch_batches(self.trace)
        for number in range(max(1, int(WARM_UP * self.total))):
            samples = self.trace.batch(number % epoch, self.options.batch_size)
            self.trainer.collection.observe(self.trainer.bags(samples))
        self.warm = self.trainer.collection.learn()

    def _report(self, seconds, history):
        options, figures = self.options, self.trainer.collection.statistics
        self.progress.phase("hashing the tables")
        digest, expected = (each.tables.sha256() for each in (self.trainer, self.resident))
        traffic = self.traffic.figures()
        scored = max(self.first, self.total // 2)
        return {
            "mode": options.mode, "optimizer": options.optimizer, "transport": options.transport,
            "preset": options.preset, "trace": self.trace.name, "synthetic": self.trace.synthetic,
            "tables": len(self.trace.columns), "rows": self.trace.rows, "dim": options.dim,
            "batch_size": options.batch_size, "epochs": options.epochs, "lr": options.lr,
            "seed": options.seed, "batches": self.total, "first_batch": self.first,
            "policy": self.trainer.collection.store.placing.policy, "depth": options.depth,
            "look_ahead": options.look_ahead, "workers": options.workers,
            "slots": self.trainer.collection.store.slots, "warmed_rows": self.warm,
            "scored_from_batch": scored,
            **self.predictions.score(min(scored, self.total - 1) - self.first),
            "history": history, "max_row_difference": None,
            "table_sha256": digest, "table_hash_equal": digest == expected,
            "check_held": digest == expected and self.same,
            **traffic, "popular_fraction": None, "rows_moved": figures["rows_moved"],
            "link_bytes": figures["link_bytes"], "fills": figures["fills"],
            "evictions": figures["evictions"], "bypasses": figures["bypasses"],
            "trainer_bytes": self.trainer.most_bytes,
            "slot_bytes": self.trainer.collection.memory["slots"],
            "metadata_bits_per_slot": self.trainer.collection.memory["metadata_bits_per_slot"],
            **self.meter.figures(self.total - self.first), "host_seconds": seconds,
        }

    def _save(self, batch):
        self.trainer.flush()
        rows = self.trainer.tables.rows
        Checkpoint(self.options.checkpoint).save(
            batch=batch, settings=_settings(self.options), model=self.trainer.model.state_dict(),
            rows=rows.array, side=rows.side, random=torch.get_rng_state())

    def _resume(self, model, tables):
        path, kept = self.options.resume, Checkpoint(self.options.resume).load()
        ours = _settings(self.options)
        for name, value in kept["settings"].items():
            if value != ours[name]:
                raise Error(f"{path} was trained with --{name.replace('_', '-')} {value}, not "
                            f"{ours[name]}: go on with what it began with")
        if kept["batch"] >= self.total:
            raise Error(f"{path} has trained {kept['batch']} batches, and this run is to end with "
                        f"{self.total}: ask for more --batches or --epochs")
        model.load_state_dict(kept["model"])
        if kept["rows"].shape != tables.rows.array.shape:
            raise Error(f"{path} holds {len(kept['rows'])} rows, and this trace needs "
                        f"{len(tables.rows)}")
        tables.rows.array.copy_(kept["rows"])
        if kept["side"] is not None:
            tables.rows.side.copy_(kept["side"])
        torch.set_rng_state(kept["random"])
        self.first = kept["batch"]


def _settings(options):
    return {name: getattr(options, name) for name in _KEPT}


def _share(options, trace, slots):
    """Parts of the directory of which one is used, so that there are no more slots than asked."""
    budget = options.hot_budget
    if not budget.asked:
        return 1
    return share_of(slots, budget.resolve(trace.rows, options.row_bytes, slots))
