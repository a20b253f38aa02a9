"""How fast a card plans batches, by its own cycle counter, beside this machine's CPU.

Batch b is planned once the batches up to b + FUTURE are marked and those up to b - PAST - 1 are
retired. Commands are queued back to back: while the card marks a batch the host takes up the plan
before, retires, and puts the next plan behind. The CPU does the same, each step at the best of
several rounds. The card's cycles are simulated: its rate is projected to a clock.
"""

import sys
import time
from dataclasses import replace
from functools import partial

import numpy as np
from hotrow_rtl.config import Config
from hotrow_rtl.config import preset as preset_config

from ..errors import Error
from . import lookups, plan_native
from .cpu_work import LARGEST_TOTAL
from .options import device_of
from .plan_cpu import NumpyPlanner, Planned, TorchPlanner, check, retired_by, steps_of

ROUNDS = 3
PLANNER_LANES = 0.5  # of the card's lanes
RESULT_BYTES = 4, 12, 12  # of PLAN's lists: per lookup, per row to be fetched and written back
COUNTED = ("lfu", "freq")  # policies that go by the access counters


def plan(options, trace, steps) -> dict:
    """Measure the card, then the CPU.

    Raises
    ------
    Error
        If the trace or the geometry does not fit, or the window is longer than the card's.
    """
    if trace.rows > LARGEST_TOTAL:
        raise Error(f"trace {trace.name} has {trace.rows} rows: the arrays of the CPU are for at "
                    f"most {LARGEST_TOTAL}")
    config, (past, future) = planner_of(options), options.window
    if past + future + 2 > config.sweep_batches:  # the last is marked before the first is retired
        raise Error(f"--window {past},{future} is too long: both together may be up to "
                    f"{config.sweep_batches - 2}, as this card follows {config.sweep_batches} "
                    f"batches")
    count = lookups.batch_count(trace, options.batch, options.lookups)
    steps.begin("making batches")
    taken = [trace.batch(number, options.batch) for number in range(count)]
    workload = lookups.load(trace, taken)
    first = np.r_[0, np.cumsum(trace.cardinalities)]
    rows = [first[samples.lookup_columns] + samples.ids.ravel() for samples in taken]

    card, planned = _card(options, config, workload, first, steps)
    steps.begin("checking the plans")
    sound, counts = check(rows, planned, config.slots, past, future, trace.rows)
    agrees = sound and counts["held_evictions"] == 0
    seconds, baselines = {}, {}
    for name, make in _cpu_planners().items():
        make = partial(make, trace.rows, config.slots, max(map(len, rows)))
        seconds[name] = _seconds(make, rows, past, future, steps.begin(name, ROUNDS))
        agreed, baselines[name] = _check_cpu(make, rows, config.slots, past, future, trace.rows)
        agrees &= agreed
    clock = options.clock_mhz or config.clock_mhz
    projected = card["lookups_per_cycle"] * clock * 1e6
    rates = {name: card["lookups"] / least for name, least in seconds.items()}
    moved = options.row_bytes * (counts["fills"] + counts["evictions"] + counts["bypasses"])
    return card | counts | {
        "bypassed_share": counts["bypasses"] / counts["unique"],
        "agrees": agrees,
        "row_bytes": options.row_bytes,
        "link_bytes": moved,
        "link_bytes_per_lookup": moved / workload.lookups,
        "clock_mhz": clock, "clock_is": "given" if options.clock_mhz else "assumed",
        "lookups_per_s_projected": projected,
        "link_bytes_per_s_projected": moved / card["cycles"] * clock * 1e6,
        "cpu_lookups_per_s": rates,
        "ratio": {name: projected / rate for name, rate in rates.items()},
        "baselines": [{"planner": name} | found for name, found in baselines.items()],
    }


