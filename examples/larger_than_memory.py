"""Train a table on disk that is larger than the memory given to it, stop, and go on.

    python examples/larger_than_memory.py --folder tables
    python examples/larger_than_memory.py --folder tables    # goes on at the last commit

The table of 2^25 rows of 16 numbers has 2.1 GB and gets 500 MB of memory; the process takes about
300 MB beside it. Rows that were never looked up take no disk.
"""

import argparse
import time

import torch
from hotrow.torch import HotEmbeddingBagCollection, Options, TableConfig, TrainPipeline


def batches(rows, samples, count, first):
    """Ids of 26 features by Zipf's law, the popular ones all over the table, and labels."""
    for number in range(first, first + count):
        draw = torch.Generator().manual_seed(number)
        rank = (rows ** torch.rand(samples, 26, generator=draw, dtype=torch.float64)).long() - 1
        yield rank * 0x9E3779B1 % rows, (rank[:, 0] % 2).float()


def main():
    """Train, commit every 50 steps, and print what the disk did."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", required=True, help="of the table, which stays there")
    parser.add_argument("--rows", type=int, default=1 << 25)
    parser.add_argument("--memory", default="500MB")
    parser.add_argument("--samples", type=int, default=512)
    parser.add_argument("--steps", type=int, default=500)
    options = parser.parse_args()
    table = TableConfig("items", options.rows, 16, path=options.folder, memory=options.memory,
                        feature_names=tuple(f"item {number}" for number in range(26)))
    with HotEmbeddingBagCollection([table], optimizer="rowwise_adagrad", lr=0.05,
                                   options=Options(seed=0)) as embeddings:
        print(embeddings.disk.disk.plan)
        top = torch.nn.Linear(26 * 16, 1)
        dense, first = torch.optim.SGD(top.parameters(), 0.05), 0
        saved = embeddings.open_commit()
        if saved is not None:
            top.load_state_dict(saved["top"])
            first = saved["step"]
        print(f"goes on after step {first}" if first else "begins")
        loader, begin = batches(options.rows, options.samples, options.steps, first), time.time()
        with TrainPipeline(loader, embeddings, lambda batch: batch[0]) as pipeline:
            for step, (ids, label) in enumerate(pipeline, first + 1):
                loss = torch.nn.functional.binary_cross_entropy_with_logits(
                    top(embeddings(ids)).squeeze(1), label)
                loss.backward()
                for optimizer in (dense, embeddings.optimizer):
                    optimizer.step()
                    optimizer.zero_grad()
                if step % 50 == 0:
                    embeddings.commit({"top": top.state_dict(), "step": step})
                    print(f"step {step}: loss {loss.item():.3f}, "
                          f"{(step - first) / (time.time() - begin):.1f} steps a second")
            embeddings.commit({"top": top.state_dict(), "step": step})
            figures = pipeline.figures["disk"][0]
        print(f"{figures['requests']:,} reads for {figures['rows_fetched']:,} rows, "
              f"{figures['bytes_written'] / 1e6:,.0f} MB written for "
              f"{figures['bytes_trained'] / 1e6:,.0f} MB of trained rows")


if __name__ == "__main__":
    main()
