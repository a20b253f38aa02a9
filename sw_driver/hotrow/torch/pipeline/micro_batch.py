"""Forward and backward of one batch, in mode hotline in two parts."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import nn

from ...contract.errors import Error
from ..collection.collection import HotEmbeddingBagCollection
from ..features.bags import Bags

B = TypeVar("B")
_BATCH_COUPLED = (nn.modules.batchnorm._BatchNorm,)


def backward(collection: HotEmbeddingBagCollection, batch: B, loss: Callable[[B], torch.Tensor],
             select: Callable[[B, torch.Tensor], B] | None = None) -> None:
    """Run forward and backward of the batch that a collection prefetched first.

    In mode hotline the popular samples run first, while the rows of the others are fetched. The
    loss of a part counts as the part's share of the samples, so that the gradients of the parts
    add up to those of the batch.

    Parameters
    ----------
    collection : HotEmbeddingBagCollection
    batch
        A batch of the loader.
    loss : callable
        From a batch, or a part of one, to the mean loss of its samples.
    select : callable, optional
        From a batch and samples int64[k] to a batch of these; by default `indexed`.
    """
    if collection.mode != "hotline":
        loss(batch).backward()
        return
    coming = collection.batches.coming
    size = 0 if coming is None else coming.samples
    for samples in collection.batches.parts():
        part = (select or indexed)(batch, samples)
        (loss(part) * (len(samples) / size)).backward()


def indexed(batch: Any, samples: torch.Tensor) -> Any:
    """Some samples int64[k] of a tensor, of Bags, or of a tuple, list or dict of them."""
    if isinstance(batch, Bags):
        return batch.rows(samples)
    if isinstance(batch, dict):
        return {name: indexed(each, samples) for name, each in batch.items()}
    if isinstance(batch, (tuple, list)):
        return type(batch)(indexed(each, samples) for each in batch)
    if isinstance(batch, torch.Tensor):
        return batch[samples]
    raise Error(f"a batch holds tensors, and tuples, lists and dicts of them, not "
                f"{type(batch).__name__}: pass select=, which takes some of its samples")


def refuse_batch_coupled(model: nn.Module) -> None:
    """Raise Error for layers whose output for a sample depends on the rest of its batch."""
    for name, layer in model.named_modules():
        if isinstance(layer, _BATCH_COUPLED):
            raise Error(f"layer {name!r} ({type(layer).__name__}) couples the samples of a batch, "
                        "and hotline trains a batch in two parts: use a layer that treats each "
                        "sample alone, such as LayerNorm")
