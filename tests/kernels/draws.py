"""Batches to be pooled, and tables to pool from."""

import torch

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def same_bits(found, expected):
    return found.shape == expected.shape and torch.equal(
        found.contiguous().view(torch.uint8), expected.contiguous().view(torch.uint8))


def draw_rows(generator, count, dim, dtype=torch.float32):
    """Rows of many magnitudes and signs, some zeros of either sign among them."""
    rows = torch.randn(count, dim, generator=generator) * 10 ** torch.randint(
        -3, 4, (count, dim), generator=generator)
    rows[torch.rand(count, dim, generator=generator) < 0.05] = -0.0
    return rows.to(dtype)


def draw_bags(generator, features, samples, slots, integers=torch.int64):
    """(slots [n], lengths [features * samples]): empty bags, long bags, many duplicates."""
    lengths = torch.randint(0, 6, (features * samples,), generator=generator)
    lengths[torch.rand(len(lengths), generator=generator) < 0.3] = 0
    skewed = torch.rand(int(lengths.sum()), generator=generator) ** 3
    return (skewed * slots).to(integers), lengths.to(integers)
