"""Trainings by several ranks, and the same trainings by one."""

import os
import re
import signal
from contextlib import ExitStack

import hotrow
import numpy as np
import torch
import torch.distributed as dist
from hotrow.contract.errors import Error
from hotrow.torch import (
    SGD,
    Adagrad,
    HotEmbeddingBagCollection,
    Options,
    ShardedEmbeddingBagCollection,
    TableConfig,
    TrainPipeline,
    average_gradients,
    convert,
)
from hotrow.torch.sharded.store import ShardedStore
from hotrow_rtl.config import preset
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PLANNING = preset("tiny")  # 256 slots
TABLES = (TableConfig("user", 301, 8), TableConfig("item", 500, 8, "mean"),
          TableConfig("place", 3, 6), TableConfig("half", 70, 8, dtype=torch.float16))
STEPS, SAMPLES, RATE, SEED = 12, 12, 0.2, 11


class Alone(HotEmbeddingBagCollection):
    """What one rank computes for comparison."""

    several_ranks = True

CASES = {
    "resident": {"mode": "resident"},
    "scratchpipe": {"mode": "scratchpipe", "share": 2, "ahead": 4, "optimizer": "rowwise_adagrad"},
    "pipeline": {"mode": "scratchpipe", "share": 2, "pipeline": True, "workers": 2},
    "freqcache": {"mode": "freqcache", "ahead": 3, "workers": 2, "warm": True,
                  "optimizer": "adagrad"},
    "hotline": {"mode": "hotline", "ahead": 2, "warm": True, "optimizer": "rowwise_adagrad"},
    "rounded": {"mode": "freqcache", "ahead": 2, "workers": 2,
                "optimizer": SGD(RATE, weight_decay=0.01, rounding_seed=5)},
    "accumulated": {"mode": "scratchpipe", "ahead": 2, "every": 3, "optimizer": "sgd"},
}
SHORT = ("resident", "scratchpipe", "freqcache", "accumulated")  # of two ranks


def tables(optimizer):
    """The tables that an optimizer can train: Adagrad keeps fp32 state per element."""
    return TABLES[:3] if optimizer == "adagrad" else TABLES


def draw(world, configs):
    """Steps of `world` parts: ((indices, offsets) per table, labels); one part has no lookup."""
    rng, steps = np.random.default_rng(SEED), []
    for step in range(STEPS):
        parts = []
        for rank in range(world):
            longest = 0 if (step, rank) == (4, 1) else 3
            bags = []
            for config in configs:
                lengths = rng.integers(0, longest + 1, SAMPLES)
                ids = (config.num_embeddings * rng.random(lengths.sum()) ** 3).astype(np.int64)
                starts = np.r_[0, lengths.cumsum()[:-1]].astype(np.int64)
                bags.append((torch.from_numpy(ids), torch.from_numpy(starts)))
            parts.append((bags, torch.from_numpy(rng.random(SAMPLES).astype(np.float32))))
        steps.append(parts)
    return steps


def joined(parts):
    """The parts of a step as one batch."""
    bags = []
    for column in zip(*(bags for bags, _ in parts), strict=True):
        starts = np.cumsum([0, *(len(ids) for ids, _ in column)])
        bags.append((torch.cat([ids for ids, _ in column]),
                     torch.cat([offsets + int(start) for (_, offsets), start in
                                zip(column, starts, strict=False)])))
    return bags, torch.cat([label for _, label in parts])


def top_of(configs):
    torch.manual_seed(5)
    return nn.Linear(sum(config.embedding_dim for config in configs), 1)


def loss_of(predicted, label):
    return (predicted.squeeze(1) - label).square().mean()


def outcome(collection, top, losses):
    collection.flush()
    state = {config.name: [None if part is None else part.clone()
                           for part in collection.contents.table(config.name)]
             for config in collection.tables}
    return {"sha256": collection.sha256(), "losses": losses, "tables": state,
            "dense": [each.detach().clone() for each in top.parameters()]}


