"""Runs of a collection under a small model, for tests that compare places of rows."""

from contextlib import ExitStack
from dataclasses import dataclass

import hotrow
import numpy as np
import torch
from hotrow.torch import HotEmbeddingBagCollection, TableConfig
from hotrow_rtl.config import preset
from torch import nn

PLANNING = preset("tiny")  # 256 slots
TABLES = (TableConfig("user", 300, 8), TableConfig("item", 500, 8, "mean"),
          TableConfig("place", 90, 6))


@dataclass(frozen=True)
class Drawn:
    """A batch: (indices, offsets) per table, and labels."""

    ids: list
    label: torch.Tensor


def draw(seed, count, tables=TABLES, samples=24, longest=3):
    """Skewed batches of unequal size, empty bags and repeated ids among them."""
    rng, batches = np.random.default_rng(seed), []
    for _ in range(count):
        size, ids = int(rng.integers(1, samples + 1)), []
        for config in tables:
            lengths = rng.integers(0, longest + 1, size)
            drawn = (config.num_embeddings * rng.random(lengths.sum()) ** 3).astype(np.int64)
            ids.append((torch.from_numpy(drawn),
                        torch.from_numpy(np.r_[0, lengths.cumsum()[:-1]].astype(np.int64))))
        batches.append(Drawn(ids, torch.from_numpy(rng.random(size).astype(np.float32))))
    return batches


@dataclass(frozen=True)
class Outcome:
    """Outcome of a run: digest of tables and state, losses, statistics."""

    sha256: str
    losses: list
    figures: dict


def train(batches, mode="resident", tables=TABLES, optimizer="sgd", ahead=0,
          every=1, transport="cpu", choose=None, store=None, reset_every=None, config=PLANNING,
          **options):
    """Train from one fixed start.

    Parameters
    ----------
    ahead : int
        Batches that are prefetched beyond the one that trains.
    every : int
        Batches whose gradients one step applies.
    choose : callable, optional
        Which of the stages that may run does: see `Stages.choose`.
    store : callable, optional
        Spoils the collection's store.
    reset_every : int, optional
        Batches after which the caches are reset; none is prefetched beyond that.
    """
    with ExitStack() as held:
        device = None
        if mode != "resident":
            device = held.enter_context(hotrow.open(transport, config=config))
        collection = held.enter_context(HotEmbeddingBagCollection(tables, device, mode, optimizer,
                                                                  0.2,
                                                                  seed=3, **options))
        if choose is not None:
            def chosen(ready):
                found = sorted(ready)
                return choose(found) if found else -1
            collection.store.stages.choose = chosen
        if store is not None:
            store(collection.store)
        torch.manual_seed(5)
        top = nn.Linear(sum(config.embedding_dim for config in tables), 1)
        dense, losses, prefetched = torch.optim.SGD(top.parameters(), 0.2), [], 0
        for number, batch in enumerate(batches):
            end = (number // reset_every + 1) * reset_every if reset_every else len(batches)
            while ahead and prefetched < min(end, len(batches), number + ahead + 1):
                collection.prefetch(batches[prefetched].ids)
                prefetched += 1
            predicted = top(collection(batch.ids)).squeeze(1)
            loss = (predicted - batch.label).square().mean()
            loss.backward()
            losses.append(float(loss.detach()))
            if (number + 1) % every == 0 or number + 1 == len(batches):
                for each in (dense, collection.optimizer):
                    each.step()
                    each.zero_grad()
            if reset_every and (number + 1) % reset_every == 0:
                collection.lifecycle.reset()
        collection.flush()
        return Outcome(collection.sha256(), losses, collection.statistics)


def worth(found):
    """A loss with a different gradient for every bag."""
    return (found * torch.linspace(-1, 1, found.numel()).view_as(found)).square().sum()


def check_beside(collection, beside, steps, batches, expect, tables):
    """Train a collection and modules of plain PyTorch on the same batches: outputs and tables stay
    close.

    Parameters
    ----------
    collection : HotEmbeddingBagCollection
    beside : sequence of nn.Embedding or nn.EmbeddingBag
        One for each table.
    steps : torch.optim.Optimizer
        Theirs.
    batches : iterable of Drawn
    expect : callable
        Their output for a batch.
    tables : sequence of TableConfig
    """
    for batch in batches:
        found, expected = collection(batch.ids), expect(batch)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
        for result, optimizer in ((found, collection.optimizer), (expected, steps)):
            optimizer.zero_grad()
            worth(result).backward()
            optimizer.step()
    collection.flush()
    for config, each in zip(tables, beside, strict=True):
        torch.testing.assert_close(collection.contents.table(config.name)[0], each.weight.detach(),
                                   rtol=1e-5, atol=1e-6)
