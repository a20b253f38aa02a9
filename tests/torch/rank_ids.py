"""Tables of any id, and of n-grams, trained by several ranks and by one: for test_rank_ids.py.

As a script, started by torchrun with the name of a file and of a folder, it is one of the ranks.

Gradients are multiples of 1/32 whose sums are exact, so that no order of addition shows: every
number of ranks, and one process that takes their samples as one batch, must have the same bits.
"""

import copy
import os
import random
import re
import sys
from contextlib import suppress
from datetime import timedelta
from hashlib import sha256
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from hotrow.contract.errors import Error
from hotrow.ids import Expiry, LeastCount, Probability
from hotrow.torch import (
    SGD,
    HotEmbeddingBagCollection,
    NgramIds,
    ShardedEmbeddingBagCollection,
    TableConfig,
)

SAMPLES, BATCHES, ROWS, SEED = 8, 48, 40, 12
PATIENCE = 600  # seconds that a rank waits for another, which may have little of the machine

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
    "freqcache": {"mode": "freqcache", "ahead": 2, "admission": True,
                  "optimizer": "rowwise_adagrad"},
    "hotline": {"mode": "hotline", "ahead": 1, "optimizer": "adam"},
    "n-grams resident": {"mode": "resident", "tables": "n-grams",
                         "optimizer": SGD(0.1, rounding_seed=3)},
    "n-grams scratchpipe": {"mode": "scratchpipe", "ahead": 3, "tables": "n-grams",
                            "optimizer": SGD(0.1, rounding_seed=3)},
    "n-grams freqcache": {"mode": "freqcache", "ahead": 2, "workers": 1, "tables": "n-grams",
                          "optimizer": SGD(0.1, rounding_seed=3)},
}