def alone(world, optimizer="sgd", every=1, union=False, **_):
    """One rank, all rows resident: the parts of a step one after the other, or as one batch."""
    configs = tables(optimizer)
    with Alone(configs, None, "resident", optimizer, RATE,
               options=Options(seed=3)) as collection:
        top = top_of(configs)
        dense, losses = torch.optim.SGD(top.parameters(), RATE), []
        for start in range(0, STEPS, every):
            steps = draw(world, configs)[start:start + every]
            # In the order in which ranks add: each its own batches first.
            parts = [joined(steps[0])] if union else [
                each for rank in zip(*steps, strict=True) for each in rank]
            for bags, label in parts:
                loss = loss_of(top(collection(bags)), label)
                losses.append(float(loss.detach()))
                (loss if union else loss / world).backward()
            for each in (dense, collection.optimizer):
                each.step()
                each.zero_grad()
        return outcome(collection, top, losses)


def together(optimizer="sgd", mode="resident", every=1, ahead=0, warm=False, wrapped=False,
             pipeline=False, **options):
    """This rank's part of the same training."""
    rank, world, configs = dist.get_rank(), dist.get_world_size(), tables(optimizer)
    with ExitStack() as held:
        device = None if mode == "resident" else held.enter_context(
            hotrow.open("cpu", config=PLANNING))
        collection = held.enter_context(ShardedEmbeddingBagCollection(configs, device, mode,
                                                                      optimizer, RATE,
                                                                      seed=3, **options))
        batches = [parts[rank] for parts in draw(world, configs)]
        if warm:
            for bags, _ in batches[:4]:
                collection.observe(bags)
            assert collection.learn(warmup_ratio=0.3) > world
        top = top_of(configs)
        model = nn.Sequential(collection, top)
        if wrapped:
            # It keeps its group, and so that group's threads, for good. The one that every rank
            # talks over at its end must be gone by then: a thread that drops the last message's
            # tensors while Python ends aborts the process.
            model = DistributedDataParallel(model, process_group=dist.new_group())
        dense, losses, prefetched = torch.optim.SGD(top.parameters(), RATE), [], 0
        steps = held.enter_context(
            TrainPipeline(batches, model, lambda batch: batch[0])) if pipeline else batches
        for number, (bags, label) in enumerate(steps):
            while ahead and prefetched < min(STEPS, number + ahead + 1):
                collection.prefetch(batches[prefetched][0])
                prefetched += 1
            loss = loss_of(model(bags), label)
            losses.append(float(loss.detach()))
            loss.backward()
            if (number + 1) % every == 0:
                if not wrapped:
                    average_gradients(top.parameters())
                for each in (dense, collection.optimizer):
                    each.step()
                    each.zero_grad()
        found = outcome(collection, top, losses)
        if mode != "resident":
            figures = collection.statistics
            assert figures["lookups"] and figures["rows_moved"], figures
            found["hits"] = collection.ranks.total(figures["hits"])
        return found


def planted():
    """Rank 1 does not send the gradients of one step: a fault that the digest must show."""
    mean, steps = ShardedStore._mean, []

    def forgetful(self, group, flat, sums):
        steps.append(group)
        kept = dist.get_rank() == 1 and steps.count(group) == 3
        return mean(self, group, flat[:0] if kept else flat, sums[:0] if kept else sums)

    ShardedStore._mean = forgetful
    try:
        return together(**CASES["scratchpipe"])
    finally:
        ShardedStore._mean = mean


