"""Tables of any id, and of n-grams, trained by one process or by several: for test_rank_ids.py.

Gradients are multiples of 1/32 whose sums are exact, so that no order of addition shows: every
number of ranks, and one process that takes their samples as one batch, must have the same bits.
"""

from hashlib import sha256

import numpy as np
import torch
import torch.distributed as dist
from hotrow.ids import Expiry, LeastCount, Probability
from hotrow.torch import (
    SGD,
    HotEmbeddingBagCollection,
    NgramIds,
    ShardedEmbeddingBagCollection,
    TableConfig,
)

SAMPLES, BATCHES, ROWS, SEED = 8, 32, 24, 12

GRAMS = NgramIds((2, 3), heads=2, rows=50, seed=1, vocabulary=30)
TABLES = {
    "any": (TableConfig("user", ROWS, 4, ids="any", expiry=Expiry()),
            TableConfig("item", ROWS + 1, 4, ids="any", admission=LeastCount(2, 1 << 10),
                        expiry=Expiry(below=2, every=7), feature_names=("bought", "seen")),
            TableConfig("plain", 9, 4, "mean"),
            TableConfig("place", 31, 6, ids="any", admission=Probability(0.5),
                        expiry=Expiry(age=20, cap=25))),
    "n-grams": tuple(TableConfig(f"{rows}", rows, 8, "none", torch.bfloat16)
                     for rows in GRAMS.tables),
}
CASES = {
    "resident": {"mode": "resident"},
    "scratchpipe": {"mode": "scratchpipe", "ahead": 3, "workers": 1, "optimizer": "adagrad"},
    "freqcache": {"mode": "freqcache", "ahead": 2,
                  "optimizer": "rowwise_adagrad"},
    "hotline": {"mode": "hotline", "ahead": 1, "optimizer": "adam"},
    "n-grams resident": {"mode": "resident", "tables": "n-grams",
                         "optimizer": SGD(0.1, rounding_seed=3)},
    "n-grams scratchpipe": {"mode": "scratchpipe", "ahead": 3, "tables": "n-grams",
                            "optimizer": SGD(0.1, rounding_seed=3)},
    "n-grams freqcache": {"mode": "freqcache", "ahead": 2, "workers": 1, "tables": "n-grams",
                          "optimizer": SGD(0.1, rounding_seed=3)},
}


def drawn(tables="any", seed=SEED):
    """Batches of all ranks: per feature ids, and their lengths int64[samples]."""
    rng, made = np.random.default_rng(seed), []
    for number in range(BATCHES):
        if tables == "n-grams":
            tokens = torch.from_numpy(rng.integers(0, 30, (SAMPLES, 5)))
            made.append([(ids, torch.full((SAMPLES,), 5)) for ids in GRAMS(tokens).reshape(
                -1, len(GRAMS.tables)).T])
            continue
        batch = []
        for config in TABLES[tables]:
            for _ in config.feature_names:
                lengths = rng.integers(0, 3, SAMPLES)
                if number == 5:
                    lengths[:] = 0
                if number == 9:
                    lengths[SAMPLES // 2:] = 0  # of some ranks
                ids = rng.integers(number, number + 9, lengths.sum(), np.uint64)
                ids = (ids * np.uint64(0x9E3779B97F4A7C15)).view(np.int64)
                if config.ids != "any":
                    ids = rng.integers(0, config.num_embeddings, lengths.sum())
                batch.append((torch.from_numpy(ids), torch.from_numpy(lengths)))
        made.append(batch)
    return made


def part(batch, rank=0, world=1):
    """The samples of a rank, as a collection takes them: (indices, offsets) of each feature."""
    own = slice(rank * SAMPLES // world, (rank + 1) * SAMPLES // world)
    return [(torch.cat([ids[:0], *ids.split(lengths.tolist())[own]]),
             lengths[own].cumsum(0) - lengths[own]) for ids, lengths in batch]


def opened(tables="any", mode="resident", optimizer="sgd", group=None, seed=3, **options):
    """A collection of the ranks of a group, or of this process alone."""
    card = {} if mode == "resident" else {"device": "cpu", "preset": "tiny"}
    kind = HotEmbeddingBagCollection if group is None else ShardedEmbeddingBagCollection
    if group is not None:
        options["ranks"] = group
        seed += dist.get_rank(group)  # rank 0's counts
    return kind(TABLES[tables], mode=mode, optimizer=optimizer, lr=0.125,
                seed=seed, **card, **options)


def step(embeddings, bags, world=1, applies=True):
    found = embeddings(bags)
    gradient = (found.detach() * 16).round() / 16 + 0.25
    (found * gradient).sum().mul(world).backward()
    if applies:
        embeddings.optimizer.step()
    return found.detach()


def train(embeddings, batches, rank=0, world=1, ahead=0):
    """Train, with that many batches prefetched; the results."""
    bags, results = [part(batch, rank, world) for batch in batches], []
    for number in range(-ahead, len(bags)):
        if ahead and number + ahead < len(bags):
            embeddings.prefetch(bags[number + ahead])
        if number >= 0:
            results.append(step(embeddings, bags[number], world))
    return results


def outcome(embeddings):
    """Digests of what must not depend on the number of ranks."""
    embeddings.flush()
    found = {"tables": embeddings.sha256()}
    for name, each in embeddings.optimizer.state_dict()["state"].get(0, {}).items():
        found[f"state of {name}"] = sha256(each.numpy().tobytes()).hexdigest()
    if embeddings.id_maps is not None:
        found["maps"] = sha256(embeddings.id_maps.state()).hexdigest()
        for since in (0, BATCHES // 2):
            for name, each in embeddings.changes(since).items():
                found[f"export of {name} since {since}"] = each.since, each.until, *(
                    tensor.tolist() for tensor in (each.ids, each.rows, each.weights, each.removed))
    return found


def run(group=None, tables="any", ahead=0, **options):
    """The outcome of a training, its results, and those of an evaluation."""
    rank, world = (dist.get_rank(group), dist.get_world_size(group)) if group else (0, 1)
    made = drawn(tables)
    with opened(tables, group=group, **options) as embeddings:
        if options["mode"] == "hotline":
            embeddings.learn({"user": range(20), "plain": [1, 2]})
        results = train(embeddings, made, rank, world, ahead)
        found = outcome(embeddings)
        results.append(embeddings.eval()(part(made[7], rank, world)))
        found["results"] = results
        return found


def saved(embeddings):
    return {"model": embeddings.state_dict(), "rows": embeddings.optimizer.state_dict()}
