"""Several runs of `benchmarks.disk`, each in a process of its own, and what they show together."""

import csv
import json
import subprocess
import sys
from pathlib import Path

_PEERS = ("hotrow", "rocksdb", "bag")  # the last trains the published file itself


def _run(options, what, *more):
    """The figures of a run."""
    given = [f"--{name.replace('_', '-')}={value}" for name, value in vars(options).items()
             if name not in ("what", "rounds", "base", "only", "shares") and value is not None]
    given += ["--base"] * options.base
    done = subprocess.run([sys.executable, "-m", "benchmarks.disk", what, *given, *more],
                          stdout=subprocess.PIPE, text=True)
    lines = done.stdout.splitlines()
    found = json.loads(lines[-1]) if lines else {"failed": done.returncode}
    print(json.dumps(found), file=sys.stderr, flush=True)
    return found


def compare(options):
    """Peers in turn, the rate of the disk before and after each: a table, and all figures."""
    runs = [("disk", _run(options, "disk"))]
    for _ in range(options.rounds):
        for what in _PEERS:
            more = () if what == "hotrow" else (
                f"--warm-up={options.warm_up / 3}", f"--limit={runs[1][1].get('limit_bytes') or 0}")
            runs += [(what, _run(options, what, *more)), ("disk", _run(options, "disk"))]
    rows = []
    for what in _PEERS:
        found = [each for name, each in runs if name == what and "steps_per_s" in each]
        if not found:
            continue
        rates = [(before[1]["reads_per_s"] + after[1]["reads_per_s"]) / 2
                 for before, run, after in zip(runs, runs[1:], runs[2:], strict=False)
                 if run[0] == what]
        rows.append({"what": what, "disk_reads_per_s": _mean(rates), **{
            name: _mean([each[name] for each in found if name in each])
            for name in ("steps_per_s", "cpu_ms_per_step", "pages_read_per_step",
                         "bytes_written_per_step", "requests", "requests_per_row",
                         "own_reads_per_s", "reads_in_flight", "close_s", "close_bytes")}})
    if not rows or rows[0]["what"] != "hotrow":
        return {"table": rows}
    ours = rows[0]
    own = ours.get("own_reads_per_s") or ours["disk_reads_per_s"]
    ours["share_of_disk"] = ours["requests"] * ours["steps_per_s"] / own
    print(f"{'':10}{'steps/s':>9}{'hotrow is':>11}{'disk reads/s':>14}{'pages/step':>12}"
          f"{'written/step':>14}{'CPU ms':>8}", file=sys.stderr)
    for row in rows:
        ratio = ours["steps_per_s"] / row["steps_per_s"]
        print(f"{row['what']:10}{row['steps_per_s']:9.2f}{ratio:10.1f}x"
              f"{row['disk_reads_per_s']:14,.0f}{row['pages_read_per_step']:12,.0f}"
              f"{row['bytes_written_per_step']:14,.0f}{row['cpu_ms_per_step']:8.1f}",
              file=sys.stderr)
    print(f"share of the disk {ours['share_of_disk']:.2f}, requests a row "
          f"{ours['requests_per_row']:.2f}, close {ours['close_s']:.2f} s for "
          f"{ours['close_bytes'] / 1e6:,.0f} MB", file=sys.stderr)
    return {"table": rows}


def curve(options):
    """Time over that in memory, which runs before and after, by the share of the table's bytes that
    memory has: files `curve.csv`, which keeps the points of runs before, and `curve.svg`."""
    from matplotlib.figure import Figure

    folder, rows = Path(options.folder), {}
    if (folder / "curve.csv").exists():
        with open(folder / "curve.csv", newline="") as file:
            rows = {float(row[0]): [*map(float, row)] for row in list(csv.reader(file))[1:]}
    short, found = f"--warm-up={options.warm_up / 6}", {}
    base = [_run(options, "memory", short)["steps_per_s"]]
    for share in map(float, options.shares.split(",")):
        found[share] = _run(options, "hotrow", f"--share={share}")
    base = _mean([*base, _run(options, "memory", short)["steps_per_s"]])
    rows |= {share: [share, each["limit_bytes"], each["steps_per_s"], base / each["steps_per_s"]]
             for share, each in found.items() if "steps_per_s" in each}
    rows = [rows[share] for share in sorted(rows)]
    with open(folder / "curve.csv", "w", newline="") as file:
        out = csv.writer(file)
        out.writerow(("share", "limit_bytes", "steps_per_s", "time_over_memory"))
        out.writerows(rows)
    figure = Figure(figsize=(5, 3.5), layout="constrained")
    axes = figure.add_subplot()
    axes.plot([row[0] for row in rows], [row[3] for row in rows], "o-")
    axes.set(xscale="log", xlabel="memory of the tables / their bytes",
             ylabel="time of a step / that in memory", ylim=(0, None))
    axes.axhline(1.05, color="grey", linewidth=0.8)
    figure.savefig(folder / "curve.svg", metadata={"Date": None})
    return {"memory_steps_per_s": base, "curve": rows}


def _mean(values):
    return sum(values) / len(values) if values else None
