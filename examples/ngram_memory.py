"""A character model with and without tables of hashed n-grams beside it.

    python examples/ngram_memory.py

The text is the source of Python's standard library. The ids of the n-grams follow from the
characters, so that the rows of coming batches get slots while earlier batches train.
"""

import argparse
import sysconfig
from pathlib import Path

import torch
from hotrow.torch import HotEmbeddingBagCollection, NgramIds, Options, TableConfig, TrainPipeline
from torch import nn
from torch.utils.data import DataLoader

WIDTH, LENGTH = 128, 64  # of the network, and characters of a sample


class Characters(nn.Module):
    """Logits of the next character, from a GRU and the rows of the n-grams that end here."""

    def __init__(self, memory=None, grams=None):
        super().__init__()
        self.memory, self.grams = memory, grams
        self.embedding = nn.Embedding(128, 64)
        self.network = nn.GRU(64, WIDTH, batch_first=True)
        if memory is not None:
            self.read = nn.Linear(sum(each.embedding_dim for each in memory.tables), WIDTH)
        self.head = nn.Linear(WIDTH, 128)

    def ids(self, characters):
        """Rows of the n-grams that end at each character: int64[characters, tables]."""
        return self.grams(characters).flatten(0, 1)

    def forward(self, characters):
        hidden = self.network(self.embedding(characters))[0]
        if self.memory is not None:
            rows = self.memory(self.ids(characters))
            hidden = hidden + self.read(rows).view_as(hidden)
        return self.head(hidden)


def text(characters):
    """Samples of the text for training, and others: uint8[any, LENGTH + 1] each."""
    folder = Path(sysconfig.get_path("stdlib"))
    source = b"".join(path.read_bytes() for path in sorted(folder.glob("*.py")))
    found = torch.frombuffer(bytearray(source[:characters]), dtype=torch.uint8).clamp(max=127)
    samples = found[:len(found) // (LENGTH + 1) * (LENGTH + 1)].view(-1, LENGTH + 1)
    order = torch.randperm(len(samples), generator=torch.Generator().manual_seed(0))
    held = len(samples) // 20
    return samples[order[held:]], samples[order[:held]]


def loss_of(model, samples):
    """Bits of a character."""
    logits = model(samples[:, :-1].long())
    return nn.functional.cross_entropy(
        logits.flatten(0, 1), samples[:, 1:].long().flatten()) / torch.log(torch.tensor(2.0))


def train(model, samples, held, epochs):
    """Train, and print the loss of held-out samples after each epoch."""
    memory = model.memory
    loader = DataLoader(samples, 32, shuffle=True, generator=torch.Generator().manual_seed(1))
    dense = torch.optim.Adam(model.parameters(), 2e-3)
    batches = loader if memory is None else TrainPipeline(
        loader, model, lambda batch: model.ids(batch[:, :-1].long()))
    for epoch in range(epochs):
        for batch in batches:
            dense.zero_grad()
            loss_of(model, batch).backward()
            dense.step()
            if memory is not None:
                memory.optimizer.step()
        with torch.no_grad():
            model.eval()
            bits = torch.stack([loss_of(model, part) for part in held.split(64)]).mean()
            model.train()
        print(f"epoch {epoch}: {bits:.3f} bits a character")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--characters", type=int, default=500_000)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--rows", type=int, default=100_000, help="of each table, at least")
    options = parser.parse_args()
    samples, held = text(options.characters)

    print("without tables")
    torch.manual_seed(0)
    train(Characters(), samples, held, options.epochs)

    grams = NgramIds((2, 3, 4, 5), heads=2, rows=options.rows, seed=0, vocabulary=128)
    tables = [TableConfig(f"table {number}", rows, 16) for number, rows in enumerate(grams.tables)]
    print(f"with {len(tables)} tables of {sum(grams.tables):,} rows of 16")
    torch.manual_seed(0)
    with HotEmbeddingBagCollection(tables, mode="scratchpipe", optimizer="adam", lr=2e-3,
                                   options=Options(seed=0)) as memory:
        model = Characters(memory, grams)
        train(model, samples, held, options.epochs)
        served = memory.statistics
        print(f"{served['hits'] / served['lookups']:.1%} of lookups hit")


if __name__ == "__main__":
    main()
