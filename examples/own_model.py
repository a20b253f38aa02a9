"""A model of plain PyTorch whose `nn.EmbeddingBag`s hotrow replaces; nothing else changes.

    python examples/own_model.py
"""

import hotrow.torch
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

ROWS = 20_000


class Model(nn.Module):
    """Two embedding bags and a small network."""

    def __init__(self):
        super().__init__()
        self.items = nn.EmbeddingBag(ROWS, 16, mode="mean")
        self.users = nn.EmbeddingBag(ROWS // 4, 16, mode="sum")
        self.top = nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, items, users):
        return self.top(torch.cat((self.items(items), self.users(users)), dim=1)).squeeze(1)


def main():
    torch.manual_seed(0)
    model = Model()
    tables = hotrow.torch.convert(model, mode="scratchpipe", optimizer="rowwise_adagrad", lr=0.5,
                                  options=hotrow.torch.Options(preset="alveo-u55c"))
    dense = torch.optim.SGD(model.parameters(), 0.5)

    items = (ROWS * torch.rand(4096, 5) ** 12).long()  # five items per order, skewed
    users = (ROWS // 4 * torch.rand(4096, 1) ** 12).long()
    liked, active = torch.randn(ROWS), torch.randn(ROWS // 4)  # what the model is to learn
    label = (liked[items].mean(1) + active[users.squeeze(1)] > 0).float()
    loader = DataLoader(TensorDataset(items, users, label), 128, shuffle=True)

    with tables:
        for epoch in range(4):
            losses = []
            for items, users, label in loader:
                loss = nn.functional.binary_cross_entropy_with_logits(model(items, users), label)
                for optimizer in (dense, tables.optimizer):
                    optimizer.zero_grad()
                loss.backward()
                losses.append(float(loss.detach()))
                for optimizer in (dense, tables.optimizer):
                    optimizer.step()
            print(f"epoch {epoch}: loss {sum(losses) / len(losses):.4f}")
        print(f"{tables.statistics['hits'] / tables.statistics['lookups']:.1%} of lookups hit")
        torch.save(model.state_dict(), "/dev/null")  # with the keys of the plain model


if __name__ == "__main__":
    main()
