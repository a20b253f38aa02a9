"""Training with PyTorch: embedding tables of any size, and a DLRM checked against plain PyTorch."""

_HOMES = {
    "HotEmbeddingBagCollection": "collection", "HotEmbeddingBag": "embedding_bag",
    "convert": "conversion", "Checkpoint": "checkpoint", "TrainPipeline": "pipeline",
    "ShardedEmbeddingBagCollection": "sharded", "average_gradients": "ranks",
    "TableConfig": "configs", "SGD": "arithmetic", "RowwiseAdagrad": "arithmetic",
    "Adagrad": "arithmetic",
}
__all__ = list(_HOMES)


def __getattr__(name):
    """Loaded when it is asked for: the command line reads its options without PyTorch."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
