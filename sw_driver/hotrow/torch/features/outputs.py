"""The result of a collection, in the form that belongs to the form of its inputs."""

from collections import Counter
from collections.abc import Sequence
from functools import cache
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
    if is_keyed(inputs) and (torchrec := _torchrec()) is not None:
        keys = _keys(configs, features)
        if pooled:
            return torchrec.KeyedTensor(
                keys, [configs[table].embedding_dim for table, _ in features], found[0])
        lengths = bags.lengths.to(inputs.lengths().dtype).split(bags.samples)
        return {key: torchrec.JaggedTensor(values, lengths=each) for key, values, each in zip(
            keys, found, lengths, strict=True)}
    return found[0] if pooled else torch.cat(found)


@cache
def _torchrec() -> Any:
    """TorchRec, or None without it, for which no batch searches again."""
    try:
        import torchrec
    except ImportError:
        return None
    return torchrec


def _keys(configs: Sequence[TableConfig], features: Sequence[tuple[int, str]]) -> list[str]:
    """The features' names; with the table's name for a feature that looks up in several tables."""
    names = Counter(name for _, name in features)
    return [name if names[name] == 1 else f"{name}@{configs[table].name}"
            for table, name in features]