def saved_and_read():
    """A saved state equals one rank's, loads, and can be looked up in eval()."""
    world, rank = dist.get_world_size(), dist.get_rank()
    bags, _ = draw(world, TABLES)[0][rank]
    for make in (lambda: HotEmbeddingBagCollection(TABLES, mode="resident"),
                 lambda: convert(nn.Sequential(nn.EmbeddingBag(5, 4)), mode="resident")):
        try:
            make()
        except Error as error:
            assert "Sharded" in str(error) or "sharded=True" in str(error)
        else:
            assert world == 1, "every rank would train rows of its own"
    with (Alone(TABLES, None, "resident", "rowwise_adagrad", RATE,
                options=Options(seed=4)) as one,
          hotrow.open("cpu", config=PLANNING) as device,
          ShardedEmbeddingBagCollection(TABLES, device, "scratchpipe", "rowwise_adagrad", RATE,
                                        options=Options(seed=5)) as shared):
        assert shared.sha256() != one.sha256()
        shared.load_state_dict(one.state_dict())
        shared.optimizer.load_state_dict(one.optimizer.state_dict())
        for name, here in shared.state_dict().items():
            assert torch.equal(here, one.state_dict()[name]), name
        assert torch.equal(shared.eval()(bags), one.eval()(bags))
        assert not shared.statistics.get("lookups")
        assert shared.sha256() == one.sha256()
        wanted = {"item": [7, 8, 9, 10, 11], "place": [2, 0]}
        assert shared.learn(wanted) == 7
        found = sorted(int(each) for each in shared.store.card.storages[0].resident)
        shares = shared.ranks.total(len(found))
        assert shares == 5, found
        counts = np.zeros(500, np.int64)
        counts[[3, 8, 9, 401]] = 5, 1, 2, 9
        assert shared.learn(ids_freq_mapping={"item": counts}) == 4
        assert shared.ranks.total(len(shared.store.card.storages[0].resident)) == 4
        collected = shared.statistics["hits"]
        shared.train()([(torch.tensor([], dtype=torch.int64), torch.tensor([0])),
                        (torch.tensor([3, 8, 9, 401]), torch.tensor([0])),
                        *[(torch.tensor([], dtype=torch.int64), torch.tensor([0]))] * 2])
        assert shared.ranks.total(shared.statistics["hits"] - collected) == 4 * world


def spoiled():
    """A gradient that is not finite at one rank is an error at both, and nothing is applied."""
    rank, world = dist.get_rank(), dist.get_world_size()
    with ShardedEmbeddingBagCollection(TABLES, None, "resident", "sgd", RATE,
                                       options=Options(seed=3)) as shared:
        before = shared.sha256()
        bags, _ = draw(world, TABLES)[0][rank]
        (shared(bags).sum() * (float("nan") if rank == 1 else 1.0)).backward()
        try:
            shared.optimizer.step()
        except Error as error:
            assert ("of table" if rank == 1 else "rank 1") in str(error), error
        else:
            raise AssertionError("a gradient of nan was applied")
        shared.optimizer.zero_grad()
        assert shared.sha256() == before


def refused(call, here, elsewhere):
    """The error of a call, which is `here` at the last rank and `elsewhere` at the others."""
    try:
        call()
    except (Exception, KeyboardInterrupt) as error:
        said = here if dist.get_rank() == dist.get_world_size() - 1 else elsewhere
        assert re.search(said, str(error)), error
    else:
        raise AssertionError(f"expected an error: {here}, or {elsewhere} at other ranks")


def refused_by_all(shared, bags):
    """What goes wrong at the last rank only, or differs between the ranks, ends at all of them."""
    last, inner = dist.get_rank() == dist.get_world_size() - 1, shared.store.inner
    evaluate = torch.no_grad()(shared.forward)

    def failing(*_):
        raise ValueError("planted")

    for name, call in (("look", evaluate), ("take", shared), ("prefetch", shared.prefetch),
                       ("observe", shared.observe)):
        if last:
            setattr(inner, name, failing)
        refused(lambda call=call: call(bags), "planted", "card of rank")
        vars(inner).pop(name, None)
        shared.abandon()
    if dist.get_world_size() > 1:
        refused(lambda: (evaluate if last else shared)(bags), "different calls", "different calls")
    refused(lambda: shared(None if last else bags), "", "of rank")
    group = shared.optimizer.param_groups[0]
    group["lr"] = -1 if last else RATE
    refused(shared.optimizer.step, "rate", "because of the optimizer of rank")
    group["lr"] = RATE


