"""`hotrow bench end-to-end`: simulated cycles, link and trainer on one projected clock.

Every batch of a trace runs through the card (SPLIT, or PLAN and MARK), which also gathers and
scatters as many rows as the batch needs; these are random rows of a table of their own. The cycles
of the card at its preset's clock, the bytes at the link's rate and the trainer's time meet in the
schedule of the training pipeline (`virtual_clock`), once with the card and once with the host's
cores in its place. Lookups and moves are measured apart: they do not compete for memory.
"""

import json
import sys
from argparse import ArgumentTypeError, Namespace
from dataclasses import replace
from pathlib import Path

import numpy as np
from hotrow.command import options as shared
from hotrow.command.limits import check_batch, check_writable
from hotrow.command.options import names, natural, positive, rate
from hotrow.command.terminal import Steps, print_json, show
from hotrow.contract.geometry import preset as preset_of
from hotrow.traces import Samples, open_trace
from hotrow.traces.synthetic import SyntheticTrace, ranks

from . import cards, constants, headlines, systems, workloads
from .card_cycles import measure
from .placements import PLACEMENTS, Question
from .systems import ExploreError
from .virtual_clock import DEPTH, WARM_UP, BatchTimes, Schedule

LABELS = {"sim": "simulated cycles, projected clock",
          "model": "cycles by formula, projected clock"}
MODES = ("hotline", "scratchpipe", "freqcache", "resident-host")
TRAINER, LINK = "a100", "pcie4x16"
LINKS = {"gbe": 0.12, "pcie3x4": 3.2, "pcie3x16": 12.0, "pcie4x16": 24.0, "pcie5x16": 50.0}


def end_to_end(benchmarks):
    """Add `end-to-end` to the benchmarks of `hotrow bench`."""
    parser = benchmarks.add_parser(
        "end-to-end", help="a training step with and without the card, on a virtual clock",
        description="Measure the card's cycles on every batch, and place them with the link and "
        "the trainer in the pipeline's schedule. Simulated cycles, projected clock.")
    add = parser.add_argument
    shared.add_preset(parser, "alveo-u55c")
    add("--transport", default="sim", choices=("sim", "model"),
        help="sim, the Verilated card, or model, whose cycles are formulas")
    add("--modes", type=names, default=MODES, help="of " + ", ".join(MODES))
    add("--workload", help="tables, lookups and MLPs: one of " + ", ".join(workloads.load())
        + "; default criteo-kaggle")
    shared.add_trace(parser)
    shared.add_batch_size(parser, otherwise="; default the workload's, 1024 of a trace")
    add("--dim", type=positive, help="elements of an embedding; default the workload's")
    add("--link", type=link, default=LINK, metavar="LINK",
        help="host to trainer: one of " + ", ".join(LINKS) + ", or GB/s")
    add("--trainer", default=TRAINER, help="one of " + ", ".join(systems.load()) + ", or a JSON "
        "file with the measured step_ms of a batch whose rows are all present")
    add("--slots", type=positive, help="rows at the trainer; default the card's directory")
    add("--batches", type=positive, default=20,
        help=f"of the run; the first {WARM_UP} and the last {DEPTH} are not timed")
    add("--learning", type=positive, default=10, help="batches that are counted first")
    add("--seed", type=natural, default=0, help="of generated data")
    add("--timeline", type=Path, metavar="FILE", help="write the schedule as a trace for "
        "ui.perfetto.dev; with several modes one file per mode")
    add("--published", type=names, metavar="NAMES", help="only compare with published results, in "
        "their settings: all, or names of `hotrow explore --validate --json`")
    shared.add_json(parser)
    parser.set_defaults(run=run)


def link(text):
    """GB/s of a link, by name or as a number."""
    try:
        return LINKS[text] if text in LINKS else rate(text)
    except ArgumentTypeError:
        raise ArgumentTypeError(f"expected one of {', '.join(LINKS)}, or GB/s as a number, not "
                                f"{text!r}") from None


def run(options) -> int:
    """Measure, then print tables or one JSON object.

    Raises
    ------
    Error
        The trace, the trainer or a mode does not fit.
    """
    with Steps() as steps:
        result = (published(options, steps) if options.published
                  else project(question_of(options), options, steps))
    if options.json:
        print_json(result)
        return 0
    records = result.get("modes", [result])
    files = [each.pop("timeline", None) for each in records]
    show(result, "hotrow bench end-to-end")
    print(LABELS[options.transport], *(
        f"timeline of {each['mode']}: {path}" for each, path in zip(records, files, strict=True)
        if path), sep="\n", file=sys.stderr)
    return 0


