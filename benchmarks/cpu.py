"""The work of the card's lookup side on this machine's CPU, compared with the card.

Both get the same batches and hot rows, and must return the same results. For each step the fastest
of several variants in NumPy and PyTorch counts, at the best of several rounds. The card's cycles
are simulated, and its rate is projected to a clock.
"""

import os
import time

import numpy as np
from hotrow.bench import lookups
from hotrow.bench.options import device_of
from hotrow.contract.errors import Error

from . import cpu_numpy
from .cpu_work import LARGEST_TOTAL, SPLIT, STEPS, prepare

ROUNDS = 7


def best_seconds(works, advance=lambda: None):
    """The least time of several functions, over `ROUNDS` rounds of all of them.

    Parameters
    ----------
    works : list of (function, arguments)
        The function is called with each argument. The least time of each call counts, which
        excludes most of the time of other processes.

    Returns
    -------
    float64[works]
    """
    least = [np.full(len(arguments), np.inf) for _, arguments in works]
    for _ in range(ROUNDS):
        for (function, arguments), best in zip(works, least, strict=True):
            for at, argument in enumerate(arguments):
                started = time.perf_counter()
                function(argument)
                best[at] = min(best[at], time.perf_counter() - started)
            advance()
    return np.array([best.sum() for best in least])


def cpu(options, trace, steps) -> dict:
    """Measure the card, then the CPU."""
    if trace.rows > LARGEST_TOTAL:
        raise Error(f"trace {trace.name} has {trace.rows} rows: the CPU's arrays take at most "
                    f"{LARGEST_TOTAL}")
    count = lookups.batch_count(trace, options.batch, options.lookups)
    steps.begin("making batches")
    taken = [trace.batch(number, options.batch) for number in range(count)]
    workload = lookups.load(trace, taken)
    card, hot, found = _card(options, workload, steps)

    steps.begin("preparing the CPU's arrays")
    work = prepare(trace.cardinalities, hot, taken)
    threads = options.threads or os.cpu_count()
    records = _measure(work, workload.lookups, threads, steps)
    rates = _rates(records)
    ratio = {name: {where: card[name]["lookups_per_s_projected"] / rate
                    for where, rate in rates[name].items()} for name in rates}
    return {"threads": threads, "rounds": ROUNDS, "batches": count, "lookups": workload.lookups,
            "table_rows": trace.rows, "hot_rows": len(hot), "agrees": _found(work) == found,
            "card": card, "cpu": rates, "ratio": ratio, "steps": records}


def _card(options, workload, steps):
    """Figures of OBSERVE and SPLIT, the rows with slots, and the hits and popular samples."""
    with device_of(options) as device:
        workload.register(device)
        counted = lookups.observe(device, workload, steps.begin("OBSERVE", len(workload.batches)))
        device.clear_counters()
        steps.begin("learning hot rows")
        hot = lookups.learn(device, workload, options.hot_rows)
        parted = lookups.split(device, workload, hot,
                               steps.begin("SPLIT", len(workload.batches)))
        assumed = device.geometry.clock_mhz
    clock = options.clock_mhz or assumed
    shown = ("lanes", "cycles", "lookups_per_cycle")
    return {"clock_mhz": clock, "clock_is": "given" if options.clock_mhz else "assumed"} | {
        name: {key: figures[key] for key in shown}
        | {"lookups_per_s_projected": figures["lookups_per_cycle"] * clock * 1e6}
        for name, figures in (("observe", counted), ("split", parted))
    }, hot, (parted["hits"], round(parted["popular_fraction"] * workload.samples))


def _found(work):
    """Hits and popular samples, by NumPy."""
    partition = cpu_numpy.variants(work)["partition"]["marks"]
    return (sum(int((cut.slots >= 0).sum()) for cut in work.cuts),
            sum(len(partition(cut)[0]) for cut in work.cuts))


def _measure(work, total, threads, steps):
    """A record per step and library: the fastest variant, and the fastest on one core."""
    import torch

    from . import cpu_torch

    converted = cpu_torch.tensors(work)
    libraries = {"numpy": (cpu_numpy.variants(work), work.cuts),
                 "torch": (cpu_torch.variants(converted), converted.cuts)}
    tried = [(step, library, name, function, cuts)
             for step in STEPS for library, (variants, cuts) in libraries.items()
             for name, function in variants[step].items()]

    works = [(function, cuts) for *_, function, cuts in tried]
    before, rates = torch.get_num_threads(), {}
    settings = sorted({1, threads})
    advance = steps.begin("CPU", ROUNDS * len(works) * len(settings))
    try:
        for setting in settings:
            torch.set_num_threads(setting)
            rates[setting] = total / best_seconds(works, advance)
    finally:
        torch.set_num_threads(before)
    core, machine = rates[1], np.maximum.reduce(list(rates.values()))

    records = []
    for step in STEPS:
        for library in libraries:
            here = [at for at, entry in enumerate(tried) if entry[:2] == (step, library)]
            record: dict = {"step": step, "library": library}
            for rate, suffix in ((machine, ""), (core, "_core")):
                best = max(here, key=rate.__getitem__)
                record |= {f"variant{suffix}": tried[best][2],
                           f"lookups_per_s{suffix}": float(rate[best])}
            record["tried"] = {tried[at][2]: float(machine[at]) for at in here}
            records.append(record)
    return records


def _rates(records):
    """Lookups per second of the work of OBSERVE and of SPLIT, each step by the faster library."""
    def rate(wanted, key):
        return 1 / sum(1 / max(record[key] for record in records if record["step"] == step)
                       for step in wanted)

    return {name: {"core": rate(wanted, "lookups_per_s_core"),
                   "machine": rate(wanted, "lookups_per_s")}
            for name, wanted in (("observe", ("count",)), ("split", SPLIT))}
