"""`hotrow explore`: the fastest placement for a model on a machine, and the validation."""

import argparse
import os
import sys
from pathlib import Path

from hotrow.command import options as shared
from hotrow.command.limits import check_folder
from hotrow.command.options import natural, positive
from hotrow.command.terminal import console, print_json

from . import cards, constants, sweeps, systems, validate, workloads
from .choices import least_memory
from .placements import FRAMEWORKS, Question

MB = 2**20
OUTPUT = Path("hotrow-explore")
# Answers of their own: the option, and the other options that they read.
_ONLY = {"measure_card": ("--measure-card", ("card",)),
         "validate": ("--validate", ("output", "json")),
         "verdict_map": ("--map", ("card", "framework", "output", "json"))}


def explore(subparsers):
    """Add `hotrow explore`."""
    parser = subparsers.add_parser(
        "explore", help="project which placement of the tables trains a model fastest",
        description="Project the time of a training step for every placement of the embedding "
        "tables, sweep one parameter at a time, and report whether a card would help. All figures "
        "are projections of a model; --validate compares it with published results.")
    what = parser.add_argument_group("the model")
    what.add_argument("--workload", help="one of " + ", ".join(workloads.load())
                      + "; default criteo-kaggle")
    shared.add_trace(what)
    shared.add_batch_size(what, otherwise="; default the workload's, 1024 of a trace")
    what.add_argument("--dim", type=positive,
                      help="elements of an embedding; default the workload's")
    what.add_argument("--mlp", type=_mlp, metavar="WIDTH^LAYERS",
                      help="width and layers of both MLPs, such as 512^3; default the workload's")
    machine = parser.add_argument_group("the machine")
    machine.add_argument("--system", default="v100", help="one of " + ", ".join(systems.load()))
    machine.add_argument("--gpus", type=natural, help="number of GPUs; default the system's")
    machine.add_argument("--card", default="alveo-u55c",
                         help="one of " + ", ".join(constants.read("cards")) + ", or none")
    machine.add_argument("--free-cores", type=positive, metavar="N", help="cores of the host that "
                         "the trainers leave free; default all")
    machine.add_argument("--hot-budget", type=shared.hot_budget, metavar="BYTES",
                         default=shared.hot_budget("256MB"),
                         help="hot rows at the trainer: bytes like 512MB, or a share of all rows "
                         "like 20%%; default 256MB")
    machine.add_argument("--framework", choices=FRAMEWORKS, default="fused",
                         help="execution of operators")
    machine.add_argument("--calibrate", action="store_true",
                         help="measure this host with PyTorch and use it as the system's")
    machine.add_argument("--check-resident", action="store_true",
                         help="with --calibrate: only compare predicted with measured steps of "
                         "mode resident at three other sizes")
    out = parser.add_argument_group("the answer")
    only = out.add_mutually_exclusive_group()
    only.add_argument("--validate", action="store_true",
                      help="only compare the model with published results")
    only.add_argument("--map", action="store_true", dest="verdict_map",
                      help="only the verdict of every workload on every system, by free cores")
    out.add_argument("-o", "--output", type=shared.output_folder, metavar="DIR",
                     help="folder for report.html, sweeps.csv and explore.json, or the "
                     "picture of --validate or --map; default hotrow-explore, of these two none")
    only.add_argument("--measure-card", action="store_true",
                      help="only measure the rates of --card again, with hotrow bench")
    shared.add_json(out)
    parser.set_defaults(run=run, parser=parser)


def run(options) -> int:
    _refuse_unread(options)
    known = constants.load()
    if options.measure_card:
        print(f"recorded in {cards.measure(options.card)}")
        return 0
    if options.validate:
        return _validate(options, known)
    if options.verdict_map:
        return _map(options, known)
    if options.check_resident and not options.calibrate:
        raise systems.ExploreError("--check-resident needs --calibrate")
    if options.check_resident:
        return _check_resident(options)
    folder = options.output or OUTPUT
    check_folder(folder)
    question, note = _question(options, known)
    result, records = _answer(question)
    result["card"] = note
    if options.calibrate:
        result["calibration"] = options.record
    _report(folder, question, result, records)
    if options.json:
        print_json(result)
    else:
        from .report import per_table

        console().print("\n".join((
            result["verdict"], per_table(result), *_advice(question, result),
            f"(projected; card: {note})", f"report: {folder / 'report.html'}")))
    return 0


