"""The memory of a run whose tables are on disk."""

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from ...ids import IdMap
from ...tables import MemoryPlan, Table, plan_memory
from ...tables.memory import most_resident
from ...traces.trace import Trace
from .options import STATEFUL, TrainOptions

_FIRST_STEPS = 32 << 20  # threads of the stages, and batches on their way


def rehearse(model: nn.Module, samples: int, dense: int, tables: int, dim: int) -> None:
    """Two forward and backward passes of a model on zeros, which train nothing."""
    for _ in range(2):
        pooled = torch.zeros(samples, tables, dim, requires_grad=True)
        logits = model(torch.zeros(samples, dense), pooled)
        binary_cross_entropy_with_logits(logits, torch.zeros_like(logits)).backward()
    model.zero_grad()


def plan_process(options: TrainOptions, trace: Trace, model: nn.Module) -> MemoryPlan:
    """Divide `options.memory`, which counts the whole process.

    What the process has without tables is measured while the model sees a batch of zeros: its
    parameters, gradients and activations, the trace, and what PyTorch takes for its first steps.

    Raises
    ------
    Error
        The limit is none, or too low: it names the least.
    """
    assert options.memory is not None
    count = len(trace.cardinalities)
    process = _FIRST_STEPS + most_resident(lambda: rehearse(
        model, options.batch_size, trace.dense_columns, count, options.dim))
    if options.any_ids:
        process += IdMap.ROW_BYTES * trace.rows
    state = "row" if STATEFUL[options.optimizer] else None
    tables = [Table(str(number), rows, options.dim, state=state)
              for number, rows in enumerate(trace.cardinalities)]
    return plan_memory(options.memory, tables, depth=options.depth, process=process)