def published(options, steps) -> dict:
    """Published results beside the schedule of their settings.

    Raises
    ------
    ExploreError
    """
    alone = {"workload": None, "trace": None, "batch_size": None, "dim": None, "slots": None,
             "timeline": None, "modes": MODES, "trainer": TRAINER, "link": LINKS[LINK]}
    given = [f"--{name.replace('_', '-')}" for name, default in alone.items()
             if getattr(options, name) != default]
    if given:
        raise ExploreError(f"--published has settings of its own: leave out {', '.join(given)}")

    def run(mode, question):
        work = question.workload
        question = replace(
            question, workload=work.changed(trace=WorkloadTrace(work, options.seed)),
            # The published baselines have no driver either.
            constants=question.constants.replaced(driver_us=0.0, driver_ns=0.0))
        named = Namespace(**vars(options) | {"trainer": question.system.name})
        check_batch(question.workload.trace, work.batch, options.preset)
        return _mode(mode, question, named, lambda: None, None)

    return {"benchmark": "end-to-end", "figures": LABELS[options.transport],
            "preset": options.preset, "transport": options.transport, "seed": options.seed,
            "batches": options.batches, "results": headlines.compare(options, run, steps)}


class WorkloadTrace(SyntheticTrace):
    """Accesses of a workload's shape, with bags of its mean length."""

    def __init__(self, work, seed):
        super().__init__(work.name, work.rows, work.slope, work.dense, seed)
        self._lengths = np.array([max(1, round(each)) for each in work.lookups], np.uint16)

    def batch(self, index, batch_size):
        if (self._lengths == 1).all():
            return super().batch(index, batch_size)
        rng = np.random.default_rng([self.seed, 1, batch_size, index])
        ids = np.concatenate([
            scramble(ranks(rng.random(batch_size * length), scramble.rows, self.slope)).reshape(
                batch_size, length) for scramble, length in
            zip(self._scrambles, self._lengths.astype(int), strict=True)], axis=1)
        lengths = np.tile(self._lengths, (batch_size, 1))
        return Samples(ids.astype(np.uint32).ravel(), lengths,
                       np.zeros((batch_size, self.dense_columns), np.float32), None)


def question_of(options) -> Question:
    """The explorer's question of these options: the same model, machine, card and hot rows.

    Raises
    ------
    ExploreError
    """
    unknown = sorted(set(options.modes) - set(MODES))
    if unknown:
        raise ExploreError(f"--modes names some of {','.join(MODES)}, not {','.join(unknown)!r}")
    if options.trace:
        if options.workload:
            raise ExploreError("give --workload or --trace, not both")
        trace = open_trace(options.trace, seed=options.seed, numbered=True,
                           **shared.columns_of(options))
        work = workloads.of_trace(trace, batch=options.batch_size or 1024)
    else:
        work = workloads.find(options.workload or "criteo-kaggle")
        work = work.changed(trace=WorkloadTrace(work, options.seed))
    changes = {"batch": options.batch_size, "dim": options.dim}
    work = work.changed(**{name: value for name, value in changes.items() if value})
    system = systems.find("a100" if _is_file(options.trainer) else options.trainer)
    if not system.gpus:
        raise ExploreError(f"--trainer {options.trainer} has no GPU")
    card = preset_of(options.preset)
    try:
        rates = cards.find(options.preset)
    except ExploreError:
        rates = None
    slots = min(options.slots or card.slots, card.slots)
    return Question(work, system.changed(link_gbps=options.link), constants.load(),
                    slots * work.row_bytes, rates, why_no_card=f"{card.name} has no rates")


def project(question, options, steps) -> dict:
    """The figures of every mode; those of a single mode at the top level."""
    work, trace = question.workload, question.workload.trace
    check_batch(trace, work.batch, options.preset)
    paths = {mode: _timeline(options, mode) for mode in options.modes if mode != "resident-host"}
    for path in filter(None, paths.values()):
        check_writable(path)
    records = []
    for mode in options.modes:
        if mode == "resident-host":
            records.append({"mode": mode, "step_ms": 1e3 * PLACEMENTS["hybrid"](question).seconds})
            continue
        advance = steps.begin(mode, options.batches)
        records.append(_mode(mode, question, options, advance, paths[mode]))
    plain = next((each["step_ms"] for each in records if each["mode"] == "resident-host"), None)
    for each in records:
        if plain and each["mode"] != "resident-host":
            each["speedup_over_resident_host"] = plain / each["step_ms"]
    card = preset_of(options.preset)
    return {
        "benchmark": "end-to-end", "figures": LABELS[options.transport], "preset": options.preset,
        "transport": options.transport, "workload": work.name, "batch": work.batch,
        "dim": work.dim, "trainer": options.trainer, "link_gbps": options.link,
        "clock_mhz": card.clock_mhz, "slots": int(question.hot_rows),
        "batches": options.batches, "seed": options.seed,
        **(records[0] if len(records) == 1 else {"modes": records})}


def _timeline(options, mode):
    """The file of a mode's timeline, or None."""
    path = options.timeline
    return path if path is None or len(options.modes) == 1 else path.with_name(
        f"{path.stem}-{mode}{path.suffix}")


def _mode(mode, question, options, advance, path):
    """Run the batches through the card; the figures of a mode."""
    work = question.workload
    taken = list(work.trace.batches(work.batch, options.learning + options.batches))
    measured = measure(mode, question, options, taken, advance)
    return _figures(mode, question, options, measured, path)


