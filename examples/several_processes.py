"""One model in several processes: each owns a part of every table's rows and trains its samples.

    torchrun --standalone --nproc-per-node=2 examples/several_processes.py
"""

import os
import sys

import torch
import torch.distributed as dist
from hotrow.torch import (
    Options,
    ShardedEmbeddingBagCollection,
    TableConfig,
    TrainPipeline,
    average_gradients,
)
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

TABLES = [TableConfig("user", 5000, 16), TableConfig("item", 20_000, 16)]


def main():
    dist.init_process_group("gloo")  # on GPUs "cpu:gloo,cuda:nccl": rows come from host memory
    torch.manual_seed(0)  # the dense part and the data are the same everywhere
    embeddings = ShardedEmbeddingBagCollection(TABLES, mode="scratchpipe",
                                               optimizer="rowwise_adagrad", lr=0.1,
                                               options=Options(seed=0))
    model = nn.Sequential(embeddings, nn.Linear(32, 1))
    dense = torch.optim.SGD(model.parameters(), 0.1)

    ids = (torch.rand(2048, 2) ** 4 * torch.tensor([5000, 20_000])).long()
    active, liked = torch.randn(5000), torch.randn(20_000)  # what the model is to learn
    data = TensorDataset(ids, (active[ids[:, 0]] + liked[ids[:, 1]] > 0).float())
    sampler = DistributedSampler(data)
    loader = DataLoader(data, 64, sampler=sampler)

    with embeddings, TrainPipeline(loader, model, inputs=lambda batch: batch[0]) as pipeline:
        for epoch in range(4):
            sampler.set_epoch(epoch)
            losses = []
            for ids, label in pipeline:
                loss = (model(ids).squeeze(1) - label).square().mean()
                for optimizer in (dense, embeddings.optimizer):
                    optimizer.zero_grad()
                loss.backward()
                losses.append(float(loss.detach()))
                average_gradients(model.parameters())
                for optimizer in (dense, embeddings.optimizer):
                    optimizer.step()
            print(f"epoch {epoch}, rank {dist.get_rank()}: loss {sum(losses) / len(losses):.4f}, "
                  f"{pipeline.figures['hit_rate']:.0%} of lookups here hit")
        state = model.state_dict(), embeddings.optimizer.state_dict()  # gathered from all ranks
        if dist.get_rank() == 0:
            print(f"{sum(each.numel() for each in state[0].values()):,} numbers to save")
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" not in os.environ:
        sys.exit("This example trains in several processes, which torchrun starts and numbers:\n"
                 f"    torchrun --standalone --nproc-per-node=2 {sys.argv[0]}")
    main()
