"""A DLRM on clicks in Criteo's format, with embedding tables larger than the trainer's memory.

    python examples/dlrm_criteo.py day_0.gz --mode scratchpipe --checkpoint run.pt
    python examples/dlrm_criteo.py day_0.gz --mode scratchpipe --checkpoint run.pt --resume

The rows of coming batches get slots of the trainer's memory while earlier batches train; tables,
state and losses have the same bits in every mode but hotline. `--transport sim` simulates a card.
"""

import argparse
import sys

import hotrow
import torch
from hotrow.torch import Checkpoint, HotEmbeddingBagCollection, Options, TableConfig, TrainPipeline
from hotrow.torch.training.dlrm import DLRM
from hotrow.traces import open_trace
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Clicks(nn.Module):
    """Click probability, as a logit, from 13 numbers and 26 categories."""

    def __init__(self, embeddings, dim):
        super().__init__()
        self.embeddings, self.dim = embeddings, dim
        self.rest = DLRM(13, len(embeddings.tables), dim, scale=0.25)

    def forward(self, ids, dense):
        pooled = self.embeddings(ids)
        return self.rest(dense, pooled.view(len(ids), -1, self.dim))


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", help="label, 13 integers, 26 hex values; tsv, gzip or not")
    parser.add_argument("--mode", default="scratchpipe",
                        choices=("resident", "hotline", "scratchpipe", "freqcache"))
    parser.add_argument("--transport", default="cpu")
    parser.add_argument("--preset", default="alveo-u55c")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--checkpoint")
    parser.add_argument("--resume", action="store_true")
    return parser.parse_args()


def main():
    options = parse()
    trace = open_trace(f"criteo:{options.file}")
    samples = trace.batch(0, trace.samples)
    data = TensorDataset(torch.from_numpy(samples.ids.astype("int64")),
                         torch.from_numpy(samples.dense), torch.from_numpy(samples.label))
    loader = DataLoader(data, options.batch_size, shuffle=True)

    torch.manual_seed(0)
    tables = [TableConfig(f"category_{number}", rows, options.dim)
              for number, rows in enumerate(trace.cardinalities)]
    embeddings = HotEmbeddingBagCollection(
        tables, None if options.mode == "resident" else options.transport, options.mode,
        optimizer="rowwise_adagrad", lr=options.lr,
        options=Options(preset=options.preset, workers=2, seed=0))
    model = Clicks(embeddings, options.dim)
    dense = torch.optim.SGD([*model.rest.parameters()], options.lr)
    entropy = nn.BCEWithLogitsLoss()

    def loss(batch):
        ids, numbers, label = batch
        value = entropy(model(ids, numbers), label)
        losses.append(float(value.detach()))
        return value

    with embeddings, TrainPipeline(loader, model, lambda batch: batch[0]) as pipeline:
        checkpoint = Checkpoint(options.checkpoint) if options.checkpoint else None
        if options.resume:
            kept = checkpoint.load()
            model.load_state_dict(kept["model"])
            dense.load_state_dict(kept["dense"])
            embeddings.optimizer.load_state_dict(kept["rows"])
            pipeline.load_state_dict(kept["pipeline"])
        if options.mode == "hotline":
            for ids, *_ in loader:
                embeddings.observe(ids)
            embeddings.learn()
        while pipeline.epoch < options.epochs:
            losses = []
            pipeline.train(loss, dense)
            print(f"epoch {pipeline.epoch}: loss {sum(losses) / len(losses):.4f}")
            if checkpoint:
                checkpoint.save(model=model.state_dict(), dense=dense.state_dict(),
                                rows=embeddings.optimizer.state_dict(),
                                pipeline=pipeline.state_dict())
        figures = pipeline.figures
        if figures["hit_rate"] is not None:
            print(f"{figures['hit_rate']:.1%} of lookups found their row in a slot")
        embeddings.flush()
        print("tables", embeddings.sha256())


if __name__ == "__main__":
    try:
        main()
    except hotrow.Error as error:
        sys.exit(f"error: {error}")
