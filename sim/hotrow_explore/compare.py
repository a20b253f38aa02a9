"""`hotrow compare`: caching schemes on the same batches, counted by one definition."""

import csv
import time
from dataclasses import replace

import numpy as np
from hotrow.command import options as shared
from hotrow.command.limits import check_batch, check_folder, check_memory
from hotrow.command.options import names, natural, positive, positives
from hotrow.command.terminal import Steps, console, print_json
from hotrow.contract.errors import Error
from hotrow.contract.geometry import preset as preset_of

MODES = ("resident", "scratchpipe", "freqcache", "hotline", "near_memory")
WITHOUT_SLOTS = ("resident", "near_memory")
COLUMNS = {"scheme": "scheme", "slots": "slots", "hit_rate": "lookups that hit",
           "distinct_hit_rate": "distinct rows that hit", "bytes_per_batch": "bytes a batch",
           "steps_per_s": "steps a second", "auc": "AUC"}


def compare(subparsers):
    """Add `hotrow compare`."""
    parser = subparsers.add_parser(
        "compare", help="caching schemes on the same batches: hits, bytes, time, AUC",
        description="Train a DLRM on the same batches in several modes, and run replacement "
        "policies on them, with several numbers of slots. A hit is a lookup whose row had a slot "
        "before its batch; the warm-up is the same for all. Times are this machine's.")
    shared.add_trace(parser, required=True)
    shared.add_batch_size(parser, 256)
    add = parser.add_argument
    add("--modes", type=names, default=("scratchpipe", "freqcache", "hotline"),
        help="of " + ",".join(MODES) + "; without a label none")
    add("--policies", "--policy", type=names, default=("lru", "lfu"),
        help="of lru,lfu, and module:Class of your own; Belady's bound stands beside them")
    add("--slots", type=positives, default=(1024,), help="several values are separated by commas")
    add("--batches", type=positive, default=250, help="of the run, at most those of the log")
    add("--warm-up", type=natural, default=50, help="of these, batches that do not count")
    add("--dim", type=positive, default=16, help="elements of a row, divisible by 4")
    add("--lr", type=shared.rate, default=0.3, help="learning rate")
    add("--seed", type=natural, default=0, help="of generated data and of the model")
    add("-o", "--output", type=shared.output_folder, metavar="DIR",
        help="folder for compare.csv and compare.png")
    shared.add_json(parser)
    parser.set_defaults(run=run)


def run(options) -> int:
    """Compare, then print a table or one JSON object."""
    from .caches import policy_of

    unknown = set(options.modes) - set(MODES)
    if unknown:
        raise Error(f"--modes names some of {','.join(MODES)}, not {','.join(sorted(unknown))!r}")
    policies = {name: policy_of(name) for name in options.policies}
    if options.dim % 4:
        raise Error(f"--dim must be divisible by 4, not {options.dim}")
    if options.output:
        check_folder(options.output)
    trace = _trace(options)
    with Steps() as steps:
        records = schemes(options, trace, policies, steps)
    if options.output:
        _write(options.output, records)
    result = {"trace": trace.name, "batch": options.batch_size, "batches": options.batches,
              "warm_up": options.warm_up, "schemes": records}
    print_json(result) if options.json else _show(result)
    return 0


def _trace(options):
    from hotrow.traces import open_trace

    trace = open_trace(options.trace, seed=options.seed, numbered=True,
                       **shared.columns_of(options))
    check_batch(trace, options.batch_size, "alveo-u55c")
    if not trace.labelled:
        options.modes = ()
    if have := trace.batch_count(options.batch_size):
        options.batches = min(options.batches, have)
    if options.warm_up >= options.batches:
        raise Error(f"--warm-up {options.warm_up}: the run has {options.batches} batches of "
                    f"{options.batch_size}; name fewer, or a smaller --batch-size")
    if options.modes:
        check_memory(trace, 4 * options.dim)
    return trace


def schemes(options, trace, policies, steps) -> list[dict]:
    """One record for each mode, policy and number of slots, in the order of `COLUMNS`."""
    from .caches import Belady, simulate

    batches = [trace.batch(number, options.batch_size) for number in range(options.batches)]
    first = np.r_[0, np.cumsum(trace.cardinalities)]
    rows, counts = zip(*(_distinct(first, each) for each in batches), strict=True)
    row_bytes, records = 4 * options.dim, []
    for slots in options.slots:
        for mode in options.modes:
            if mode in WITHOUT_SLOTS and slots != options.slots[0]:
                continue
            advance = steps.begin(f"{mode}, {slots:,} slots", len(batches))
            records.append(_mode(mode, slots, options, trace, batches, rows, advance))
        made = {name: policy(slots) for name, policy in policies.items()}
        for name, policy in (made | {"Belady's bound": Belady(slots, rows)}).items():
            steps.begin(f"{name}, {slots:,} slots")
            found = simulate(policy, slots, rows, counts, options.warm_up)
            records.append({
                "scheme": name, "slots": slots, **_rates(found),
                "bytes_per_batch": (found["fetched"] + found["returned"]) * row_bytes
                / (options.batches - options.warm_up), "steps_per_s": None, "auc": None})
    return records


