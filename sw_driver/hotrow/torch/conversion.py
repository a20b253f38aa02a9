"""Replacement of a model's `nn.EmbeddingBag`s and `nn.Embedding`s by tables of a device."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

import torch
from torch import nn

from ..contract.errors import Error
from ..device import Device
from .collection.collection import FORWARD_HOOKS, HotEmbeddingBagCollection, refuse_ranks
from .collection.embedding import HotEmbedding
from .collection.embedding_bag import HotEmbeddingBag, check_convertible
from .collection.joined_bags import joined_bags
from .features.configs import TableConfig
from .optim.on_host import on_host
from .optim.rules import OptimizerName, Rule
from .sharded.collection import ShardedEmbeddingBagCollection
from .store.cached import CachedStore
from .store.opening import Mode
from .store.options import DEFAULTS, Options

_KINDS = (nn.EmbeddingBag, nn.Embedding)


@on_host
def convert(model: nn.Module, inputs: Callable[..., dict[str, Any]] | None = None,
            sharded: bool = False, *, min_rows: int = 0,
            choose: Callable[[str, nn.Module], bool] | None = None, mode: Mode | None = None,
            optimizer: OptimizerName | Rule = "sgd", lr: float = 0.01,
            device: Device | str | None = None,
            options: Options = DEFAULTS, **fields: Any) -> HotEmbeddingBagCollection:
    """Replace every `nn.EmbeddingBag` and `nn.Embedding` of a model in place, and keep the weights.

    Make the model's optimizer after the conversion, so that it leaves the old bags' parameters
    out. `state_dict()` has the keys that it had before. A bag keeps its training state, the
    dtype of its results, and whether its weight is frozen; forward hooks move to its replacement.

    Parameters
    ----------
    model : nn.Module
    inputs : callable, optional
        From the arguments of the model to those of its converted bags: a dict by their names in the
        model, in the order of their calls, of a bag's input, a tuple of its arguments, or a list of
        these for several calls. Then a batch of all bags is planned, fetched and trained as one;
        otherwise every call of a bag is a batch of its own. Gradients of a row that several calls
        look up are summed in the order of the calls. A `TrainPipeline` takes such dicts, too, and
        reads them ahead.
    sharded : bool
        Share the rows out to the ranks of `torch.distributed`, with the weights of rank 0: see
        `ShardedEmbeddingBagCollection`. Every rank converts its copy of the model.
    min_rows : int
        Bags of fewer rows stay as they are.
    choose : callable, optional
        From a bag's name in the model and the bag to whether it is converted; the others stay.
    mode, optimizer, lr, device, options, **fields
        As in `HotEmbeddingBagCollection`.

    Returns
    -------
    HotEmbeddingBagCollection
        Holds all tables; step its `optimizer` with the model's own, and close it at the end.

    Raises
    ------
    Error
        The model has none that is chosen, or one with a property that its replacement has not: see
        `check_convertible`; or a weight is used by another module, too.
    """
    options = replace(options, **fields)
    _check_ranks(sharded)
    found = {name: module for name, module in model.named_modules(remove_duplicate=False)
             if isinstance(module, _KINDS)}
    converted = [name for name, module in model.named_modules()
                 if isinstance(module, HotEmbeddingBag)]
    if not found:
        _refuse_without_bags(model, converted)
    if "" in found:
        itself = "EmbeddingBag" if isinstance(model, nn.EmbeddingBag) else "Embedding"
        raise Error(f"this is an {itself} itself: make a Hot{itself} in its place")
    staying = {name for name, bag in found.items() if bag.num_embeddings < min_rows
               or (choose is not None and not choose(name, bag))}
    found = {name: bag for name, bag in found.items() if name not in staying}
    for name in staying:
        _check_alone(name, model.get_submodule(name), found)
    if not found:
        already = f"; converted already: {_listed(converted)}" if converted else ""
        raise Error(f"no bag of {type(model).__name__} was chosen: min_rows={min_rows} and "
                    f"choose leave out {_listed(sorted(staying))}{already}")
    tables: dict[nn.EmbeddingBag | nn.Embedding, TableConfig] = {}  # of each module, once
    for name, bag in found.items():
        check_convertible(name, bag)
        _check_untied(model, name, bag)
        tables.setdefault(bag, TableConfig(
            name.replace(".", "/"), bag.num_embeddings, bag.embedding_dim,
            bag.mode if isinstance(bag, nn.EmbeddingBag) else "sum", bag.weight.dtype))
    kind: type[HotEmbeddingBagCollection] = (
        ShardedEmbeddingBagCollection if sharded else HotEmbeddingBagCollection)
    collection = kind(tables.values(), device, mode, optimizer, lr,
                      replace(options, initialise=False))
    hot = {}
    for bag, config in tables.items():
        weights = bag.weight.detach()
        if isinstance(collection, ShardedEmbeddingBagCollection):
            weights = collection.ranks.gather(weights)[0]
        collection.contents.assign(config.name, weights)
        hot[bag] = _replacement(bag, collection, config.name)
        for hooks in FORWARD_HOOKS:  # the same dicts, so that handles remove from them
            hot[bag].__dict__[hooks] = getattr(bag, hooks)
    for bag, config in tables.items():  # for a reference elsewhere, as in a list
        bag.__dict__["forward"] = _refuse_call
        bag.weight.requires_grad_(True).register_hook(
            partial(_refuse_gradient, config.name.replace("/", ".")))
    for name, bag in found.items():
        parent, _, attribute = name.rpartition(".")
        setattr(model.get_submodule(parent), attribute, hot[bag])
    _expect_calls(model, collection, {name: hot[bag] for name, bag in found.items()}, inputs)
    return collection


def _check_ranks(sharded: bool) -> None:
    if not sharded:
        refuse_ranks("convert()", "convert(sharded=True)")


def _expect_calls(model: nn.Module, collection: HotEmbeddingBagCollection,
                  bags: Mapping[str, HotEmbeddingBag],
                  inputs: Callable[..., dict[str, Any]] | None) -> None:
    """Take any number of calls a step; with `inputs` those of one forward as one batch."""
    if isinstance(collection.store, CachedStore):
        collection.store.copies_excess = True
    if inputs is not None:
        model.register_forward_pre_hook(_Announcement(bags, inputs), with_kwargs=True)


def _replacement(bag: nn.EmbeddingBag | nn.Embedding, collection: HotEmbeddingBagCollection,
                 name: str) -> HotEmbeddingBag:
    """The HotEmbeddingBag or HotEmbedding of a table."""
    if isinstance(bag, nn.EmbeddingBag):
        hot = HotEmbeddingBag(bag.num_embeddings, bag.embedding_dim, bag.mode,
                              bag.include_last_offset, bag.padding_idx, collection=collection,
                              name=name)
    else:
        hot = HotEmbedding(bag.num_embeddings, bag.embedding_dim, bag.padding_idx,
                           collection=collection, name=name)
    hot.train(bag.training).requires_grad_(bag.weight.requires_grad)
    if hot.train_rows != bag.weight.requires_grad:
        collection.close()
        raise Error(f"{name}: a frozen bag whose rows several processes or a card have cannot be "
                    f"converted: leave it out with choose=")
    return hot


def _refuse_call(*_: object, **__: object) -> NoReturn:
    raise Error("this module was replaced by convert(), and its weights do not train: call the "
                "module that the model has in its place (a plain list of modules keeps old ones, "
                "an nn.ModuleList does not)")


def _refuse_gradient(name: str, _: torch.Tensor) -> NoReturn:
    raise Error(f"a gradient reached the weight of {name}, which convert() replaced, by a penalty "
                f"on a parameter that was listed before: take it from the list, and use "
                f"weight_decay of the collection's optimizer")


class _Announcement:
    """Announces, before a forward of a model, all calls of its bags to their collection."""

    def __init__(self, modules: Mapping[str, HotEmbeddingBag],
                 inputs: Callable[..., dict[str, Any]]):
        self._modules, self._inputs = modules, inputs

    def __call__(self, model: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        collection = next(iter(self._modules.values())).collection
        if torch.is_grad_enabled() and collection.store.coming() is None:  # else it was prefetched
            collection.calls.announce(joined_bags(self._modules, self._inputs(*arguments, **named)))


def _refuse_without_bags(model: nn.Module, converted: Sequence[str]) -> NoReturn:
    if converted:
        raise Error(f"{type(model).__name__} is converted already: the rows of "
                    f"{_listed(converted)} are in tables, which the collection trains that the "
                    f"first convert() returned. For another conversion make the model again")
    raise Error(f"{type(model).__name__} has no nn.EmbeddingBag or nn.Embedding to convert")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"module {name!r}" for name in names)


def _check_alone(name: str, bag: nn.Module, chosen: Mapping[str, nn.Module]) -> None:
    """Raise Error if a bag that stays is converted by another of its names."""
    for other, converted in chosen.items():
        if converted is bag:
            raise Error(f"{name} and {other} are one module, and choose takes one of them: let it "
                        f"take both or none")


def _check_untied(model: nn.Module, name: str, bag: nn.EmbeddingBag | nn.Embedding) -> None:
    """Raise Error if another module of the model uses the bag's weight."""
    users = [f"{other}.{key}" for other, module in model.named_modules()
             for key, parameter in module.named_parameters(recurse=False)
             if parameter is bag.weight and module is not bag]
    if users:
        raise Error(f"{name}.weight is {users[0]}, too: tied weights cannot be converted, give "
                    f"each module its own, or leave this one out with choose=")
