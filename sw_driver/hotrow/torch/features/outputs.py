"""The result of a collection, in the form that belongs to the form of its inputs."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch

from .bags import Bags
from .configs import TableConfig
from .inputs import is_keyed


def joined(configs: Sequence[TableConfig], features: Sequence[tuple[int, str]], bags: Bags,
           found: list[torch.Tensor], inputs: object) -> Any:
    """Join the embeddings of all features.

    Parameters
    ----------
    configs : sequence of TableConfig
    features : sequence of (int, str)
        Table and name of each feature.
    bags : Bags
        The lookups.
    found : list of Tensor
        Embeddings of all features: one float32[samples, sum of the dims]; without pooling
        float32[lookups, dim] of each feature.
    inputs
        First argument of the call of the collection.

    Returns
    -------
    float32[samples, sum of the dims], without pooling float32[lookups, dim]; for a
    KeyedJaggedTensor, if TorchRec is installed, a KeyedTensor, without pooling a dict of
    JaggedTensors.
    """
    pooled = configs[0].pooling != "none"
    if is_keyed(inputs):
        with suppress(ImportError):
            if pooled:
                return _keyed(configs, features, found)
            return _jagged(configs, features, bags.lengths.to(inputs.lengths().dtype).split(
                bags.samples), found)
    return found[0] if pooled else torch.cat(found)


def _keyed(configs: Sequence[TableConfig], features: Sequence[tuple[int, str]],
           found: Sequence[torch.Tensor]) -> Any:
    from torchrec import KeyedTensor

    return KeyedTensor(_keys(configs, features),
                       [configs[table].embedding_dim for table, _ in features],
                       found[0])


def _jagged(configs: Sequence[TableConfig], features: Sequence[tuple[int, str]],
            lengths: Sequence[torch.Tensor], found: Sequence[torch.Tensor]) -> Any:
    from torchrec import JaggedTensor

    return {key: JaggedTensor(values, lengths=each) for key, values, each in zip(
        _keys(configs, features), found, lengths, strict=True)}


def _keys(configs: Sequence[TableConfig], features: Sequence[tuple[int, str]]) -> list[str]:
    """The features' names; with the table's name for a feature that looks up in several tables."""
    names = [name for _, name in features]
    return [name if names.count(name) == 1 else f"{name}@{configs[table].name}"
            for table, name in features]
