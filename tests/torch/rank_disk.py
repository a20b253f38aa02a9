"""Tables on disk of several ranks, with commits, failures and resumes."""

import os
import signal
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import hotrow
import torch
import torch.distributed as dist
from hotrow.contract.errors import Error
from hotrow.torch import (
    HotEmbeddingBagCollection,
    Options,
    ShardedEmbeddingBagCollection,
    TableConfig,
)
from hotrow.torch.store.disk import Disk
from safetensors.torch import load_file, save_file

from tests.torch.rank_training import PLANNING, TABLES, Alone
from tests.torch.rank_training import draw as drawn

RULE, RATE, SEED = "rowwise_adagrad", 0.2, 3
ANY = (TableConfig("raw", 40, 8, ids="any"), TableConfig("user", 301, 8))


def on_disk(tables, folder):
    return tuple(replace(each, path=str(folder)) for each in tables)


def steps_of(world, tables):
    """Of each step the bags of each rank."""
    made = drawn(world, tables)
    return [[[(ids * 7919 - 5, offsets) if config.ids == "any" else (ids, offsets)
              for config, (ids, offsets) in zip(tables, bags, strict=True)] for bags, _ in parts]
            for parts in made]


def step(collection, *parts, ranks=1):
    """A step on the parts of this process."""
    for bags in parts:
        (collection(bags).square().sum() / ranks).backward()
    collection.optimizer.step()
    collection.optimizer.zero_grad()


def alone(world, tables, steps):
    """Digests after each step of one process that takes the ranks' parts in turn."""
    found = []
    with Alone(tables, None, "resident", RULE, RATE, options=Options(seed=SEED)) as one:
        for parts in steps_of(world, tables)[:steps]:
            step(one, *parts, ranks=world)
            found.append(one.sha256())
    return found


@contextmanager
def opened(folder, tables=TABLES, mode="scratchpipe", seed=SEED):
    with ExitStack() as held:  # of TABLES not all rows have slots
        device = held.enter_context(hotrow.open("model", config=PLANNING)) if (
            mode != "resident" and tables is TABLES) else None
        yield held.enter_context(ShardedEmbeddingBagCollection(on_disk(tables, folder), device,
                                                               mode, RULE, RATE,
                                                               options=Options(seed=seed)))


def refused(call, *words):
    try:
        call()
    except (Error, RuntimeError) as error:
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError(f"no error with {words}")


def end(collection):
    """As a kill ends a process: without a commit."""
    collection.disk.disk.close()


def commits(folder, expected):
    """A run with commits, closed, opened, and continued."""
    rank, world = dist.get_rank(), dist.get_world_size()
    steps = [parts[rank] for parts in steps_of(world, TABLES)]
    with opened(folder) as shared:
        for number, bags in enumerate(steps[:6], 1):
            step(shared, bags)
            if number in (2, 4):
                assert shared.commit({"step": number}, "second" if number == 2 else None) \
                    == number // 2
        assert [(each.number, each.keep) for each in shared.commits()] == [(1, "second"), (2, None)]
        assert shared.sha256() == expected[5]
        rows = torch.tensor([0, 7, 300, 7])
        assert shared.contents.rows("user", rows).shape == (4, 8)
        refused(lambda: shared.commit(refused if rank else None), "" if rank else "of rank 1")
        assert shared.commit() == 4, "the third is one that not all ranks have"
    with opened(folder, mode="resident", seed=99) as shared:
        assert shared.sha256() == expected[5] and shared.disk.number == 4
        step(shared, steps[6])
    with opened(folder) as shared:
        assert shared.sha256() == expected[6], "close() commits where nothing belongs to the rows"
        refused(lambda: shared.open_commit(9), "have no commit 9 in common")
        assert shared.open_commit(1)["step"] == 2 and shared.sha256() == expected[1]
        step(shared, steps[2])
        state = shared.state_dict()
        assert state["_extra_state"]["tables"]["path"] == str(folder)
        step(shared, steps[3])
        assert shared.sha256() == expected[3]
        shared.load_state_dict(state)
        assert shared.sha256() == expected[2]
        shared.release("second")
        refused(lambda: shared.contents.table("user"), "table")