def planner_of(options) -> Config:
    """The preset with a planner, and with so many slots.

    Raises
    ------
    Error
        If there is no such geometry.
    """
    config = replace(preset_config(options.preset), planner=True)
    if options.slots is None:
        return config
    sets, rest = divmod(options.slots, config.directory_choices * config.directory_ways)
    try:
        if rest or not sets:
            raise ValueError(f"a set of either choice has {config.directory_ways}")
        return replace(config, name=f"{config.name}-{options.slots}-slots", directory_sets=sets,
                       directory_partitions=max(1, min(config.directory_partitions,
                                                       sets // config.banks)))
    except ValueError as refusal:
        raise Error(f"--slots {options.slots}: {refusal}") from None


def _card(options, config, workload, first, steps):
    """Figures of the card, and its plans as `Planned`."""
    past, future = options.window
    with device_of(options, config=config) as device:
        workload.register(device)
        advance = steps.begin("PLAN", len(workload.batches))
        marks, plans = _run(device, workload.batches, options.policy, past, future, advance)
        geometry = device.geometry
        served = sum(each.lookups for each in marks + plans)
        # In order: what a command took of the time is by what it ended later than the one before.
        ends = sorted((each.end, kind, each.lookups) for kind, results in enumerate((marks, plans))
                      for each in results)
        before = min(each.end - each.cycles for each in marks + plans)
        cycles = ends[-1][0] - before
        took = [0, 0]
        for end, kind, _ in ends:
            took[kind], before = took[kind] + end - before, end
        rate, lanes = served / cycles, PLANNER_LANES * geometry.lanes
        written = np.dot(RESULT_BYTES, [
            workload.lookups, sum(len(each.fills) for each in plans),
            sum(len(each.evictions) for each in plans)])
        figures = {
            "policy": options.policy, "past": past, "future": future, "slots": geometry.slots,
            "lanes": geometry.lanes, "bus_bytes": geometry.bus_bytes, "batches": len(plans),
            "lookups": served, "cycles": cycles, "lookups_per_cycle": rate,
            "fraction_of_lanes": rate / lanes,
            "plan_lookups_per_cycle": sum(each.lookups for each in plans) / took[1],
            "mark_lookups_per_cycle": sum(each.lookups for each in marks) / took[0],
            "bytes_written": int(written),
            "lookup_hits": sum(each.hits for each in plans),
            "waits": sum(each.wait_for is not None for each in plans),
        }
    return figures, [Planned(
        each.slots.astype(np.int64),
        first[each.fills.table] + each.fills.row,
        first[each.evictions.table] + each.evictions.row) for each in plans]


def _run(device, batches, policy, past, future, advance):
    """Mark and plan all batches; the results of both kinds, in order."""
    marks, plans, waiting = [], [], None
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


def _cpu_planners():
    """Planners of this machine by name."""
    planners = {"numpy": NumpyPlanner, "torch": TorchPlanner}
    compiler = plan_native.find_compiler()
    if compiler is None:
        print("no C++ compiler: without the planner of C++ (install g++, or set CXX)",
              file=sys.stderr)
        return planners
    return planners | {"c++": partial(plan_native.NativePlanner, plan_native.load(compiler))}


def _seconds(make, rows, past, future, advance):
    """Least time of every step, added up."""
    wanted = steps_of(len(rows), future)
    converted = _converted(make, rows)
    least = np.full(len(wanted), np.inf)
    for _ in range(ROUNDS):
        planner = make()
        for at, (step, batch) in enumerate(wanted):
            started = time.perf_counter()
            if step == "mark":
                planner.mark(converted[batch], batch)
            else:
                planner.plan(converted[batch], batch, retired_by(batch, past))
            least[at] = min(least[at], time.perf_counter() - started)
        advance()
    return float(least.sum())


def _check_cpu(make, rows, slots, past, future, total):
    """Whether a planner of this machine plans soundly, and what its plans add up to."""
    planner, converted, planned = make(), _converted(make, rows), []
    for step, batch in steps_of(len(rows), future):
        if step == "mark":
            planner.mark(converted[batch], batch)
        else:
            found = planner.plan(converted[batch], batch, retired_by(batch, past))
            planned.append(Planned(*(np.asarray(each).copy() for each in (
                found.slots, found.fills, found.evicted))))
    sound, counts = check(rows, planned, slots, past, future, total)
    return sound and counts["held_evictions"] == 0, counts


def _converted(make, rows):
    """The batches as the planner takes them."""
    if make.func is not TorchPlanner:
        return rows
    import torch

    return [torch.from_numpy(each) for each in rows]