def _distinct(first, samples):
    """Distinct flat rows of a batch in the order of first lookup, and how often each occurs."""
    flat = first[samples.lookup_columns] + samples.ids.ravel().astype(np.int64)
    rows, at, counts = np.unique(flat, return_index=True, return_counts=True)
    order = np.argsort(at)
    return rows[order].tolist(), counts[order].tolist()


def _rates(found):
    return {"hit_rate": found["hits"] / max(1, found["lookups"]),
            "distinct_hit_rate": found["distinct_hits"] / max(1, found["distinct"])}


def _card(slots):
    """A card of `slots` slots."""
    card = preset_of("alveo-u55c")
    ways = card.slots // card.directory_sets
    sets, rest = divmod(slots, ways)
    least = 2 * card.banks * ways
    if rest or sets & (sets - 1) or slots < least:
        raise Error(f"--slots {slots}: a mode needs a power of two of at least {least}; "
                    "--modes with nothing but resident and near_memory, or policies alone, take "
                    "any number")
    return replace(card, name=f"{card.name}-{slots}-slots", directory_sets=sets,
                   directory_partitions=min(card.directory_partitions, sets // card.banks))


def _mode(mode, slots, options, trace, batches, rows, advance):
    import torch
    from hotrow import open as open_device
    from hotrow.torch.memory.tables import EmbeddingTables
    from hotrow.torch.optim.rules import SGD
    from hotrow.torch.training.collection_trainer import CollectionTrainer
    from hotrow.torch.training.dlrm import DLRM
    from hotrow.torch.training.metrics import auc

    torch.manual_seed(options.seed)
    tables = EmbeddingTables(trace.cardinalities, options.dim).initialise(options.seed)
    model = DLRM(trace.dense_columns, tables.count, options.dim, 0.25)
    device = None
    if mode == "near_memory":
        device = open_device("cpu")
        device.transport.name = "card"  # which has tables of its own
    elif mode != "resident":
        device = open_device("cpu", _card(slots))
    ahead = 5 if mode in ("scratchpipe", "freqcache") else 0
    try:
        trainer = CollectionTrainer(model, tables, SGD(options.lr), device, mode)
        if mode == "hotline" or mode == "freqcache":  # which learn on the warm-up
            for batch in batches[:max(1, options.warm_up)]:
                trainer.observe(batch)
            trainer.learn()
        logits, began, counted, announced = [], time.perf_counter(), {}, 0
        for number, batch in enumerate(batches):
            if number == options.warm_up:
                began, counted = time.perf_counter(), dict(trainer.collection.statistics)
                fetched = counted.get("fills", 0)
            last = options.warm_up if number < options.warm_up else len(batches)
            while ahead and announced < min(last, number + ahead + 1):
                trainer.prefetch(batches[announced])
                announced += 1
            logits.append(trainer.step(batch).logits)
            advance()
        seconds = time.perf_counter() - began
        done = trainer.collection.statistics
        fetched = done.get("fills", 0) - fetched
        trainer.collection.close()
    finally:
        if device is not None:
            device.close()
    scored = batches[options.warm_up:]
    lookups, distinct = (sum(each) for each in zip(*(
        (batch.ids.size, len(own)) for batch, own in zip(
            scored, rows[options.warm_up:], strict=True)), strict=True))
    rates = _rates({"hits": done.get("hits", 0) - counted.get("hits", 0), "lookups": lookups,
                    "distinct": distinct, "distinct_hits": distinct - fetched})
    if mode in WITHOUT_SLOTS:
        rates = dict.fromkeys(rates)
    return {"scheme": mode, "slots": None if mode in WITHOUT_SLOTS else slots, **rates,
        "bytes_per_batch": (done["link_bytes"] - counted["link_bytes"]) / len(scored)
        if done else 0.0, "steps_per_s": len(scored) / seconds,
        "auc": auc(np.concatenate([each.label for each in scored]),
                   np.concatenate(logits[options.warm_up:]))}


def _show(result):
    from rich.table import Table

    cells = [[_cell(name, each[name]) for name in COLUMNS] for each in result["schemes"]]
    shown = Table(title=f"{result['trace']}: {result['batches']} batches of {result['batch']}, of "
                  f"which {result['warm_up']} warm up")
    for number, head in enumerate(COLUMNS.values()):
        shown.add_column(head, justify="right" if number else "left")
    for row in cells:
        shown.add_row(*row)
    console().print(shown)


def _cell(name, value):
    if value is None:
        return "-"
    return (value if isinstance(value, str) else f"{value:,}" if name == "slots" else
            f"{value:,.0f}" if name == "bytes_per_batch" else
            f"{value:.1f}" if name == "steps_per_s" else f"{value:.4f}")


def _write(folder, records):
    """The table as CSV, and a plot of hits over slots."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "compare.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, list(COLUMNS))
        writer.writeheader()
        writer.writerows(records)
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for scheme in dict.fromkeys(each["scheme"] for each in records if each["slots"]):
        own = [each for each in records if each["scheme"] == scheme]
        axes.plot([each["slots"] for each in own], [each["hit_rate"] for each in own],
                  marker="o", label=scheme)
    axes.set(xscale="log", xlabel="slots (rows)", ylabel="lookups whose row had a slot before",
             ylim=(0, 1))
    axes.grid(True, alpha=0.3)
    axes.legend(fontsize=8)
    FigureCanvasAgg(figure).print_png(folder / "compare.png")
