"""Rate at which a card plans batches, by its cycle counter, compared with this machine's CPU.

Batch b is planned once the batches up to b + FUTURE are marked and those up to b - PAST - 1 are
retired. Commands are queued back to back: while the card marks a batch the host reads the previous
plan, retires, and queues the next plan. The CPU runs the same steps; the best of several rounds
counts. The card's cycles are simulated, and its rate is projected to a clock. The card in software,
transport `cpu`, is measured like the other planners of the machine, in the same run.
"""

import time
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from hotrow.bench import lookups
from hotrow.bench.options import device_of, engine_threads
from hotrow.contract.errors import Error
from hotrow.contract.geometry import Preset
from hotrow.contract.geometry import preset as preset_of

from . import plan_native
from .options import sets_of
from .plan_check import Planned, check, retired_by, steps_of

ROUNDS = 3
LARGEST_TOTAL = 2**28  # rows of all tables: the planner of the CPU keeps an array over them
PLANNER_LANES = 0.5  # of the card's lanes, at least one
RESULT_BYTES = 4, 12, 12  # of PLAN's lists: per lookup, per row to be fetched and written back
COUNTED = ("lfu", "freq")  # policies that read the access counters
# Payload bytes per second of a link in one direction.
LINKS = {"gigabit ethernet": 0.12e9, "pcie gen2 x4": 1.73e9, "pcie gen3 x16": 14.4e9,
         "pcie gen4 x16": 28.8e9}


def plan(options, trace, steps) -> dict:
    """Measure the card, then the CPU.

    Raises
    ------
    Error
        The trace or the geometry does not fit, or the window is longer than the card's.
    """
    if trace.rows > LARGEST_TOTAL:
        raise Error(f"trace {trace.name} has {trace.rows} rows: the CPU's arrays take at most "
                    f"{LARGEST_TOTAL}")
    config, (past, future) = planner_of(options), options.window
    if past + future + 2 > config.plan_window:  # the last is marked before the first is retired
        raise Error(f"--window {past},{future} is too long: both together may be up to "
                    f"{config.plan_window - 2}, as this card follows {config.plan_window} "
                    f"batches")
    steps.begin("making batches")
    batch, taken, rows = _batches(options, trace, config.slots)
    workload, first = lookups.load(trace, taken), _first_rows(trace)
    window_rows = _most_rows(rows, past + 1 + future)

    card, planned = _card(options, config, workload, first, steps)
    steps.begin("checking the plans")
    sound, counts = check(rows, planned, config.slots, past, future, trace.rows)
    agrees = sound and counts["held_evictions"] == 0
    make = partial(plan_native.NativePlanner, plan_native.load(), trace.rows, config.slots,
                   max(map(len, rows)))
    seconds = _seconds(make, rows, past, future, steps.begin("c++", ROUNDS))
    agreed, baseline = _check_cpu(make, rows, config.slots, past, future, trace.rows)
    agrees &= agreed
    compared = ({} if engine_threads(options)
                else _projected(options, config, workload, card, counts))
    rate = compared.get("lookups_per_s_projected") or card["lookups_per_s"]
    cpu_rate = card["lookups"] / seconds
    return card | counts | {
        "batch": batch, "window_rows": window_rows, "room": config.slots / window_rows,
        "bypassed_share": counts["bypasses"] / counts["unique"],
        "agrees": agrees,
    } | compared | {"cpu_lookups_per_s": cpu_rate, "over_cpp": rate / cpu_rate,
                    "baseline": baseline}


def _projected(options, config, workload, card, counts):
    """Rates of a card with a clock, and of the links to it."""
    clock = options.clock_mhz or config.clock_mhz
    projected = card["lookups_per_cycle"] * clock * 1e6
    filled, left = (options.row_bytes * number for number in (
        counts["fills"], counts["evictions"] + counts["bypasses"]))
    busier = max(filled, left) / workload.lookups  # of the two directions of a link
    return {
        "slot_bits": config.slot_bits,
        "row_bytes": options.row_bytes,
        "link_bytes": filled + left,
        "link_bytes_per_lookup": (filled + left) / workload.lookups,
        "clock_mhz": clock, "clock_is": "given" if options.clock_mhz else "assumed",
        "lookups_per_s_projected": projected,
        "link_bytes_per_s_projected": (filled + left) / card["cycles"] * clock * 1e6,
        "link_lookups_per_s_projected": {
            name: carried / busier for name, carried in LINKS.items()} if busier else {},
    }


