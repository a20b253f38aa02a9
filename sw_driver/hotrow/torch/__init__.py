"""Training with PyTorch: embedding tables of any size, and a DLRM checked against plain PyTorch."""

from importlib import import_module

_HOMES = {
    "HotEmbeddingBagCollection": "collection.collection",
    "HotEmbeddingBag": "collection.embedding_bag",
    "HotEmbedding": "collection.embedding",
    "convert": "conversion",
    "TableConfig": "features.configs",
    "NgramIds": "features.ids",
    "ids_of": "features.ids",
    "SGD": "optim.rules",
    "RowwiseAdagrad": "optim.rules",
    "Adagrad": "optim.rules",
    "Adam": "optim.rules",
    "PartialRowwiseAdam": "optim.rules",
    "TrainPipeline": "pipeline.train_pipeline",
    "Checkpoint": "pipeline.checkpoint",
    "ShardedEmbeddingBagCollection": "sharded.collection",
    "average_gradients": "sharded.ranks",
}
__all__ = list(_HOMES)


def __getattr__(name):
    """Load a public name on first use: the command line reads its options without PyTorch."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
