"""Training with PyTorch: embedding tables of any size, and a DLRM checked against plain PyTorch."""

from importlib import import_module
from typing import TYPE_CHECKING

_HOMES = {
    "HotEmbeddingBagCollection": "collection.collection",
    "HotEmbeddingBag": "collection.embedding_bag",
    "HotEmbedding": "collection.embedding",
    "Options": "store.options",
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

if TYPE_CHECKING:  # for editors and type checkers
    from .collection.collection import HotEmbeddingBagCollection as HotEmbeddingBagCollection
    from .collection.embedding import HotEmbedding as HotEmbedding
    from .collection.embedding_bag import HotEmbeddingBag as HotEmbeddingBag
    from .conversion import convert as convert
    from .features.configs import TableConfig as TableConfig
    from .features.ids import NgramIds as NgramIds
    from .features.ids import ids_of as ids_of
    from .optim.rules import SGD as SGD
    from .optim.rules import Adagrad as Adagrad
    from .optim.rules import Adam as Adam
    from .optim.rules import PartialRowwiseAdam as PartialRowwiseAdam
    from .optim.rules import RowwiseAdagrad as RowwiseAdagrad
    from .pipeline.checkpoint import Checkpoint as Checkpoint
    from .pipeline.train_pipeline import TrainPipeline as TrainPipeline
    from .sharded.collection import ShardedEmbeddingBagCollection as ShardedEmbeddingBagCollection
    from .sharded.ranks import average_gradients as average_gradients
    from .store.options import Options as Options
else:
    def __getattr__(name: str) -> object:
        """Load a public name on first use: the command line reads its options without PyTorch."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
