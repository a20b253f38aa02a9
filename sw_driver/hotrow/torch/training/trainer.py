"""What every trainer offers: a step, and its state to capture and to load."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class StepResult:
    """One training step.

    Members
    -------
    logits : float32[B]
        Predictions made before the update.
    lookups, hits : int
        Lookups, and those whose row was in the trainer's memory.
    popular : int
        Samples all of whose lookups hit.
    rows_moved, link_bytes : int
        Rows carried over the link, either way; bytes carried, which are those rows and their
        state, the ids and lengths, and what the device wrote about the batch.
    """

    logits: np.ndarray
    lookups: int
    hits: int
    popular: int
    rows_moved: int = 0
    link_bytes: int = 0


@dataclass(frozen=True)
class Snapshot:
    """What one step can change: `weights` float32[u, D] and `state` float32[u] or None of some
    rows, and `dense`, every parameter of the model."""

    weights: torch.Tensor
    state: torch.Tensor | None
    dense: list[torch.Tensor]


class Trainer(ABC):
    """A model, its embedding tables and the optimizer's settings for both.

    Parameters
    ----------
    model : nn.Module
        Called with dense features and pooled embeddings, see `DLRM`.
    tables : EmbeddingTables
        Trained in place.
    optimizer : SGD or RowwiseAdagrad
        Of the tables. The dense part trains with `torch.optim.SGD` at the same rate.
    """

    def __init__(self, model, tables, optimizer):
        self.model, self.tables, self.optimizer = model, tables, optimizer
        self.dense_optimizer = torch.optim.SGD(model.parameters(), optimizer.lr)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row and its state."""
        return 4 * self.tables.dim + self.optimizer.state_bytes

    @abstractmethod
    def step(self, samples) -> StepResult:
        """Train on one batch."""

    def rehearse(self, samples) -> StepResult:
        """Take a step that will be undone: it trains as `step` does, and teaches nothing else."""
        return self.step(samples)

    def flush(self) -> int:
        """Bring the tables up to date; return how many rows were brought."""
        return 0

    def read_rows(self, rows):
        """Contents of flat rows int64[u]: (weights float32[u, D], state float32[u] or None)."""
        return self.tables.rows.read(rows)

    def write_rows(self, rows, weights, state):
        self.tables.rows.write(rows, weights, state)

    def capture(self, rows) -> Snapshot:
        """State of flat rows int64[u] and of the dense part."""
        dense = [parameter.detach().clone() for parameter in self.model.parameters()]
        return Snapshot(*self.read_rows(rows), dense)

    def load(self, rows, snapshot):
        """Return flat rows and the dense part to a captured state."""
        self.write_rows(rows, snapshot.weights, snapshot.state)
        with torch.no_grad():
            for parameter, value in zip(self.model.parameters(), snapshot.dense, strict=True):
                parameter.copy_(value)
