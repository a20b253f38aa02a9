"""The trainer's arithmetic against FBGEMM's table-batched embeddings on the CPU."""

import pytest
import torch
from hotrow.torch.optim.arithmetic import pool, sum_duplicates
from hotrow.torch.optim.rules import SGD, RowwiseAdagrad

pytest.importorskip("fbgemm_gpu", reason="needs the package fbgemm-gpu-cpu", exc_type=ImportError)
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import (
    EmbeddingLocation,
    PoolingMode,
)
from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
    ComputeDevice,
    SplitTableBatchedEmbeddingBagsCodegen,
)

TABLES, ROWS, BAGS, STEPS, LR, EPS = 3, 500, 64, 50, 0.1, 1e-8


def peer(kind, weights):
    dim = weights[0].shape[1]
    tables = [(ROWS, dim, EmbeddingLocation.HOST, ComputeDevice.CPU)] * TABLES
    embeddings = SplitTableBatchedEmbeddingBagsCodegen(
        tables, optimizer=kind, learning_rate=LR, eps=EPS, pooling_mode=PoolingMode.SUM)
    for theirs, ours in zip(embeddings.split_embedding_weights(), weights, strict=True):
        theirs.data.copy_(ours)
    return embeddings


def batch(generator):
    """Skewed ids in bags of 0 to 4, feature-major: (indices, offsets)."""
    lengths = torch.randint(0, 5, (TABLES * BAGS,), generator=generator)
    offsets = torch.cat((torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)))
    uniform = torch.rand(int(offsets[-1]), generator=generator)
    return (uniform**3 * ROWS).long(), offsets


def train(kind, optimizer, dim, seed):
    """Both on the same gradients; bags, and gradients of a row, are summed in other orders."""
    generator = torch.Generator().manual_seed(seed)
    weights = [torch.randn(ROWS, dim, generator=generator) for _ in range(TABLES)]
    state = [torch.zeros(ROWS) for _ in range(TABLES)]
    embeddings = peer(kind, weights)
    for _ in range(STEPS):
        indices, offsets = batch(generator)
        pooled = embeddings(indices, offsets)
        gradient = torch.randn(pooled.shape, generator=generator)
        pooled.backward(gradient)
        for table in range(TABLES):
            ends = offsets[table * BAGS:(table + 1) * BAGS + 1]
            rows, lengths = indices[ends[0]:ends[-1]], ends.diff()
            columns = slice(table * dim, (table + 1) * dim)
            torch.testing.assert_close(
                pool(weights[table], rows, lengths), pooled[:, columns], rtol=1e-5, atol=1e-5)
            touched, sums = sum_duplicates(
                rows, torch.repeat_interleave(torch.arange(BAGS), lengths),
                gradient[:, columns].contiguous())
            weights[table][touched], updated = optimizer.update(
                weights[table][touched], sums, state[table][touched])
            if updated is not None:
                state[table][touched] = updated
    return weights, embeddings


@pytest.mark.parametrize("dim", [4, 16, 64])
def test_sgd_agrees_within_roundings(dim):
    weights, embeddings = train(EmbOptimType.EXACT_SGD, SGD(LR), dim, seed=dim)
    for ours, theirs in zip(weights, embeddings.split_embedding_weights(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dim", [4, 16, 64])
def test_rowwise_adagrad_agrees_within_a_millionth(dim):
    weights, embeddings = train(
        EmbOptimType.EXACT_ROWWISE_ADAGRAD, RowwiseAdagrad(LR, EPS, 0.0), dim, seed=dim)
    for ours, theirs in zip(weights, embeddings.split_embedding_weights(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)