def _advice(question, result):
    """What to choose: the next placements, slots, memory, and cores for loading."""
    near = sorted((each for each in result["placements"] if each["seconds"]),
                  key=lambda each: each["seconds"])[:3]
    yield "fastest: " + ", ".join(f"{each['placement']} {1e3 * each['seconds']:.2f} ms"
                                  for each in near)
    work, rows = question.workload, sum(question.workload.rows)
    for share in (0.9, 0.99):
        slots = next((1 << power for power in range(10, 63) if 1 << power >= rows
                      or question.count(1 << power).hit_rate >= share), rows)
        yield (f"slots for {100 * share:.0f} % of the lookups: {min(slots, rows):,} of {rows:,} "
               f"rows, {min(slots, rows) * work.row_bytes / MB:,.1f} MB")
    if result["seconds"]:
        least = least_memory(question, question.constants.worthwhile_gain * result["seconds"])
        yield (f"tables on disk (path=): {least:g} GB of host memory are as fast, within "
               f"{question.constants.worthwhile_gain:g} times" if least else
               "tables on disk (path=): slower than the fastest with any memory of this host")
    if result["loading_cores"]:
        yield f"reading and mapping ids at that speed: {result['loading_cores']:.1f} cores"


def _refuse_unread(options):
    """Refuse the options that the answer asked for does not read."""
    for answer, (flag, read) in _ONLY.items():
        unread = [action for action in options.parser._actions
                  if getattr(options, answer) and action.dest not in (answer, *read, "help")
                  and getattr(options, action.dest) != action.default]
        if unread:
            raise systems.ExploreError(f"{flag} does not read {unread[0].option_strings[-1]}: "
                                       "leave one of them out")


def _question(options, known):
    """The question, and a note about its card."""
    system = systems.find(options.system)
    if options.gpus is not None:
        if options.gpus and not system.gpus:
            raise systems.ExploreError(f"system {system.name!r} has no GPU, so that --gpus has no "
                                       "meaning")
        system = system.changed(gpus=options.gpus, title=f"{system.title}, {options.gpus} GPU(s)")
    if options.free_cores:
        system = system.with_free_cores(options.free_cores)
    work = _workload(options)
    card, note = None, "none"
    if options.card != "none":
        try:
            card = cards.find(options.card)
            note = (f"{card.name}, observe {card.observe:.2f} and split {card.split:.2f} lookups "
                    "per cycle of the simulated hardware")
        except cards.NoResult as missing:
            note = str(missing)
            print(f"hotrow explore: {note}", file=sys.stderr)
    if options.calibrate:
        system, options.record = _calibrated(system, options.free_cores)
    hot_bytes = options.hot_budget.wanted(sum(work.rows), work.row_bytes) * work.row_bytes
    return Question(work, system, known, hot_bytes, card, options.framework,
                    "no card" if note == "none" else note), note


def _workload(options):
    changes = {name: value for name, value in (("dim", options.dim), ("mlp", options.mlp),
                                               ("batch", options.batch_size)) if value}
    if not options.trace:
        if any(shared.columns_of(options).values()):
            raise systems.ExploreError("--ids, --dense, --label, --bag and --hash-rows are for the "
                                       "columns of a --trace, and there is none")
        return workloads.find(options.workload or "criteo-kaggle").changed(**changes)
    if options.workload:
        raise systems.ExploreError("give --workload or --trace, not both")
    from hotrow.traces import open_trace

    trace = open_trace(options.trace, numbered=True, **shared.columns_of(options))
    batch = changes.pop("batch", 1024)
    return workloads.of_trace(trace, batch=batch).changed(**changes)


def _calibrated(system, free_cores):
    from .calibrate import calibrate

    if free_cores and free_cores > (os.cpu_count() or 1):
        raise systems.ExploreError(f"--free-cores {free_cores} with --calibrate: this host has "
                                   f"{os.cpu_count()} cores")
    print("hotrow explore: measuring this host, up to a minute", file=sys.stderr)
    host, record = _passive(calibrate, (), free_cores)
    return system.changed(
        title=f"this host, with the GPUs of: {system.title}" if system.gpus else "this host",
        cores=host.cores, core_speed=host.core_speed, host_memory_gb=host.host_memory_gb,
        host_memory_gbps=host.host_memory_gbps, host_tflops=host.host_tflops,
        rates=host.rates), record


def _passive(work, *arguments):
    # PyTorch's threads sleep at barriers instead of spinning on shared cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    return work(*arguments)