def failing(folder, expected):
    """The disk of one rank refuses a commit, or a rank ends before it: all open the one before."""
    rank, world = dist.get_rank(), dist.get_world_size()
    steps = [parts[rank] for parts in steps_of(world, TABLES)]
    commit = Disk.commit

    def full(*_, **__):
        raise Error("the disk is full")
    for last in (False, True):  # the first commit of all, and a later one
        for fails in range(world):
            with opened(folder, mode="resident") as shared:
                done = 0 if shared.disk.number == 0 else shared.open_commit()["step"]
                assert done == 2 * last and (not done or shared.sha256() == expected[1])
                step(shared, steps[done])
                step(shared, steps[done + 1])
                Disk.commit = full if rank == fails else commit
                for _ in range(2):
                    refused(lambda shared=shared: shared.commit({"step": 9}),
                            "full" if rank == fails else f"because of the disk of rank {fails}")
                Disk.commit = commit
        if not last:
            with opened(folder, mode="resident") as shared:
                assert shared.disk.number == 0
                step(shared, steps[0])
                step(shared, steps[1])
                assert shared.commit({"step": 2}) == 2 * world + 1, "a number is not used again"
                if rank:
                    shared.disk._write_own({"dense": {"step": 9}})
                end(shared)


def of_any_ids(folder, expected):
    rank, world = dist.get_rank(), dist.get_world_size()
    steps = [parts[rank] for parts in steps_of(world, ANY)]
    for begin in (0, 3):
        with opened(folder, ANY) as shared:
            for bags in steps[begin:begin + 3]:
                step(shared, bags)
            found = shared.sha256()
    assert found == expected[5]


def of_a_base(folder):
    """Rows that begin in published files."""
    shards = [f"{folder}-{number}.safetensors" for number in range(2)]
    if dist.get_rank() == 0:
        for shard in shards:
            save_file({"emb": torch.randn(45, 4)}, shard)
    dist.barrier()
    table = TableConfig("item", 90, 4, path=folder, base=shards, tensor="emb")
    whole = torch.cat([load_file(each)["emb"] for each in shards])
    with ShardedEmbeddingBagCollection([table], None, "resident", RULE,
                                       options=Options(seed=1)) as shared:
        assert torch.equal(shared.embeddings["item"].weight.detach(), whole)
    rows = torch.tensor([0, 1, 44, 45, 89])
    with opened(folder, [table]) as shared:
        assert torch.equal(shared.contents.rows("item", rows), whole[rows])


def parts_of_ranks(folder):
    for config in (TABLES, ANY):
        refused(lambda config=config: HotEmbeddingBagCollection(on_disk(config, folder)), "ranks")


def killed(folder):
    """The last rank ends when the others have their commits."""
    rank, world = dist.get_rank(), dist.get_world_size()
    steps = [parts[rank] for parts in steps_of(world, TABLES)]
    with opened(folder) as shared:
        for number, bags in enumerate(steps[:4], 1):
            step(shared, bags)
            if number == 2:
                shared.commit({"step": number})
        if rank == world - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        shared.disk._write_own({"dense": {"step": 4}})
        end(shared)
        os._exit(0)


def resumed(folder):
    with opened(folder) as shared:
        assert shared.open_commit() == {"step": 2}
        assert shared.sha256() == alone(dist.get_world_size(), TABLES, 2)[-1]


def work(folder):
    world = dist.get_world_size()
    expected, raw = alone(world, TABLES, 7), alone(world, ANY, 6)
    commits(folder / "commits", expected)
    failing(folder / "failing", expected)
    of_any_ids(folder / "any", raw)
    of_a_base(folder / "base")
    parts_of_ranks(folder / "commits")
