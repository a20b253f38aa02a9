"""The processor's time of a training step by part, compared with CPU peers.

The device is this machine's cores, transport `cpu`, and the time of every thread counts. To mode
near_memory they are a card, which takes commands, and only the trainer's thread counts. Before each
step, also of a peer, other work takes the caches.
"""

import time
from collections import Counter
from statistics import median

import torch
from hotrow.contract.errors import Error
from hotrow.device import open as open_device
from hotrow.torch import HotEmbeddingBagCollection, Options, TableConfig, convert
from hotrow.torch.collection.collection import MODES
from hotrow.torch.collection.joined_bags import joined_bags
from hotrow.torch.optim.rules import OPTIMIZERS
from torch import nn

from .cpu_peers import Bags, peers, use_caches
from .host_clock import DEVICE, TRANSPORT, PartClock, SortCounter
from .host_passes import passes

CARD_SIDE = ("plan", "collect", "insert", "statistics")  # a run without a card has none of these
TRAINER = ("forward", "backward", "update")
AHEAD = 3  # batches that are prefetched
_STAGES = {"exchange": "insert"}


def host(options, trace, steps) -> dict:
    """Time every mode, with the peers before and after."""
    unknown = set(options.modes) - set(MODES)
    if unknown or not options.modes:
        raise Error(f"--modes names some of {','.join(MODES)}, not {','.join(sorted(unknown))!r}")
    if options.threads:
        torch.set_num_threads(options.threads)
    clock = time.process_time
    steps.begin("making batches")
    timed = options.warm_up + options.steps
    if options.bag_size > 1 and options.converted:
        raise Error("--converted has one id a bag: leave --bag-size out")
    batches = _batches(trace, options.batch * options.bag_size, options.learning + timed + AHEAD)
    learning, batches = batches[:options.learning], batches[options.learning:]
    rule = OPTIMIZERS[options.optimizer](options.lr)
    contest = peers(trace.cardinalities, options.dim, rule)
    bags = [Bags.of(batch, options.bag_size) for batch in batches]
    advance = steps.begin("training", len(options.modes) + 2 * len(contest))
    times: dict[str, list[float]] = {"fbgemm_ms": [], "embedding_bag_ms": [], "dense_ms": []}
    found = []

    def time_peers():
        for name, peer in contest.items():
            for number in range(timed):
                use_caches()
                started = clock()
                peer.step(bags[number])
                if number >= options.warm_up:
                    times[f"{name}_ms"].append(clock() - started)
            advance()

    time_peers()
    for mode in options.modes:
        found.append(_mode(mode, options, trace.cardinalities, learning, batches,
                           time.thread_time if mode == "near_memory" else clock))
        advance()
    time_peers()
    peer_ms = {name: 1e3 * median(each) if each else None for name, each in times.items()}
    for record in found:
        record |= peer_ms
        record["host_over_fbgemm"] = (
            record["host_ms"] / record["fbgemm_ms"] if record["fbgemm_ms"] else None)
    return {
        "tables": len(trace.cardinalities), "rows": trace.rows, "dim": options.dim,
        "lookups": batches[0].numel(), "bag_size": options.bag_size,
        "optimizer": options.optimizer, "steps": options.steps,
        "threads": torch.get_num_threads(), "converted": options.converted,
        "passes": passes(batches[0], trace.cardinalities, options.dim, rule, clock),
        **(found[0] if len(found) == 1 else {"modes": found})}


def _batches(trace, size, count):
    """Ids int64[size, tables] of `count` batches."""
    found = []
    for number in range(count):
        samples = trace.batch(number, size)
        if samples.lengths is not None or len(samples) < size:
            raise Error(f"trace {trace.name}: this benchmark needs {count} batches of {size} "
                        f"samples with one id per table")
        found.append(torch.from_numpy(samples.ids.astype("int64")))
    return found


def _mode(mode, options, cardinalities, learning, batches, clock):
    """Time one mode: its record, without the peers."""
    everything = mode, options, cardinalities, learning, batches, PartClock(clock)
    if mode == "resident":
        return _train(*everything)
    with open_device("cpu", options.preset, threads=options.threads or 1) as device:
        if mode == "near_memory":  # which takes the tables of "cpu" for those of the host
            device.transport.name = "card"
        return _train(*everything, device)


