"""Settings of a training run."""

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...command.limits import check_batch, check_folder, check_memory, check_writable
from ...command.options import HotBudget
from ...contract.errors import Error
from ...contract.generated import DEFAULT_PRESET
from ...contract.geometry import preset
from ...tables.memory import memory_bytes
from ...traces import Trace, open_trace

if TYPE_CHECKING:  # these load PyTorch
    from ..optim.rules import OptimizerName
    from ..store.opening import Mode

MODES = ("hotline", "resident", "scratchpipe", "freqcache", "near_memory")
CACHED = ("scratchpipe", "freqcache")  # a planner gives slots to the rows of coming batches
EXACT = (*CACHED, "near_memory")  # to the bits of mode resident
STATEFUL = {"sgd": False, "rowwise_adagrad": True}
OPTIMIZERS = tuple(STATEFUL)
COLD = ("gathered", "pooled")
GENERATED_BATCHES = 80  # per epoch of an endless trace
ROW_ALIGNMENT = 16  # bytes: a device moves rows in place in multiples of it


@dataclass(frozen=True)
class TrainOptions:
    """Options of `hotrow train`, by their names on the command line."""

    trace: str
    ids: tuple[str, ...] = ()
    label: str | None = None
    dense: tuple[str, ...] = ()
    bag: str | None = None
    hash_rows: int | None = None
    any_ids: int | None = None
    tables: str | None = None
    memory: str | None = None
    mode: "Mode" = "hotline"
    transport: str = "cpu"
    preset: str = DEFAULT_PRESET
    optimizer: "OptimizerName" = "sgd"
    batch_size: int = 1024
    batches: int | None = None
    epochs: int = 1
    dim: int = 16
    mlp_scale: float = 1.0
    lr: float = 0.3
    seed: int = 0
    hot_budget: HotBudget = field(default_factory=HotBudget)
    eval_every: int | None = None
    relearn_every: int = 0
    relearn_decay: int = 1
    cold: str = "gathered"
    policy: str | None = None
    depth: int = 4
    look_ahead: int = 2
    workers: int = 0
    checkpoint: str | None = None
    checkpoint_every: int = 20
    resume: str | None = None
    timeline: str | None = None

    @property
    def row_bytes(self) -> int:
        return 4 * self.dim

    @property
    def uses_card(self) -> bool:
        """Whether a device is opened: not where the host's cores train tables in its memory."""
        return self.mode != "resident" and (
            self.mode != "near_memory" or self.transport != "cpu")

    def open_trace(self) -> Trace:
        """Open the trace, and check that the options fit it.

        Raises
        ------
        Error
        """
        if self.row_bytes % ROW_ALIGNMENT:
            raise Error(f"a row of dim {self.dim} has {self.row_bytes} bytes, and a device "
                        f"moves rows in multiples of {ROW_ALIGNMENT}: choose a dim divisible by 4")
        if self.any_ids and self.hash_rows:
            raise Error("--any-ids takes ids as they are: leave --hash-rows out")
        if self.any_ids and self.mode not in CACHED:
            raise Error(f"--any-ids is for modes {' and '.join(CACHED)}, not {self.mode}: add "
                        f"--mode {CACHED[0]}")
        preset(self.preset)
        if self.mode != "hotline" and self.relearn_every:
            raise Error(f"mode {self.mode} has no hot rows to learn again: leave --relearn-every "
                        "out")
        if self.mode != "hotline" and self.cold != COLD[0]:
            raise Error(f"mode {self.mode} has no cold rows: leave --cold out")
        if self.mode not in CACHED:
            if self.timeline and not self.uses_card:
                on = "" if self.mode == "resident" else " on the transport cpu"
                raise Error(f"mode {self.mode} uses no card{on}: leave --timeline out")
            for name in ("tables", "policy", "checkpoint", "resume"):
                if getattr(self, name):
                    raise Error(f"--{name} is for modes {' and '.join(CACHED)}, not {self.mode}: "
                                f"add --mode {CACHED[0]}, or leave it out")
        self._check_tables()
        self._check_files()
        trace = open_trace(self.trace, self.ids, self.label, self.dense, self.bag, seed=self.seed,
                           hash_rows=self.hash_rows, any_ids=self.any_ids)
        if not trace.labelled:
            raise Error(f"training needs a label: name the column of {self.trace} with --label")
        if self.mode == "hotline" and self.total_batches(trace) < 2:
            raise Error(f"hotline learns on the first batch and needs at least 2, but {self.trace} "
                        f"gives 1 batch of {self.batch_size}: lower --batch-size")
        self._check_fits(trace)
        return trace

    def _check_tables(self) -> None:
        """Raise Error if options of tables on disk do not go together."""
        if self.tables is None:
            if self.memory is not None:
                raise Error("--memory limits a process whose tables are on disk: name their folder "
                            "with --tables, or leave --memory out")
            if self.resume == "":
                raise Error("--resume needs the FILE of a checkpoint, or the folder of --tables")
            return
        if not self.tables:
            raise Error("--tables needs the name of a folder")
        if self.checkpoint is not None:
            raise Error(f"the commits of the tables in {self.tables} are the checkpoints of the "
                        f"run: leave --checkpoint out")
        if self.resume and os.path.realpath(self.resume) != os.path.realpath(self.tables):
            raise Error(f"--resume names {self.resume}, and the run would continue in "
                        f"{self.tables}: give --resume without a file")
        if self.memory is not None:
            memory_bytes(self.memory)
            if self.transport != "cpu" or self.hot_budget.asked:
                raise Error("--memory chooses the slots of a card in software: leave --transport, "
                            "--slots and --hot-budget out, or --memory")
        check_folder(self.tables)

    def _check_files(self) -> None:
        for path in filter(None, (self.timeline, self.checkpoint)):
            check_writable(path)

    def _check_fits(self, trace: Trace) -> None:
        """Raise Error if memory or card are too small."""
        row_bytes = 0 if self.tables is not None else self.row_bytes + 4 * STATEFUL[self.optimizer]
        if self.any_ids:
            from ...ids import IdMap  # which loads PyTorch

            row_bytes += IdMap.ROW_BYTES
        check_memory(trace, row_bytes, copies=1 if self.tables is not None else 2)
        if self.uses_card:
            check_batch(trace, self.batch_size, self.preset)

    def epoch_batches(self, trace: Trace) -> int:
        """Batches of one epoch."""
        here = trace.batch_count(self.batch_size)
        if here is None:
            return self.batches or GENERATED_BATCHES
        return min(self.batches or here, here)

    def total_batches(self, trace: Trace) -> int:
        return self.epochs * self.epoch_batches(trace)
