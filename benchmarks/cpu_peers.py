"""Other libraries whose tables train on the CPU, and the bags that they take."""

from dataclasses import dataclass

import torch
from torch import nn

from .fbgemm import Absent, table_batched

SPARSE = {"sgd": torch.optim.SGD, "adam": torch.optim.SparseAdam}
DENSE = {"adam": torch.optim.Adam}
_OTHER_WORK = torch.zeros(1 << 23)


@dataclass(frozen=True)
class Bags:
    """Bags of all features, as a KeyedJaggedTensor has them.

    Attributes
    ----------
    ids : int64[tables * samples * bag]
        Feature after feature.
    tables, samples, bag : int
    """

    ids: torch.Tensor
    tables: int
    samples: int
    bag: int

    @classmethod
    def of(cls, ids, bag=1):
        """From int64[samples * bag, tables]."""
        return cls(ids.T.reshape(-1).contiguous(), ids.shape[1], len(ids) // bag, bag)

    def keys(self):
        return [f"t{number}" for number in range(self.tables)]

    def values(self):
        return self.ids

    def lengths(self):
        return torch.full((self.tables * self.samples,), self.bag)

    def offsets(self):
        return torch.arange(0, len(self.ids) + 1, self.bag)


class Peer:
    """A step of another library: it looks bags up, and trains in backward or by an optimizer.

    Parameters
    ----------
    forward : callable
        Of Bags.
    optimizer : torch.optim.Optimizer, optional
    """

    def __init__(self, forward, optimizer=None):
        self._forward, self._optimizer = forward, optimizer

    def step(self, bags):
        if self._optimizer:
            self._optimizer.zero_grad()
        backward(self._forward(bags))
        if self._optimizer:
            self._optimizer.step()


def peers(cardinalities, dim, rule) -> dict[str, Peer]:
    """Each peer that is installed and knows the rule, by name: "fbgemm", "embedding_bag", "dense",
    which updates every row in every step."""
    found = {}
    try:
        tables = table_batched(cardinalities, dim, rule)
        found["fbgemm"] = Peer(lambda bags: tables(bags.ids, bags.offsets()))
    except Absent:
        pass
    for name, optimizers, sparse in (("embedding_bag", SPARSE, True), ("dense", DENSE, False)):
        if rule.name in optimizers:
            found[name] = _merged(cardinalities, dim, sparse, optimizers[rule.name], rule.lr)
    return found


def _merged(cardinalities, dim, sparse, optimizer_of, lr):
    """One `nn.EmbeddingBag` with the rows of all tables."""
    first = torch.tensor([0, *cardinalities[:-1]]).cumsum(0)
    merged = nn.EmbeddingBag(sum(cardinalities), dim, mode="sum", sparse=sparse)

    def forward(bags):
        rows = bags.ids + first.repeat_interleave(bags.samples * bags.bag)
        return merged(rows, bags.offsets()[:-1])
    return Peer(forward, optimizer_of(merged.parameters(), lr))


def backward(pooled):
    """From a gradient of ones."""
    pooled.backward(torch.ones_like(pooled))


def use_caches():
    """What a model's dense part does between two steps: take the processor's caches."""
    _OTHER_WORK.add_(1)
