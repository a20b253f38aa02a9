"""Trainings of tables with any id by several ranks, with errors and resumes."""

import copy
import re

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from tests.torch.any_id_schedules import SCHEDULED, SEEDS, scheduled
from tests.torch.any_id_training import (
    BATCHES,
    CASES,
    SAMPLES,
    drawn,
    opened,
    outcome,
    part,
    run,
    saved,
    train,
)

SHORT = ("scratchpipe", "n-grams freqcache")  # of two ranks


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


def work(folder):
    """Outcomes by (case, ranks)."""
    rank, world = dist.get_rank(), dist.get_world_size()
    groups = {size: dist.new_group(range(size)) for size in (1, 2, 4) if size <= world}
    found = {}
    for size, group in groups.items():
        if rank < size > 1:  # of one rank in test_rank_ids.py
            for name in CASES if world > 2 else SHORT:
                runs = [None] * size
                dist.all_gather_object(runs, run(group, **CASES[name]), group)
                found[name, size] = runs
            found["misled", size] = [misled(group)]
            for seed in SEEDS if world > 2 else SEEDS[:1]:
                found["scheduled", size, seed] = [scheduled(seed, group, **SCHEDULED)]
    sizes = (2, 4, 2, 1) if world > 2 else (2, 1)
    found["resumed", 0] = [resumed([groups[size] for size in sizes], folder)]
    return found
