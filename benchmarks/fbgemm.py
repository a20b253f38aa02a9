"""FBGEMM's table-batched embeddings on the CPU."""


class Absent(Exception):
    """A peer that cannot run here, with the reason."""


def table_batched(cardinalities, dim, rule):
    """Tables that backward trains.

    Parameters
    ----------
    cardinalities : sequence of int
        Rows of each table.
    dim : int
    rule : Rule

    Returns
    -------
    SplitTableBatchedEmbeddingBagsCodegen

    Raises
    ------
    Absent
        The package fbgemm-gpu-cpu is not installed, or its CPU kernels lack the rule.
    """
    try:
        from fbgemm_gpu.split_embedding_configs import EmbOptimType
        from fbgemm_gpu.split_table_batched_embeddings_ops_common import (
            EmbeddingLocation,
            PoolingMode,
        )
        from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
            ComputeDevice,
            SplitTableBatchedEmbeddingBagsCodegen,
        )
    except (ImportError, OSError) as error:
        raise Absent(f"needs the package fbgemm-gpu-cpu: {error}") from None
    kinds = {
        "sgd": (EmbOptimType.EXACT_SGD, {}),
        "rowwise_adagrad": (EmbOptimType.EXACT_ROWWISE_ADAGRAD,
                            {"eps": getattr(rule, "eps", 0.0)}),
    }
    if rule.name not in kinds:
        raise Absent(f"has no {rule.name} here")
    kind, more = kinds[rule.name]
    return SplitTableBatchedEmbeddingBagsCodegen(
        [(rows, dim, EmbeddingLocation.HOST, ComputeDevice.CPU) for rows in cardinalities],
        optimizer=kind, learning_rate=rule.lr, pooling_mode=PoolingMode.SUM, **more)
