"""`HotEmbeddingBag`: one table, called as `torch.nn.EmbeddingBag` is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

import torch
from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from ...contract.errors import BatchError, Error
from ..features.bags import Bags
from ..features.configs import TableConfig
from ..features.inputs import host_tensor, weights_of
from ..optim.on_host import entries_on_host
from ..store.opening import Mode
from .collection import HotEmbeddingBagCollection
from .eager import outside_compile, refuse_scripting
from .named_tables import without_weight
from .row_optimizer import RowOptimizer
from .saved_state import load_others

Self = TypeVar("Self", bound="HotEmbeddingBag")


@entries_on_host
class HotEmbeddingBag(nn.Module):
    """Replaces an `nn.EmbeddingBag`; `optimizer` trains its rows.

    Parameters
    ----------
    num_embeddings, embedding_dim : int
    mode : str
        "mean" or "sum" of each bag.
    include_last_offset : bool
    padding_idx : int, optional
        An id that is not looked up.
    cache : str
        The collection's mode, with its default.
    collection : HotEmbeddingBagCollection, optional
        The owner of the table `name`; by default a collection of this table alone.
    name : str
        Name of the table.
    **own
        Of its own collection, as in `HotEmbeddingBagCollection`: device, optimizer, lr, options.

    Attributes
    ----------
    collection : HotEmbeddingBagCollection
    table : int
        Number of its table in the collection.
    optimizer : RowOptimizer

    Raises
    ------
    Error
        `collection` has no such table, or one of another shape or mode.
    """

    __call__: Callable[..., torch.Tensor]  # a type only

    def __init__(self, num_embeddings: int, embedding_dim: int, mode: str = "mean",
                 include_last_offset: bool = False, padding_idx: int | None = None, *,
                 cache: Mode | None = None, collection: HotEmbeddingBagCollection | None = None,
                 name: str = "bag", **own: Any) -> None:
        super().__init__()
        if "ids" in own:
            refuse_any_ids(f"a {type(self).__name__}")
        self.num_embeddings, self.embedding_dim, self.mode = num_embeddings, embedding_dim, mode
        self.include_last_offset, self.padding_idx = include_last_offset, padding_idx
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise Error(f"padding_idx is {padding_idx}: expected a row of the table, "
                            f"{-num_embeddings} to {num_embeddings - 1}")
            self.padding_idx = padding_idx % num_embeddings
        fresh = collection is None
        if collection is None:
            collection = HotEmbeddingBagCollection(
                [TableConfig(name, num_embeddings, embedding_dim, mode)], mode=cache, **own)
        elif own:
            raise Error(f"{', '.join(own)} of a bag would have no effect: give them to its "
                        f"collection")
        # In a list, so that the collection is no submodule: several bags may share it.
        self._shared, self.name = [collection], name
        self.table = _table_of(collection, name, (num_embeddings, embedding_dim, mode))
        if collection.tables[self.table].ids == "any":
            refuse_any_ids(f"a {type(self).__name__} of table {name!r}")
        self._dtype = collection.tables[self.table].dtype
        self._parameters["weight"] = collection.embeddings[name].parameter
        if fresh and self.padding_idx is not None:
            with torch.no_grad():
                self.weight[self.padding_idx] = 0

    @property
    def collection(self) -> HotEmbeddingBagCollection:
        """The owner of the table."""
        return self._shared[0]

    @property
    def optimizer(self) -> RowOptimizer:
        """The optimizer of the rows of the collection."""
        return self.collection.optimizer

    def bags(self, input: Any, offsets: Any = None, per_sample_weights: Any = None) -> Bags:
        """Bags of the arguments, as `collection.prefetch` takes them."""
        return self.collection.layout.agree(
            lambda: self._bags(input, offsets, per_sample_weights),
            "a batch was refused, because of an input")

    def _bags(self, input: Any, offsets: Any, per_sample_weights: Any) -> Bags:
        input = host_tensor(input, "input")
        per_sample_weights = weights_of(per_sample_weights, "per_sample_weights")
        if per_sample_weights is not None and per_sample_weights.shape != input.shape:
            raise BatchError(f"expected per_sample_weights of shape {list(input.shape)}, as the "
                             f"input, got {list(per_sample_weights.shape)}")
        if input.dim() == 2:
            if offsets is not None:
                raise BatchError("expected no offsets with an input of 2 dimensions: every row "
                                 "is a bag")
            samples, length = input.shape
            if length == 1 and self.padding_idx is None:
                return Bags.of([self.table], input, weights=per_sample_weights)
            offsets, last = torch.arange(0, (samples + 1) * length, max(1, length)), True
            if not length:
                offsets = torch.zeros(samples + 1, dtype=torch.int64)
            input = input.reshape(-1)
            if per_sample_weights is not None:
                per_sample_weights = per_sample_weights.reshape(-1)
        elif offsets is None:
            raise BatchError("expected offsets with an input of 1 dimension")
        else:
            last = self.include_last_offset
        return Bags.of([self.table], input, offsets, per_sample_weights, padding=self.padding_idx,
                       include_last_offset=last)

    @outside_compile
    def forward(self, input: Any, offsets: Any = None,
                per_sample_weights: Any = None) -> torch.Tensor:
        """Pooled bags [samples, embedding_dim]; arguments as in `nn.EmbeddingBag`.

        The result has the table's dtype; sums are fp32.
        """
        trains = self.train_rows
        if (offsets is None and per_sample_weights is None and self.padding_idx is None
                and self.training and torch.is_grad_enabled() and trains):
            found = self.collection.calls.expected(self.table, input)
            if found is not None:
                return found if found.dtype == self._dtype else found.to(self._dtype)
        bags = self.bags(input, offsets, per_sample_weights)
        return self.collection.lookups.by_feature(bags, self.training, trains)[0].to(self._dtype)

    @property
    def train_rows(self) -> bool:
        """Whether lookups train rows; errors as in `Table.trains`."""
        return self.collection.embeddings[self.name].trains(self._parameters.get("weight"))

    def __prepare_scriptable__(self) -> None:
        refuse_scripting()

    def __getstate__(self) -> dict[str, Any]:
        with without_weight(self):
            return {**self.__dict__, "_parameters": {**self._parameters}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        nn.Module.__setstate__(self, state)
        self._parameters["weight"] = self.collection.embeddings[self.name].parameter

    def _apply(self: Self, fn: Callable[[torch.Tensor], torch.Tensor],
               recurse: bool = True) -> Self:
        """Leave the rows where they are, with their dtype."""
        with without_weight(self):
            nn.Module._apply(self, fn, recurse)
        return self

    def reset_parameters(self) -> None:
        """Draw the rows as `nn.EmbeddingBag` does; the row of `padding_idx` is zero."""
        weights = torch.empty(self.num_embeddings, self.embedding_dim, dtype=torch.float32)
        weights = nn.init.normal_(weights.to(self.collection.tables[self.table].dtype))
        if self.padding_idx is not None:
            weights[self.padding_idx] = 0
        self.collection.lifecycle.reset()
        self.collection.contents.assign(self.name, weights)

    @property
    def weight(self) -> torch.Tensor:
        """The rows, up to date: the table's parameter."""
        return self.collection.embeddings[self.name].weight

    @property
    def state(self) -> torch.Tensor | None:
        """The optimizer's state of the rows, up to date, or None."""
        return self.collection.embeddings[self.name].state

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str,
                            keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        self.collection.saved.save({self.name: prefix}, destination, keep_vars)

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str,
                              local_metadata: Any, strict: bool, missing_keys: list[str],
                              unexpected_keys: list[str], error_msgs: list[str]) -> None:
        state_dict = load_others(
            self, state_dict, prefix, local_metadata, strict, missing_keys, error_msgs)
        self.collection.saved.load({self.name: prefix}, state_dict, prefix, strict, missing_keys,
                                   unexpected_keys, error_msgs)

    def extra_repr(self) -> str:
        return (f"{self.num_embeddings}, {self.embedding_dim}, mode={self.mode!r}, "
                f"cache={self.collection.mode!r}")