def _figures(mode, question, options, measured, path):
    hotline, work = mode == "hotline", question.workload
    clock = 1e6 * preset_of(options.preset).clock_mhz
    train = _trainer(question, options.trainer, hotline)
    lookups = work.step_lookups
    drive = constants.driver_seconds(lookups, question.constants)

    def times(batch, plan, gather, scatter):
        popular, rest = train(batch)
        return BatchTimes(plan, gather, scatter, down=_link(question, batch.fetched),
                          up=_link(question, batch.returned), popular=popular, train=rest,
                          drive=drive, wait_for=batch.wait_for)

    def without_card(cores):
        here = replace(question, system=question.system.changed(cores=cores))
        plan, copy = _host_plan(here, lookups, hotline), here.machine.host_copy
        return Schedule([times(batch, plan, copy(batch.fetched), copy(batch.returned))
                         for batch in measured], hotline, shared=True)

    card = Schedule([times(batch, batch.plan / clock, batch.gather / clock, batch.scatter / clock)
                     for batch in measured], hotline)
    every = question.system.cores
    by_cores = {cores: without_card(cores) for cores in (
        *(1 << power for power in range(every.bit_length()) if 1 << power < every), every)}
    host = by_cores[every]
    if path:
        card.draw(path, f"{mode} on {options.preset}: {LABELS[options.transport]}")
    count = len(measured)
    figures = {
        "mode": mode, "step_ms": 1e3 * card.step_seconds,
        "step_ms_without_card": 1e3 * host.step_seconds,
        "speedup": host.step_seconds / card.step_seconds, "host_ms": 1e3 * drive,
        "cores_replaced": next((cores for cores, schedule in by_cores.items()
                                if schedule.step_seconds <= 1.005 * card.step_seconds), None),
        "step_ms_by_free_cores": {str(cores): 1e3 * schedule.step_seconds
                                  for cores, schedule in by_cores.items()},
        "trainer_ms": 1e3 * sum(sum(train(each)) for each in measured) / count,
        "gather_hidden": card.hidden("gather", "down", "up", "write_back"),
        "plan_hidden": card.hidden("plan"), "stalls": card.stalls(),
        "stalls_without_card": host.stalls(),
        "hit_rate": sum(each.hits for each in measured) / sum(
            each.lookups for each in measured),
        "popular_fraction": sum(each.popular for each in measured) / count if hotline else None,
        "rows_fetched": sum(each.fetched for each in measured) / count,
        "plan_cycles": sum(each.plan for each in measured) / count,
        "gather_cycles": sum(each.gather for each in measured) / count,
        "scatter_cycles": sum(each.scatter for each in measured) / count,
        "timeline": str(path) if path else None,
    }
    placement = "scratchpipe" if mode == "freqcache" else mode
    if isinstance(work.trace, WorkloadTrace):  # the explorer counts on the law itself
        question = replace(question, workload=work.changed(trace=None))
    try:
        figures["explore_ms"] = 1e3 * PLACEMENTS[placement](question).seconds
        figures["over_explore"] = figures["step_ms"] / figures["explore_ms"]
    except ExploreError:  # the card has no rates, or its slots do not hold the window
        figures["explore_ms"] = figures["over_explore"] = None
    return figures


def _link(question, rows):
    return question.machine.link(rows * question.workload.row_bytes) if rows else 0.0


def _host_plan(question, lookups, hotline):
    """The host's cores in place of SPLIT, one access to a hash table per lookup, or of MARK and
    PLAN, at the rate of the compiled engine."""
    machine, c = question.machine, question.constants
    nanoseconds = c.core_copy_ns if hotline else c.engine_plan_ns
    return 1e-9 * lookups * nanoseconds / machine.cores(c.row_parallel)


def _trainer(question, name, hotline):
    """Seconds of (popular samples, others) of a step, by what the card measured of the batch."""
    m, c, lookups = question.machine, question.constants, question.workload.step_lookups
    if _is_file(name):
        seconds = _measured_seconds(name, question.workload.batch)
        return lambda batch: (batch.popular * seconds, (1 - batch.popular) * seconds)

    def part(share, launches):
        return sum((m.gpu_dense(share, launches)
                    | m.gpu_embedding(share * lookups)).values()) if share else 0.0

    def times(batch):
        inputs, share = sum(m.inputs().values()), batch.popular
        hot = batch.hits / batch.lookups if hotline else 1.0
        end = sum((m.all_reduce() | m.replicas(hot)).values())
        if not hotline:
            return 0.0, inputs + part(1.0, 1.0) + end
        launches = (1 + c.split_ops) / 2 if 0 < share < 1 else 1.0
        return inputs + part(share, launches), part(1 - share, launches) + end
    return times


def _is_file(name):
    return name.endswith(".json")


def _measured_seconds(path, batch):
    try:
        found = json.loads(Path(path).read_text())
        seconds, size = float(found["step_ms"]) / 1e3, int(found.get("batch", batch))
    except (ValueError, KeyError, TypeError, AttributeError) as wrong:
        raise ExploreError(f"{path}: expected a JSON object with step_ms, and batch if it is not "
                           f"{batch}, not {wrong!r}") from None
    return seconds * batch / size