def misled():
    """A wrong id, or a wrong shape, at one rank is an error at all, which go on afterwards."""
    rank, world = dist.get_rank(), dist.get_world_size()
    with hotrow.open("cpu", config=PLANNING) as device, ShardedEmbeddingBagCollection(
        TABLES, device, "scratchpipe", "sgd", RATE, options=Options(seed=3)) as shared:
        before, bags = shared.sha256(), [(torch.tensor([1]), torch.tensor([0]))] * len(TABLES)
        wrong = [(torch.tensor([301]), torch.tensor([0])), *bags[1:]]
        for spoiled, call in ((wrong, shared), (wrong, shared.prefetch), (bags[1:], shared)):
            try:
                call(spoiled if rank == world - 1 else bags)
            except Error as error:
                assert rank == world - 1 or f"of rank {world - 1}" in str(error), error
            else:
                raise AssertionError("a wrong id was taken")
        refused_by_all(shared, bags)
        assert shared.sha256() == before
        shared(bags).sum().backward()
        shared.optimizer.step()
        shared.flush()
        assert shared.sha256() != before


def counted():
    """Access counts of all ranks are in a checkpoint, and each owner gets its own."""
    bags, _ = draw(dist.get_world_size(), TABLES)[0][dist.get_rank()]
    states, digests = [], []
    for _ in range(2):
        with hotrow.open("cpu", config=PLANNING) as device, ShardedEmbeddingBagCollection(
            TABLES, device, "freqcache", "sgd", RATE, options=Options(seed=3)) as shared:
            if states:
                shared.optimizer.load_state_dict(states[0])
            else:
                shared.observe(bags)
            states.append(shared.optimizer.state_dict())
            digests.append(device.counts().count.sum())
    (names, one), (_, other) = (each["access_counts"] for each in states)
    assert names == [config.name for config in TABLES]
    assert digests[0] == digests[1]
    assert sorted(one.T.tolist()) == sorted(other.T.tolist())
    limits = torch.tensor([config.num_embeddings for config in TABLES])
    assert (one[1] < limits[one[0]]).all()
    assert one[2].sum() == sum(
        len(ids) for part in draw(dist.get_world_size(), TABLES)[0] for ids, _ in part[0])


def failed_step(mode, spoil, here, elsewhere):
    """The tables after a step that `spoil` breaks at the last rank, whose error says `here`; the
    others' say `elsewhere`, or with None there is none. Then another step trains."""
    rank, world = dist.get_rank(), dist.get_world_size()
    with ExitStack() as held:
        device = None if mode == "resident" else held.enter_context(
            hotrow.open("cpu", config=PLANNING))
        shared = held.enter_context(ShardedEmbeddingBagCollection(TABLES[:3], device, mode, "sgd",
                                                                  RATE, options=Options(seed=3)))
        bags, _ = draw(world, TABLES[:3])[0][rank]
        before = {name: each.clone() for name, each in shared.state_dict().items()}
        shared(bags).square().sum().backward()
        if rank == world - 1:
            spoil(shared.store)
        if elsewhere is None and rank < world - 1:
            shared.optimizer.step()
        else:
            refused(shared.optimizer.step, here, elsewhere)
        vars(shared.store.inner).pop("apply", None)
        assert all(staged.values is None for staged in shared.staging.rows)
        if elsewhere is not None:  # no rank trains until rows are loaded
            refused(lambda: shared(bags), "Load a checkpoint", "Load a checkpoint")
            shared.load_state_dict(before)
        shared(bags).square().sum().backward()
        shared.optimizer.step()
        return {name: each.clone() for name, each in shared.state_dict().items()}


def interrupted():
    """A step that fails at the last rank ends at all of them, and all train on once rows are
    loaded; an interrupt waits for the end of the step."""
    last = dist.get_world_size() - 1

    def failing(failure, after=False):
        def spoil(store):
            apply = store.inner.apply

            def call(group, *given):
                if group or after:
                    apply(group, *given)
                raise failure("planted")

            store.inner.apply = call
        return spoil

    def signalled(store):
        mean = store._mean

        def call(*given):
            store._mean = mean  # a second signal would not wait
            signal.raise_signal(signal.SIGINT)
            return mean(*given)

        store._mean = call

    for mode in ("resident", "scratchpipe"):
        ends = [failed_step(mode, failing(failure, after), "planted",
                            f"did not reach all rows of rank {last}")
                for failure, after in ((ValueError, False), (KeyboardInterrupt, False),
                                       (ValueError, True))]
        failed_step(mode, signalled, "^$", None)
        for name, values in ends[0].items():
            assert all(torch.equal(each[name], values) for each in ends), (mode, name)


