"""The tables of a collection as TorchRec's configs, and initial rows as these draw them."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from ...contract.errors import Error
from ..features.configs import TableConfig


class TorchRecTables:
    """TorchRec's view of the tables of a collection.

    Parameters
    ----------
    tables : sequence of TableConfig
    given : sequence of TableConfig, EmbeddingBagConfig or EmbeddingConfig
        The tables as the caller gave them.
    """

    def __init__(self, tables: Sequence[TableConfig], given: Sequence[Any]) -> None:
        self._tables = tables
        self._configs: list[Any] | None = None if [*given] == [*tables] else list(given)

    @property
    def draw(self) -> bool:
        """Whether the caller gave configs, whose `init_fn` may draw rows."""
        return self._configs is not None

    def configs(self, pooled: bool) -> list[Any]:
        """EmbeddingBagConfigs, or EmbeddingConfigs of tables that are not pooled.

        Raises
        ------
        Error
            The tables are of the other kind.
        """
        if pooled and self._tables[0].pooling == "none":
            raise Error("tables with pooling 'none' are TorchRec's EmbeddingConfigs: call "
                        "embedding_configs()")
        if not pooled and self._tables[0].pooling != "none":
            raise Error("pooled tables are TorchRec's EmbeddingBagConfigs: call "
                        "embedding_bag_configs()")
        if self._configs is None:
            return [torchrec_config(config) for config in self._tables]
        return self._configs

    def drawn(self, tables: Iterable[TableConfig] | None = None,
              ) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the names of some tables, by default of all, and their initial rows, of a config's
        `init_fn` or uniform in +-1/sqrt(rows), by PyTorch's generator."""
        for config in self._tables if tables is None else tables:
            draw = self._configs and getattr(
                self._configs[self._tables.index(config)], "init_fn", None)
            weights = torch.empty(config.num_embeddings, config.embedding_dim,
                                  dtype=torch.float32)
            bound = config.num_embeddings**-0.5
            (draw or (lambda each, bound=bound: each.uniform_(-bound, bound)))(weights)
            yield config.name, weights


def torchrec_config(config: TableConfig) -> Any:
    """TorchRec's config of a TableConfig."""
    from torchrec import DataType, EmbeddingBagConfig, EmbeddingConfig, PoolingType

    kinds = {torch.float32: DataType.FP32, torch.float16: DataType.FP16,
             torch.bfloat16: DataType.BF16}
    common = {"name": config.name, "num_embeddings": config.num_embeddings,
              "embedding_dim": config.embedding_dim, "data_type": kinds[config.dtype],
              "feature_names": list(config.feature_names)}
    if config.pooling == "none":
        return EmbeddingConfig(**common)
    return EmbeddingBagConfig(**common, pooling=PoolingType[config.pooling.upper()])
