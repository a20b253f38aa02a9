"""The interface of trainers: steps, and rows and parameters to capture and to load."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ...traces.trace import Samples
from ..memory.tables import EmbeddingTables
from ..optim.rules import Rule


@dataclass(frozen=True)
class StepResult:
    """One training step."""

    logits: NDArray[np.float32]  # [B]: predictions before the update
    lookups: int
    hits: int | None  # lookups whose row had a slot before the batch; None without slots
    popular: int = 0  # samples all of whose lookups hit, in mode hotline
    rows_moved: int = 0  # over the link, in either direction
    link_bytes: int = 0  # of these rows and their state, of ids, and of the device's results


@dataclass(frozen=True)
class Snapshot:
    """What one step can change: some rows, and the dense part."""

    weights: torch.Tensor  # float32[u, D]
    state: torch.Tensor | None  # float32[u]
    dense: list[torch.Tensor]  # every parameter of the model


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

    def __init__(self, model: nn.Module, tables: EmbeddingTables, optimizer: Rule):
        self.model, self.tables, self.optimizer = model, tables, optimizer
        self.dense_optimizer = torch.optim.SGD(model.parameters(), optimizer.lr)

    @abstractmethod
    def step(self, samples: Samples) -> StepResult:
        """Train on one batch."""

    def rehearse(self, samples: Samples) -> StepResult:
        """Take a step that the caller will undo: it trains as `step` does, and counts nothing."""
        return self.step(samples)

    def read_rows(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Contents of flat rows int64[u]: (weights float32[u, D], state float32[u] or None)."""
        return self.tables.rows.read(rows)

    def write_rows(self, rows: torch.Tensor, weights: torch.Tensor,
                   state: torch.Tensor | None) -> None:
        """Set the contents of flat rows int64[u]."""
        self.tables.rows.write(rows, weights, state)

    def capture(self, rows: torch.Tensor) -> Snapshot:
        """State of flat rows int64[u] and of the dense part."""
        dense = [parameter.detach().clone() for parameter in self.model.parameters()]
        weights, state = self.read_rows(rows)
        return Snapshot(weights, state, dense)

    def load(self, rows: torch.Tensor, snapshot: Snapshot) -> None:
        """Return flat rows and the dense part to a captured state."""
        self.write_rows(rows, snapshot.weights, snapshot.state)
        with torch.no_grad():
            for parameter, value in zip(self.model.parameters(), snapshot.dense, strict=True):
                parameter.copy_(value)


def flat_rows(tables: EmbeddingTables, samples: Samples) -> torch.Tensor:
    """Flat row of each lookup of Samples, in the order of the ids: int64[n]."""
    ids = samples.ids.astype(np.int64)
    if samples.lengths is None:
        return torch.from_numpy((ids + tables.first).ravel())
    return torch.from_numpy(ids + tables.first[samples.lookup_columns])