def _answer(question):
    work = question.workload
    seen = question.count()
    records = [record for knob in sweeps.knobs(question)
               for record in sweeps.sweep(question, knob)]
    result = {
        **sweeps.recommend(question), "per_table": sweeps.per_table(question), "projected": True,
        "workload": work.name,
        "tables": work.tables, "rows": sum(work.rows), "table_gb": work.table_bytes / 1e9,
        "dim": work.dim, "batch": work.batch, "system": question.system.title,
        "hot_mb": question.hot_bytes / MB, "locality": vars(seen),
        "placements": [{"placement": each.placement, "seconds": each.seconds,
                        "parts": each.step.parts if each.step else {}, "reason": each.reason}
                       for each in sweeps.answers(question)],
    }
    return result, records


def _report(folder, question, result, records):
    from . import plots, report

    folder.mkdir(parents=True, exist_ok=True)
    name = f"{result['workload'].rpartition('/')[2]} on {result['system']}"
    figures = [("Parts of a training step, by placement",
                plots.parts_figure(sweeps.answers(question), f"A training step of {name}"))]
    figures += [(f"Step time over {sweeps.SWEEPS[knob][0]}", plots.sweep_figure(
        [record for record in records if record["knob"] == knob], knob, name))
        for knob in sweeps.knobs(question)]
    (folder / "report.html").write_text(report.page(
        result, [(caption, plots.svg(figure)) for caption, figure in figures]))
    report.write_records(folder, records, result)


def _map(options, known):
    from .report import verdict_markdown
    from .verdict_map import verdict_svg

    card = None if options.card == "none" else cards.find(options.card)
    result = verdict_map(known, card, options.framework)
    if options.output:
        options.output.mkdir(parents=True, exist_ok=True)
        (options.output / "verdicts.svg").write_text(verdict_svg(result["verdicts"]))
    print_json(result) if options.json else print(verdict_markdown(result).rstrip())
    return 0


def verdict_map(known, card, framework="fused"):
    """Everything of `hotrow explore --map`, as JSON."""
    from .choices import choices
    from .sensitivity import sensitivity

    questions = [Question(work, system, known, card=card, framework=framework)
                 for work in workloads.load().values() for system in systems.load().values()]
    records = sweeps.verdicts(questions)
    moved = sensitivity([each for question in questions
                         for each in sweeps.with_free_cores(question)], known)
    flips = iter(moved["flips"])
    for record in records:
        for answer in record["by_free_cores"].values():
            answer["hangs_on"] = sorted(name for name in next(flips) if known.documented[
                name].kind in ("assumed", "fitted"))
    return {"card": card.name if card else "none", "projected": True, "verdicts": records,
            "sensitivity": moved["counts"], "choices": choices(questions)}


def _validate(options, known):
    from . import plots, report
    from .paper_figures import drawn, paper_figures

    result = validate.validation(known) | {"figures": paper_figures(known)}
    text = report.validation_markdown(result)
    if options.output:
        options.output.mkdir(parents=True, exist_ok=True)
        (options.output / "validation.svg").write_text(
            plots.svg(plots.validation_figure(result)))
        (options.output / "papers.svg").write_text(plots.svg(drawn(result["figures"])))
        (options.output / "validation.md").write_text(
            f"{text}\n![Published ratios and the model](validation.svg)\n"
            "![A figure of each of the four systems](papers.svg)\n")
    print_json(result) if options.json else print(text.rstrip())
    return 0 if validate.passed(result) else 1


def _check_resident(options):
    from .calibrate import CHECKED, calibrate

    _, record = _passive(calibrate, CHECKED, options.free_cores)
    worst = max(abs(each["ratio"] - 1) for each in record["checked"])
    if options.json:
        print_json(record)
    else:
        print(f"{record['threads']} threads work on rows {record['row_scaling']:.2f} times as fast "
              "as one")
        print("batch  tables  rows/table  dim  MLP scale  predicted ms  measured ms  ratio")
        for each in record["checked"]:
            size = each["size"]
            print(f"{size['batch']:5}  {size['tables']:6}  {size['rows']:10}  {size['dim']:3}  "
                  f"{size['scale']:9}  {1e3 * each['predicted']:12.2f}  "
                  f"{1e3 * each['measured']:11.2f}  {each['ratio']:5.2f}")
    return 0 if worst <= 0.25 else 1


def _mlp(text):
    width, _, depth = text.partition("^")
    if not (width.isdecimal() and depth.isdecimal() and int(width) and int(depth)):
        raise argparse.ArgumentTypeError(f"expected width^layers such as 512^3, not {text!r}")
    return int(width), int(depth)