def _train(mode, options, cardinalities, learning, batches, parts, device=None):
    """Train with a mode: its record."""
    common = {
        "device": device, "mode": mode,
        "optimizer": options.optimizer, "lr": options.lr,
        "options": Options(preset=options.preset, seed=options.seed, workers=0)}
    if options.converted:
        bags = _Bags(cardinalities, options.dim)
        model: nn.Module = bags
        collection = convert(bags, bags.calls, **common)
    else:
        collection = HotEmbeddingBagCollection(
            [TableConfig(f"t{number}", rows, options.dim)
             for number, rows in enumerate(cardinalities)], **common)
        model = collection
    try:
        if mode == "hotline":
            for batch in learning:
                collection.observe(batch)
            collection.learn()
        if mode == "near_memory":
            parts.wrap(collection.store.device.transport, TRANSPORT, DEVICE)
            parts.wrap(collection.store.statistics, ("looked_up", "moved"), "statistics")
        elif mode != "resident":
            collection.store.stages.before = (
                lambda stage, number: parts.switch(_STAGES.get(stage, stage)))
            parts.wrap(collection.store.device.transport, ("wait",), DEVICE)
            parts.wrap(collection.store.statistics, ("planned", "moved"), "statistics")
            parts.wrap(collection.store, ("take",), "plan")
            parts.wrap(collection.store.host, ("write_after",), "insert")
        with SortCounter(parts) as sorts:
            return _steps(mode, model, collection, options, batches, parts, sorts)
    finally:
        collection.close()


class _Bags(nn.Module):
    """A model of one `nn.EmbeddingBag` per table."""

    def __init__(self, cardinalities, dim):
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(rows, dim, mode="sum") for rows in cardinalities)
        self._by_name: dict = {}

    def forward(self, ids):
        return [bag(ids[:, number:number + 1]) for number, bag in enumerate(self.bags)]

    @staticmethod
    def calls(ids):
        return {f"bags.{number}": ids[:, number:number + 1] for number in range(ids.shape[1])}

    def joined(self, ids):
        if not self._by_name:
            self._by_name = {f"bags.{number}": bag for number, bag in enumerate(self.bags)}
        return joined_bags(self._by_name, self.calls(ids))


def _steps(mode, model, collection, options, batches, parts, sorts):
    bags = [torch.ones(options.batch, options.dim) for _ in range(batches[0].shape[1])]
    gradients = bags if options.converted else [torch.cat(bags, dim=1)]
    if options.bag_size > 1:
        batches = [Bags.of(batch, options.bag_size) for batch in batches]
    each, counts = [], []

    def prefetch(number):
        if mode != "resident":
            with parts.running("plan"):
                ids = batches[number]
                collection.prefetch(model.joined(ids) if options.converted else ids)

    for number in range(AHEAD):
        prefetch(number)
    for number in range(options.warm_up + options.steps):
        use_caches()
        parts.seconds, sorted_before = Counter(), sorts.count
        prefetch(number + AHEAD)
        with parts.running("forward"):
            pooled = model(batches[number])
            pooled = pooled if options.converted else [pooled]
        with parts.running("backward"):
            torch.autograd.backward(pooled, gradients)
        with parts.running("update"):
            collection.optimizer.step()
        if number >= options.warm_up:
            each.append(parts.seconds)
            counts.append(sorts.count - sorted_before)
    lookups = options.batch * options.bag_size * len(bags)
    host = (*CARD_SIDE, *TRAINER, DEVICE)
    total = {name: 1e3 * median(sum(step[part] for part in chosen) for step in each)
             for name, chosen in (("host_ms", host), ("card_side_ms", CARD_SIDE),
                                  ("trainer_ms", TRAINER), ("device_ms", (DEVICE,)))}
    return {
        "mode": mode, **total,
        "parts_ms": {part: 1e3 * median(step[part] for step in each)
                     for part in CARD_SIDE + TRAINER},
        "card_side_us_per_1000_lookups": 1e6 * total["card_side_ms"] / lookups,
        "sorts": median(counts)}
