"""What a collection returns, in the form of what it was called with."""

from contextlib import suppress

import torch


def joined(configs, features, bags, found, inputs):
    """Embeddings of all features as one.

    Parameters
    ----------
    configs : sequence of TableConfig
    features : sequence of (int, str)
        Number of the table and name of each feature.
    bags : Bags
        That were looked up.
    found : list of Tensor
        Of each feature: float32[samples, dim], float32[lookups, dim] without pooling.
    inputs
        What the collection was called with.

    Returns
    -------
    float32[samples, sum of the dims], without pooling float32[lookups, dim]; for a
    KeyedJaggedTensor, where TorchRec is installed, what its collections give: a KeyedTensor,
    without pooling a dict of JaggedTensors.
    """
    pooled = configs[0].pooling != "none"
    if hasattr(inputs, "keys") and hasattr(inputs, "lengths"):
        with suppress(ImportError):
            return (_keyed if pooled else _jagged)(configs, features, bags, found)
    return torch.cat(found, dim=1 if pooled else 0)


def _keyed(configs, features, _bags, found):
    from torchrec import KeyedTensor

    return KeyedTensor(_keys(configs, features),
                       [configs[table].embedding_dim for table, _ in features],
                       torch.cat(found, dim=1))


def _jagged(configs, features, bags, found):
    from torchrec import JaggedTensor

    lengths = bags.lengths.split(bags.samples)
    return {key: JaggedTensor(values, lengths=each) for key, values, each in zip(
        _keys(configs, features), found, lengths, strict=True)}


def _keys(configs, features):
    """The features' names; of one that looks up in several tables, with the table's."""
    names = [name for _, name in features]
    return [name if names.count(name) == 1 else f"{name}@{configs[table].name}"
            for table, name in features]