def parted():
    """An error of a user's code at the last rank: the ranks make different calls, and all of them
    learn so; their rows have the steps before."""
    rank, world = dist.get_rank(), dist.get_world_size()
    for call in ("state_dict", "forward", "access_counts", "average_gradients"):
        with hotrow.open("cpu", config=PLANNING) as device, ShardedEmbeddingBagCollection(
            TABLES[:3], device, "freqcache", "sgd", RATE, options=Options(seed=3)) as shared:
            top, (bags, _) = top_of(TABLES[:3]), draw(world, TABLES[:3])[0][rank]
            shared(bags).square().sum().backward()
            shared.optimizer.step()
            before = {name: each.clone() for name, each in shared.state_dict().items()}
            shared(bags).square().sum().backward()
            other = {"state_dict": shared.state_dict, "forward": lambda: shared(bags),
                     "access_counts": shared.cache.access_counts,
                     "average_gradients": lambda: average_gradients(top.parameters())}[call]
            refused(other if rank == world - 1 else shared.optimizer.step,
                    "different calls", "different calls")
            shared.zero_grad()
            for name, rows in shared.state_dict().items():
                assert torch.equal(rows, before[name]), (call, name)


def lost():
    """The last rank ends: a call of another is an error, and its own rows have all steps."""
    rank, world = dist.get_rank(), dist.get_world_size()
    shared = ShardedEmbeddingBagCollection(TABLES[:3], None, "resident", "sgd", RATE,
                                           options=Options(seed=3))
    bags, _ = draw(world, TABLES[:3])[0][rank]
    shared(bags).square().sum().backward()
    shared.optimizer.step()
    shards = shared.store.sharding.shards
    tables = [shard.tables.rows.array.clone() for shard in shards]
    if rank == world - 1:
        os._exit(0)
    refused(lambda: shared(bags), "", "does not reach another rank")
    shared.close()
    for here, shard in zip(tables, shards, strict=True):
        # Bytes, as rows of padding may be NaN.
        assert torch.equal(here.view(torch.uint8), shard.tables.rows.array.view(torch.uint8))
    os._exit(0)  # the group cannot end in order


def converted():
    """`convert(sharded=True)` trains as one rank does that takes the ranks' samples in turn."""
    rank, world, digests = dist.get_rank(), dist.get_world_size(), []
    ids = torch.randint(0, 50, (5, world, 6, 2), generator=torch.Generator().manual_seed(SEED))
    for sharded in (True, False):
        torch.manual_seed(SEED + rank * sharded)  # rank 0's weights count
        model = nn.Sequential(nn.EmbeddingBag(50, 8, mode="sum"))
        if sharded:
            tables = convert(model, sharded=True, mode="resident", optimizer=Adagrad(RATE))
        else:
            tables = Alone([TableConfig("0", 50, 8)], None, "resident", Adagrad(RATE))
            tables.contents.assign("0", model[0].weight.detach())
        for step in ids:
            for part in step[rank:rank + 1] if sharded else step:
                given = (part,) if sharded else (
                    part.reshape(-1), torch.arange(0, part.numel() + 1, 2))
                found = model(*given) if sharded else tables(*given)
                (found.square().sum() / (1 if sharded else world)).backward()
            tables.optimizer.step()
        digests.append(tables.sha256())
        tables.close()
    assert digests[0] == digests[1]


def work():
    """The outcome of each case."""
    cases = CASES if dist.get_world_size() > 2 else SHORT
    found = {name: together(**CASES[name]) for name in cases}
    found["planted"] = planted()
    found["wrapped"] = together(**CASES["resident"], wrapped=True)
    saved_and_read()
    for check in (spoiled, misled, counted, converted, interrupted, parted):
        check()
    losses = [None] * dist.get_world_size()
    dist.all_gather_object(losses, {name: each["losses"] for name, each in found.items()})
    for name, each in found.items():
        each["losses"] = [ranks[name] for ranks in losses]
    return found
