"""A bag of PyTorch, and ids that it looks up."""

import torch
from torch import nn

IDS = torch.randint(0, 50, (16, 3), generator=torch.Generator().manual_seed(0))


def bag_of(dtype=torch.float32, **options):
    return nn.EmbeddingBag(50, 8, mode="sum", dtype=dtype, **options)
