"""`HotEmbedding`: one table, called as `torch.nn.Embedding` is."""

from typing import Any

import torch

from ..features.bags import Bags
from ..features.inputs import host_tensor
from ..optim.on_host import entries_on_host
from .eager import outside_compile
from .embedding_bag import HotEmbeddingBag


@entries_on_host
class HotEmbedding(HotEmbeddingBag):
    """Replaces an `nn.Embedding`; `optimizer` trains its rows.

    Each id is a bag of its own, and a sample for the limits of the card.

    Parameters
    ----------
    num_embeddings, embedding_dim : int
    padding_idx : int, optional
        An id whose row is looked up and does not train.
    **own
        As in `HotEmbeddingBag`.
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None,
                 **own: Any) -> None:
        super().__init__(num_embeddings, embedding_dim, "sum", padding_idx=padding_idx, **own)

    def _bags(self, input: Any, offsets: Any, per_sample_weights: Any) -> Bags:
        column = host_tensor(input, "input").reshape(-1, 1)
        return super()._bags(column, offsets, per_sample_weights)

    @outside_compile
    def forward(self, input: Any) -> torch.Tensor:  # type: ignore[override]
        """Rows [*, embedding_dim] of integers [*]."""
        input = host_tensor(input, "input")
        column = input.reshape(-1, 1)
        found = super().forward(column)
        if self.padding_idx is not None:
            with torch.no_grad():
                padding = Bags.of([self.table], torch.tensor([[self.padding_idx]]))
                row = self.collection.lookups.by_feature(padding, False, False)[0]
            mask = (column == self.padding_idx).to(found.device)
            found = torch.where(mask, row.to(found.dtype), found)
        return found.reshape(*input.shape, self.embedding_dim)

    def extra_repr(self) -> str:
        return (f"{self.num_embeddings}, {self.embedding_dim}, padding_idx={self.padding_idx}, "
                f"cache={self.collection.mode!r}")