def _table_of(collection: HotEmbeddingBagCollection, name: str,
              wanted: tuple[int, int, str]) -> int:
    """Number of the table of that name, which must have these rows, elements and pooling."""
    names = [config.name for config in collection.tables]
    if name not in names:
        raise Error(f"the collection has no table {name!r}: expected one of {', '.join(names)}")
    number = names.index(name)
    config = collection.tables[number]
    found = config.num_embeddings, config.embedding_dim, config.pooling
    if found != wanted:
        raise Error(f"table {name!r} of the collection is {found}: expected rows, elements and "
                    f"pooling {wanted}, as the bag has")
    return number


def refuse_any_ids(what: str) -> NoReturn:
    """Raise Error of something that would have `ids="any"`."""
    raise Error(f"{what} has ids 0 to num_embeddings - 1: for 64-bit ids call a "
                f"HotEmbeddingBagCollection of TableConfig(..., ids='any'), whose state_dict() has "
                f"the rows' ids")


def check_convertible(name: str, bag: nn.EmbeddingBag | nn.Embedding) -> None:
    """Check an `nn.EmbeddingBag` or `nn.Embedding`.

    Raises
    ------
    Error
        It has a property that `HotEmbeddingBag` has not: max_norm, scale_grad_by_freq, mode "max",
        rows in float64 or on another device than the CPU, parametrizations, backward hooks, hooks
        of its state dict, further parameters or buffers, or a subclass's own methods.
    """
    weight, kind = bag.weight, "Embedding" + "Bag" * isinstance(bag, nn.EmbeddingBag)
    mode = getattr(bag, "mode", "sum")
    backward = (bag._backward_hooks, bag._backward_pre_hooks, weight._backward_hooks)
    of_state = (bag._state_dict_hooks, bag._state_dict_pre_hooks, bag._load_state_dict_pre_hooks,
                bag._load_state_dict_post_hooks)
    refused = {
        "max_norm": bag.max_norm is not None,
        "scale_grad_by_freq": bag.scale_grad_by_freq,
        f"mode={mode!r}": mode not in ("sum", "mean"),
        "parametrizations": is_parametrized(bag),
        f"the class {type(bag).__name__}, a subclass of nn.{kind}":
            type(bag) is not getattr(nn, kind) and not is_parametrized(bag),
        f"rows of {weight.dtype}": weight.dtype == torch.float64,
        f"rows on {weight.device}": weight.device.type != "cpu",
        "backward hooks": any(backward),
        "hooks of its state dict": any(of_state),
        "more parameters, buffers or submodules than its weight": bool(
            [*bag.buffers(), *list(bag.parameters())[1:], *bag.children()]),
        "a forward of its own": "forward" in vars(bag),
    }
    for what in (what for what, used in refused.items() if used):
        raise Error(f"{name}: an {kind} with {what} cannot be converted: a Hot{kind} has no such "
                    f"property, and would train differently; convert(choose=) leaves bags as they "
                    f"are")