SCHEDULED = {"mode": "scratchpipe", "optimizer": "adagrad", "workers": 1}
SEEDS = range(4)


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
    card = {} if mode == "resident" else {"device": "model", "preset": "tiny"}
    kind = HotEmbeddingBagCollection if group is None else ShardedEmbeddingBagCollection
    if group is not None:
        options["ranks"] = group
        seed += dist.get_rank(group)  # rank 0's counts
    return kind(TABLES[tables], mode=mode, optimizer=optimizer, lr=0.125, seed=seed, **card,
                **options)


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
        for since in (BATCHES // 2, BATCHES):
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


def scheduled(seed, group=None, **options):
    """The outcome of a training in which calls of every kind come at random."""
    rank, world = (dist.get_rank(group), dist.get_world_size(group)) if group else (0, 1)
    rng, made = random.Random(seed), drawn(seed=seed)
    bags = [part(batch, rank, world) for batch in made]
    embeddings, at, ahead, held = opened(group=group, **options), 0, 0, False
    while at < BATCHES:
        call = rng.choice(("prefetch", "prefetch", "train", "train", "train", "accumulate", "skip",
                           "abandon", "evaluate", "export", "resume", "mislead"))
        if call == "prefetch" and ahead < min(4, BATCHES - at):
            embeddings.prefetch(bags[at + ahead])
            ahead += 1
        elif call == "train" or (call == "accumulate" and not held):
            step(embeddings, bags[at], world, applies=call == "train")
            at, ahead, held = at + 1, max(0, ahead - 1), call != "train"
        elif call == "skip" and ahead and any(len(ids) for ids, _ in made[at]):
            embeddings.skip()
            at, ahead = at + 1, ahead - 1
        elif call == "evaluate":
            embeddings.eval()(rng.choice(bags))
            embeddings.train()
        elif call == "export":
            embeddings.changes(rng.choice((0, at // 2)))
        elif call == "mislead":
            wrong = [*rng.choice(bags)]
            wrong[3] = torch.tensor([9]), torch.zeros(SAMPLES // world, dtype=torch.int64)
            with suppress(Error):
                (embeddings.prefetch if ahead else embeddings)(wrong)
        elif call in ("abandon", "resume") and not held:
            state = copy.deepcopy(saved(embeddings))
            embeddings.abandon()
            ahead = 0
            if call == "resume":
                embeddings.close()
                embeddings = opened(group=group, **options)
                embeddings.load_state_dict(state["model"])
                embeddings.optimizer.load_state_dict(state["rows"])
    if held:
        embeddings.optimizer.step()
    with embeddings:
        return outcome(embeddings)


def saved(embeddings):
    return {"model": embeddings.state_dict(), "rows": embeddings.optimizer.state_dict()}


def resumed(groups, folder, mode="scratchpipe", optimizer="adagrad", **options):
    """A training that other ranks continue from each checkpoint: the outcome of the last.

    Batches are prefetched when a checkpoint is written, which the others train.
    """
    made, length, found = drawn(), BATCHES // len(groups), None
    for number, group in enumerate(groups):
        here, last = number * length, number + 1 == len(groups)
        rank, world = dist.get_rank(group), dist.get_world_size(group)
        if rank >= 0:
            with opened(mode=mode, optimizer=optimizer, group=group, seed=3 + number,
                        **options) as embeddings:
                if number:
                    state = copy.deepcopy(saved(embeddings))
                    dcp.load(state, checkpoint_id=folder / f"{mode}-{number - 1}",
                             process_group=group)
                    embeddings.load_state_dict(state["model"])
                    embeddings.optimizer.load_state_dict(state["rows"])
                train(embeddings, made[here:here + length], rank, world)
                if last:
                    found = outcome(embeddings)
                else:
                    for batch in made[here + length:here + length + 2]:
                        embeddings.prefetch(part(batch, rank, world))
                    dcp.save(saved(embeddings), checkpoint_id=folder / f"{mode}-{number}",
                             process_group=group)
                    embeddings.abandon()
        dist.barrier()
    return found


def refused(group, call, here, elsewhere):
    """The error of a call is `here` at the last rank of a group, and `elsewhere` at the others."""
    try:
        call()
    except Exception as error:
        last = dist.get_rank(group) == dist.get_world_size(group) - 1
        assert re.search(here if last else elsewhere, str(error)), error
    else:
        raise AssertionError(f"expected an error: {here}, or {elsewhere} at other ranks")


def misled(group):
    """A training in which calls of the last rank fail in every way: its outcome."""
    made, (rank, world) = drawn(), (dist.get_rank(group), dist.get_world_size(group))
    last, bags = rank == world - 1, [part(batch, rank, world) for batch in drawn()]
    wrong = [*bags[13]]  # whose ids must not be planned
    wrong[3] = torch.tensor([9]), torch.zeros(SAMPLES // world, dtype=torch.int64)
    floats = [(ids.double(), offsets) for ids, offsets in bags[12]]
    with opened(mode="scratchpipe", optimizer="adagrad", group=group, workers=1) as embeddings:
        inner = embeddings.store.inner

        def failing(*_):
            raise ValueError("planted")

        train(embeddings, made[:12], rank, world)
        for given, said in ((wrong, "id 9 of sample . is no row of table .plain."),
                            (floats, "integers")):
            for call in (embeddings.prefetch, embeddings):
                refused(group, lambda call=call, given=given: call(given if last else bags[12]),
                        said, f"of rank {world - 1}: see the error of that rank")
        embeddings.prefetch(bags[12])
        refused(group, lambda: embeddings(bags[13 if last else 12]),
                "not the one that was prefetched", f"order of batches of rank {world - 1}")
        for name, call in (("prefetch", lambda: embeddings.prefetch(bags[13])),
                           ("take", lambda: embeddings(bags[12]))):
            if last:
                setattr(inner, name, failing)
            refused(group, call, "planted", f"card of rank {world - 1}")
            vars(inner).pop(name, None)
        train(embeddings, made[12:20], rank, world, ahead=2)
        if world > 1:
            maps, own = embeddings.id_maps, embeddings.id_maps.state()
            if last:
                maps.maps[0].plan([1])
            refused(group, lambda: embeddings(bags[20]),
                    *[f"maps of ids of ranks 0 and {world - 1} differ.*Load the same"] * 2)
            maps.load(own)
        train(embeddings, made[20:], rank, world, ahead=1)
        return outcome(embeddings)


def main(path, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=PATIENCE))
    rank, world = dist.get_rank(), dist.get_world_size()
    groups = {size: dist.new_group(range(size)) for size in (1, 2, 4) if size <= world}
    found = {}
    for size, group in groups.items():
        if rank < size > 1:  # of one rank in test_rank_ids.py
            for name, case in CASES.items():
                runs = [None] * size
                dist.all_gather_object(runs, run(group, **case), group)
                found[name, size] = runs
            found["misled", size] = [misled(group)]
            for seed in SEEDS:
                found["scheduled", size, seed] = [scheduled(seed, group, **SCHEDULED)]
    sizes = (2, world, 2, 1)
    found["resumed", 0] = [resumed([groups[size] for size in sizes], Path(folder))]
    if rank == 0:
        torch.save(found, path)
    dist.barrier()
    os._exit(0)  # without an end of the groups' threads


if __name__ == "__main__":
    main(*sys.argv[1:])