def planner_of(options) -> Preset:
    """The preset with the given slots and counters.

    Raises
    ------
    Error
        There is no such geometry.
    """
    config = preset_of(options.preset)
    name = config.name
    changed: dict = {}
    if options.counters is not None:
        name += f"-counters-{options.counters}"
        changed["counter_sets"] = sets_of(
            f"--counters {options.counters}", options.counters, config.counter_ways)
    if options.slots is not None:
        name += f"-slots-{options.slots}"
        sets = sets_of(f"--slots {options.slots}", options.slots,
                       config.directory_choices * config.directory_ways)
        parts = min(config.directory_partitions, max(1, sets // config.banks))
        changed |= {"directory_sets": sets, "directory_partitions": parts}
    return replace(config, name=name, **changed)


def _batches(options, trace, slots):
    """Samples of a batch, and the batches: samples, and rows numbered over all tables.

    `--room` reduces the samples from `--batch` until that many slots per row of a window remain.
    """
    def made(size):
        taken = [trace.batch(number, size) for number in range(
            lookups.batch_count(trace, size, options.lookups))]
        return taken, [_first_rows(trace)[samples.lookup_columns] + samples.ids.ravel()
                       for samples in taken]

    def fits(size):
        return slots >= options.room * _most_rows(made(size)[1], sum(options.window) + 1)

    size = options.batch
    if options.room and not fits(size):
        least = 1
        if not fits(least):
            raise Error(f"--room {options.room}: not even batches of one sample leave that many of "
                        f"{slots} slots; take more --slots")
        while size - least > 1:
            middle = (least + size) // 2
            least, size = (middle, size) if fits(middle) else (least, middle)
        size = least
    return size, *made(size)


def _first_rows(trace):
    return np.r_[0, np.cumsum(trace.cardinalities)]


def _most_rows(rows, window):
    """Most distinct rows of a window of consecutive batches."""
    unique = [np.unique(each) for each in rows]
    return max(len(np.unique(np.concatenate(unique[at:at + window])))
               for at in range(max(1, len(unique) - window + 1)))


def _card(options, config, workload, first, steps):
    """Figures of the card, and its plans as `Planned`."""
    past, future = options.window
    threads, least = engine_threads(options), np.full((2, 1), np.inf)
    for _ in range(ROUNDS if threads else 1):
        with device_of(options, config=config) as device:
            workload.register(device)
            advance = steps.begin("PLAN", len(workload.batches))
            marks, plans = _run(device, workload.batches, options.policy, past, future, advance)
            geometry = device.geometry
            if threads:
                least = np.minimum(least, [lookups.engine_seconds(device, results)
                                           for results in (marks, plans)])
    served = sum(each.lookups for each in marks + plans)
    written = np.dot(RESULT_BYTES, [
        workload.lookups, sum(len(each.fills) for each in plans),
        sum(len(each.evictions) for each in plans)])
    figures = {
        "policy": options.policy, "past": past, "future": future, "slots": geometry.slots,
        "batches": len(plans), "lookups": served, "bytes_written": int(written),
        "lookup_hits": sum(each.hits for each in plans),
        "waits": sum(each.wait_for is not None for each in plans),
    }
    if threads:
        figures |= lookups.engine_rate(served, float(np.sum(least)), threads) | {
            f"{name}_lookups_per_s": sum(each.lookups for each in results) / float(np.sum(took))
            for name, results, took in zip(("mark", "plan"), (marks, plans), least, strict=True)}
    else:
        figures |= _cycles(geometry, marks, plans, served)
    return figures, [Planned(
        each.slots.astype(np.int64),
        first[each.fills.table] + each.fills.row,
        first[each.evictions.table] + each.evictions.row) for each in plans]


def _cycles(geometry, marks, plans, served):
    """Rates in cycles. In order of their ends, a command takes the time since the end of the
    previous one."""
    ends = sorted((each.end, kind, each.lookups) for kind, results in enumerate((marks, plans))
                  for each in results)
    before = min(each.end - each.cycles for each in marks + plans)
    cycles = ends[-1][0] - before
    took = [0, 0]
    for end, kind, _ in ends:
        took[kind], before = took[kind] + end - before, end
    rate, lanes = served / cycles, max(1, PLANNER_LANES * geometry.lanes)
    return {
        "lanes": geometry.lanes, "bus_bytes": geometry.bus_bytes, "cycles": cycles,
        "lookups_per_cycle": rate, "fraction_of_lanes": rate / lanes,
        "plan_lookups_per_cycle": sum(each.lookups for each in plans) / took[1],
        "mark_lookups_per_cycle": sum(each.lookups for each in marks) / took[0],
    }


def _run(device, batches, policy, past, future, advance):
    """Mark and plan all batches; the results of both kinds, in order."""
    marks, plans = [], []
    waiting: Any = None
    for step, number in steps_of(len(batches), future):
        if step == "mark":
            marks.append(device.mark_async(batches[number], number))
            continue
        if waiting:
            plans.append(waiting.result())
            advance()
        if number > past:
            device.retire(number - past - 1)
        waiting = device.plan_async(batches[number], number, policy,
                                    observe=policy in COUNTED)
    plans.append(waiting.result())
    advance()
    return [future.result() for future in marks], plans


def _seconds(make, rows, past, future, advance):
    """Sum of the least time of every step."""
    wanted = steps_of(len(rows), future)
    least = np.full(len(wanted), np.inf)
    for _ in range(ROUNDS):
        planner = make()
        for at, (step, batch) in enumerate(wanted):
            started = time.perf_counter()
            if step == "mark":
                planner.mark(rows[batch], batch)
            else:
                planner.plan(rows[batch], batch, retired_by(batch, past))
            least[at] = min(least[at], time.perf_counter() - started)
        advance()
    return float(least.sum())


def _check_cpu(make, rows, slots, past, future, total):
    """Whether the plans of a planner of this machine hold, and their counts."""
    planner, planned = make(), []
    for step, batch in steps_of(len(rows), future):
        if step == "mark":
            planner.mark(rows[batch], batch)
        else:
            found = planner.plan(rows[batch], batch, retired_by(batch, past))
            planned.append(Planned(found.slots.copy(), found.fills.copy(), found.evicted.copy()))
    sound, counts = check(rows, planned, slots, past, future, total)
    return sound and counts["held_evictions"] == 0, counts
