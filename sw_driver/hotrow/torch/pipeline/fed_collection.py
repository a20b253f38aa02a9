"""A collection that a pipeline feeds: its part of each batch that is read ahead."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ...contract.errors import Error
from ..collection.collection import HotEmbeddingBagCollection
from ..collection.embedding_bag import HotEmbeddingBag
from ..collection.joined_bags import joined_bags
from ..features.bags import Bags


@dataclass(frozen=True, eq=False)
class FedBatch:
    """What a collection looks up in a batch that was read ahead."""

    looks_up: bool
    prefetched: bool
    calls: Bags | None  # of a converted model's bags


class FedCollection:
    """Prefetches a collection's part of the batches.

    Attributes
    ----------
    collection : HotEmbeddingBagCollection
    names : list of str
        Of the collection in the model.
    bags : dict of str to HotEmbeddingBag
        Its bags in the model, by name.
    looks_up : bool
        Whether the batch that was begun last has lookups.
    """

    def __init__(self, collection: HotEmbeddingBagCollection):
        self.collection = collection
        self.names: list[str] = []
        self.bags: dict[str, HotEmbeddingBag] = {}
        self._lookups: list[HotEmbeddingBagCollection | HotEmbeddingBag] = []
        self._prefetched, self._taken = False, 0
        self.looks_up = True

    def add(self, name: str, module: HotEmbeddingBagCollection | HotEmbeddingBag) -> None:
        """Add a module of the model that looks up in the collection."""
        self._lookups.append(module)
        if isinstance(module, HotEmbeddingBag):
            self.bags[name] = module
        else:
            self.names.append(name)

    def own(self, inputs: dict[str, Any]) -> Any:
        """The part of a dict of inputs by name that is for this collection: its argument, or a dict
        of those of its bags."""
        for name in self.names:
            if name in inputs:
                return inputs[name]
        bags = {name: each for name, each in inputs.items() if name in self.bags}
        if not bags:
            raise Error(f"inputs have nothing for {' or '.join((*self.names, *self.bags))}: got "
                        f"{', '.join(map(repr, inputs))}")
        return bags

    def prefetch(self, inputs: Any) -> FedBatch:
        """Prefetch a batch if the model trains: FedBatch."""
        by_name = isinstance(inputs, dict)
        if by_name:
            bags = joined_bags(self.bags, inputs)
        else:
            given = inputs if isinstance(inputs, tuple) else (inputs,)
            bags = self.collection.batches.bags(*given)
        trains = torch.is_grad_enabled() and any(
            each.training and each.train_rows for each in self._lookups)
        if trains:
            self.collection.prefetch(bags)
        looks_up = bags.lookups > 0
        return FedBatch(looks_up, trains and looks_up, bags if by_name and trains else None)

    def begin(self, fed: FedBatch) -> None:
        """Begin with the batch that was prefetched first."""
        self.looks_up, self._prefetched = fed.looks_up, fed.prefetched
        self._taken = self.collection.batches.count
        if fed.calls is not None and self.collection.store.coming() is None:
            self.collection.calls.announce(fed.calls)

    @property
    def looked_up(self) -> bool:
        """Whether the batch that was begun last was prefetched and looked up."""
        return self._prefetched and self.collection.batches.count != self._taken

    def skip(self) -> None:
        """Leave out the batch that was begun last."""
        if self._prefetched:
            self.collection.skip()
            self._prefetched = False


def collections_of(model: nn.Module) -> list[FedCollection]:
    """The collections of a model: list of FedCollection.

    Raises
    ------
    Error
        There is none.
    """
    found: dict[int, FedCollection] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, (HotEmbeddingBagCollection, HotEmbeddingBag)):
            collection = module.collection if isinstance(module, HotEmbeddingBag) else module
            found.setdefault(id(collection), FedCollection(collection)).add(name, module)
    if not found:
        raise Error(f"a pipeline serves HotEmbeddingBagCollections, and {type(model).__name__} has "
                    f"none")
    return list(found.values())
