"""DLRM: bottom MLP, dot interaction of all pairs, top MLP (Naumov et al., arXiv 1906.00091)."""

from collections.abc import Iterable
from itertools import pairwise

import torch
from torch import nn

BOTTOM_WIDTHS = (512, 256, 64)  # as trained on Criteo Kaggle; the last layer has the embedding dim
TOP_WIDTHS = (512, 256)


class DLRM(nn.Module):
    """Click probability, as a logit, from dense features and pooled embeddings.

    Parameters
    ----------
    dense : int
        Dense features. With 0 there is no bottom MLP, and only embeddings interact.
    tables : int
    dim : int
        Of an embedding.
    scale : float
        Factor on the width of every hidden layer.
    """

    def __init__(self, dense: int, tables: int, dim: int, scale: float = 1.0):
        super().__init__()
        self.bottom = mlp([dense, *_scaled(BOTTOM_WIDTHS, scale), dim]) if dense else None
        vectors = tables + (dense > 0)
        self.pairs: torch.Tensor
        self.register_buffer("pairs", torch.tril_indices(vectors, vectors, -1), persistent=False)
        interacted = self.pairs.shape[1] + (dim if dense else tables * dim)
        self.top = mlp([interacted, *_scaled(TOP_WIDTHS, scale), 1])[:-1]

    def forward(self, dense: torch.Tensor, pooled: torch.Tensor) -> torch.Tensor:
        """float32[B, dense], float32[B, tables, dim] -> float32[B]"""
        if self.bottom is None:
            vectors, passed = pooled, pooled.flatten(1)
        else:
            passed = self.bottom(dense)
            vectors = torch.cat((passed[:, None], pooled), dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        logits: torch.Tensor = self.top(torch.cat((passed, products), dim=1))
        return logits.squeeze(1)


def mlp(widths: Iterable[int]) -> nn.Sequential:
    """Linear layers, each followed by a ReLU; Glorot's normal weights, biases of zero."""
    layers = []
    for inputs, outputs in pairwise(widths):
        linear = nn.Linear(inputs, outputs)
        nn.init.normal_(linear.weight, std=(2 / (inputs + outputs)) ** 0.5)
        nn.init.zeros_(linear.bias)
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers)


def _scaled(widths: Iterable[int], scale: float) -> list[int]:
    return [max(1, round(width * scale)) for width in widths]
