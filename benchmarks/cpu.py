"""Steps of tables on the CPU, by batch, row and bag, compared with other libraries.

The processor's time of all threads counts. Contenders take turns at the same batches. Each takes a
step with cold caches, after other work as a model's dense part, and at once a warm one.
"""

import time
from itertools import product
from statistics import median

import hotrow
import torch
from hotrow.contract.errors import Error
from hotrow.torch import HotEmbeddingBagCollection, Options, TableConfig
from hotrow.torch.collection.collection import MODES
from hotrow.torch.optim.rules import OPTIMIZERS
from hotrow.traces import open_trace

from . import cpu_peers
from .cpu_peers import Bags

AHEAD = 2  # batches that a mode with slots plans
WARM_UP = 3  # steps of each contender in each cell, not timed
CACHES = "cold", "warm"


def cpu(options, steps) -> dict:
    """Time every cell."""
    trace = open_trace(options.generated, seed=options.seed, tables=options.tables,
                       table_rows=options.rows)
    unknown = set(options.modes) - set(MODES)
    if unknown:
        raise Error(f"--modes names some of {','.join(MODES)}, not {','.join(sorted(unknown))!r}")
    torch.set_num_threads(options.threads)
    cells = list(product(options.batches, options.bags))
    contests = list(product(options.dims, options.optimizers))
    advance = steps.begin("training", len(cells) * len(contests))
    found = []
    for dim, optimizer in contests:
        rule = OPTIMIZERS[optimizer](options.lr)
        contenders = _contenders(trace.cardinalities, dim, rule, options)
        try:
            for samples, bag in cells:
                times = _cell(contenders, trace, samples, bag, options.rounds)
                found += [{"batch": samples, "dim": dim, "optimizer": optimizer, "bag": bag,
                           "caches": caches, **_figures(times[caches])} for caches in CACHES]
                advance()
        finally:
            for contender in contenders.values():
                contender.close()
    if options.output:
        _plot(found, options.output)
    return {"tables": options.tables, "rows": options.rows, "ids": options.generated,
            "rounds": options.rounds, "threads": options.threads, "cells": found}


def _cell(contenders, trace, samples, bag, rounds):
    """Seconds of each contender's timed steps by state of the caches."""
    count = WARM_UP + 2 * rounds
    batches = [_bags(trace, number, samples, bag) for number in range(count + AHEAD)]
    times: dict = {caches: {name: [] for name in contenders} for caches in CACHES}
    for contender in contenders.values():
        for number in range(WARM_UP):
            contender.step(batches, number)
    for number in range(WARM_UP, count, 2):
        for name, contender in contenders.items():
            cpu_peers.use_caches()
            for step, caches in enumerate(CACHES):
                started = time.process_time()
                contender.step(batches, number + step)
                times[caches][name].append(time.process_time() - started)
    for contender in contenders.values():
        contender.end()
    return times


def _bags(trace, number, samples, bag):
    return Bags.of(torch.from_numpy(trace.batch(number, samples * bag).ids.astype("int64")), bag)


def _figures(times):
    """Milliseconds of each contender: median, least and most; medians of modes over peers'."""
    figures: dict = {f"{name}_ms": 1e3 * median(seconds) for name, seconds in times.items()}
    for mode, peer in product(MODES, ("fbgemm", "embedding_bag")):
        if mode in times and peer in times:
            figures[f"{mode}_over_{peer}"] = figures[f"{mode}_ms"] / figures[f"{peer}_ms"]
    for name, bound in (("least_ms", min), ("most_ms", max)):
        figures[name] = {each: 1e3 * bound(seconds) for each, seconds in times.items()}
    return figures


class _Mode:
    """A collection in one mode, with all rows in slots where it has any."""

    def __init__(self, mode, cardinalities, dim, rule, options):
        tables = [TableConfig(f"t{number}", rows, dim) for number, rows in enumerate(cardinalities)]
        rows, self.ahead, self.planned = sum(cardinalities), 0, 0
        self.device = None if mode in ("resident", "near_memory") else hotrow.open(
            "cpu", slots=rows)
        self.collection = HotEmbeddingBagCollection(
            tables, mode=mode, device=self.device, optimizer=rule.name, lr=rule.lr,
            options=Options(seed=options.seed, workers=0))
        if self.device is not None:
            self.ahead = AHEAD
            self.collection.learn({each.name: range(each.num_embeddings) for each in tables},
                                  limit=rows)

    def step(self, batches, number):
        while self.ahead and self.planned <= min(number + self.ahead, len(batches) - 1):
            self.collection.prefetch(batches[self.planned])
            self.planned += 1
        cpu_peers.backward(self.collection(batches[number]))
        self.collection.optimizer.step()

    def end(self):
        """Leave the batches that were planned for a further step."""
        for _ in range(self.planned and self.ahead):
            self.collection.skip()
        self.planned = 0

    def close(self):
        self.collection.close()
        if self.device is not None:
            self.device.close()


class _Beside:
    """A peer, at the same batches."""

    def __init__(self, peer):
        self._peer = peer

    def step(self, batches, number):
        self._peer.step(batches[number])

    def end(self):
        """Nothing is left."""

    close = end


def _contenders(cardinalities, dim, rule, options):
    return {**{mode: _Mode(mode, cardinalities, dim, rule, options) for mode in options.modes},
            **{name: _Beside(peer)
               for name, peer in cpu_peers.peers(cardinalities, dim, rule).items()}}


def _plot(found, folder):
    """Write cpu.svg: each mode over FBGEMM, or else over the sparse bag, by batch."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    panels = list(dict.fromkeys((cell["optimizer"], cell["bag"]) for cell in found))
    peer = "fbgemm" if "fbgemm_ms" in found[0] else "embedding_bag"
    figure = Figure((4 * len(panels), 4), layout="tight")
    for at, (optimizer, bag) in enumerate(panels):
        axes = figure.add_subplot(1, len(panels), at + 1)
        lines: dict = {}
        for cell in found:
            if (cell["optimizer"], cell["bag"]) == (optimizer, bag):
                for mode in MODES:
                    if f"{mode}_over_{peer}" in cell:
                        name = f"{mode}, dim {cell['dim']}, {cell['caches']}"
                        lines.setdefault(name, []).append(
                            (str(cell["batch"]), cell[f"{mode}_over_{peer}"]))
        for name, points in lines.items():
            axes.plot(*zip(*points, strict=True), "o-" if name.endswith("warm") else "o--",
                      label=name, markersize=3)
        axes.axhline(1, color="grey")
        axes.set(title=f"{optimizer}, {bag} ids a bag", xlabel="samples of a batch",
                 ylabel=f"time over {peer.replace('_', ' ')}'s")
    axes.legend(fontsize="x-small")
    folder.mkdir(parents=True, exist_ok=True)
    FigureCanvasSVG(figure).print_svg(folder / "cpu.svg", metadata={"Date": None})
