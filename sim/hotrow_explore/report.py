"""The report as one HTML page, and the validation in Markdown."""

import csv
import html
import json

from hotrow.command.terminal import finite

NOTICE = ("Every time and ratio on this page is projected by a model of a training step; none was "
          "measured on a card, and no card exists in hardware yet.")


STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:62em;margin:2em auto;padding:0 1em;color:#222}
td,th{border-bottom:1px solid #ddd;padding:.3em .8em;text-align:left}
td:nth-child(2),td:nth-child(3){text-align:right}
table{border-collapse:collapse}svg{max-width:100%;height:auto}
.verdict{font-size:1.25em;border-left:.3em solid #0072b2;padding-left:.8em}
.best td{font-weight:bold;background:#e7f2fa}summary{cursor:pointer;color:#555;margin:.5em 0}
figure{margin:2em 0}figcaption{color:#555}
"""
FOLDED = 3.0  # times the best step from which a placement is folded away


def page(result, figures):
    """One HTML page without references to other files.

    Parameters
    ----------
    result : dict
        See `cli.explore`.
    figures : list of (str, str)
        Caption and SVG.
    """
    seen, say = result["locality"], html.escape
    title = f"{result['workload']} on {result['system']}"
    every = sorted(result["placements"], key=lambda each: each["seconds"] or float("inf"))
    best = next((each["seconds"] for each in every if each["seconds"]), None)
    near = [each for each in every if each["seconds"] and each["seconds"] <= FOLDED * best]
    body = [
        "<h1>Which placement trains this model fastest</h1>",
        f"<p class='verdict'>{say(result['verdict'])}</p>", f"<p>{NOTICE}</p>",
        f"<p>Model {say(result['workload'])}: {result['tables']} tables, {result['rows']:,} rows, "
        f"{result['table_gb']:.2f} GB, dimension {result['dim']}, batch {result['batch']}. "
        f"System: {say(result['system'])}. Card: {say(result['card'])}.</p>",
        _placements(near, best)]
    if len(near) < len(every):
        body.append(f"<details><summary>{len(every) - len(near)} placements that are more than "
                    f"{FOLDED:g} times slower or do not fit</summary>"
                    f"{_placements(every[len(near):], best)}</details>")
    body.append(f"<p>{say(per_table(result))}.</p>")
    if result["per_table"]:
        body.append(_tables(result["per_table"]))
    body.append(
        f"<p>Counted on the accesses by the golden models: {seen['lookups']:,.0f} lookups a batch, "
        f"{seen['unique']:,.0f} distinct rows, hit rate {seen['hit_rate']:.3f} and samples of hot "
        f"rows only {seen['popular']:.3f} with {result['hot_mb']:g} MB of hot rows. The table and "
        "the plots have that budget; the verdict lets every cache use all of the GPU's memory, "
        "and one GPU train alone, where that is faster.</p>")
    if result.get("calibration"):
        body.append(f"<p>Host rates measured here with PyTorch in "
                    f"{result['calibration']['seconds']:.0f} s; the GPU and its link, if any, are "
                    "the named system's data sheet.</p>")
    body += [f"<figure>{svg}<figcaption>{say(caption)}</figcaption></figure>"
             for caption, svg in figures]
    return (f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>hotrow: "
            f"{say(title)}</title><style>{STYLE}</style></head><body>\n" + "\n".join(body)
            + "\n</body></html>\n")


def per_table(result) -> str:
    """The placement of each table in words."""
    found, alone = result["per_table"], result["seconds"]
    if not found:
        return "per table: no placement fits"
    if alone and found["seconds"] > 0.99 * alone:
        return "per table: no mix of placements is faster than the same for all tables"
    held = sum(each["place"] != found["placement"] for each in found["tables"])
    return (f"per table: {held} of {len(found['tables'])} tables whole in the trainer's memory, "
            f"the others by {found['placement']}: {1e3 * found['seconds']:.2f} ms a step"
            + (f", with the same placement for all {1e3 * alone:.2f} ms" if alone else ""))


def _tables(found):
    """Every table and its place."""
    rows = "".join(
        f"<tr><td>{each['table']}</td><td>{each['rows']:,}</td><td>{each['mb']:,.1f}</td>"
        f"<td>{each['lookups']:g}</td><td>{html.escape(each['place'])}</td></tr>"
        for each in found["tables"])
    return ("<details><summary>the place of every table</summary><table><tr><th>table</th>"
            f"<th>rows</th><th>MB</th><th>lookups a sample</th><th>place</th></tr>{rows}</table>"
            "</details>")


def _placements(records, best):
    rows = []
    for each in records:
        step, against, note = "-", "-", each["reason"]
        if each["seconds"]:
            step, against = f"{1e3 * each['seconds']:.3f}", f"{each['seconds'] / best:.2f}x"
        rows.append(f"<tr{' class=best' if each['seconds'] == best else ''}>" + "".join(
            f"<td>{html.escape(cell)}</td>" for cell in (each["placement"], step, against, note))
            + "</tr>")
    return ("<table><tr><th>placement</th><th>step (ms)</th><th>against the best</th><th></th></tr>"
            + "".join(rows) + "</table>")


def verdict_markdown(result):
    """The map of verdicts: the counts and what moves them, a model's best machines, and a line for
    each workload and system with another verdict than *neither*."""
    records, card = result["verdicts"], result["card"]
    answers = [each for record in records for each in record["by_free_cores"].values()]
    kinds = [each["kind"] for each in answers]
    misfits = sum(each["seconds"] is None for each in answers)
    counts = result["sensitivity"]
    cores = list(records[0]["by_free_cores"])
    lines = ["# Card, software or neither", "",
             f"Of {len(kinds)} settings ({len(records)} pairs of workload and system, each with "
             f"{', '.join(cores[:-1])} and all cores free) a card ({card}) is at least 1.1 times "
             f"faster than everything without one in **{kinds.count('card')}** "
             f"({hangs_on(counts['card'])}), hotrow's software (`resident`, `disk`, `software`) "
             f"than everything else without a card in **{kinds.count('software')}** "
             f"({hangs_on(counts['software'])}), and neither "
             f"in {kinds.count('neither')}, of which {misfits} fit no placement. " + NOTICE, "",
             "![A cell for each workload and system with the fastest placement and a bar for each "
             "number of free cores; the card's are orange](images/verdicts.svg)", "",
             "Rows and columns are the names of `--workload` and `--system`; [the explorer]"
             "(explorer.md) describes the placements.", "", *_choices(result["choices"]), "",
             "## What the counts hang on", "",
             "Each constant is moved to both ends of the range that "
             "`sim/hotrow_explore/data/constants.toml` gives it, the others stay; those that are "
             "not listed change no count.", "",
             "| constant | kind | value | range | card | software |", "|---|---|---|---|---|---|",
             *_moved(counts), "", "## Every setting that is not neither", "",
             "A card that *equals* N cores is as fast as the best placement without a card on N "
             "cores of the host. *Hangs on* names the assumed and fitted constants that change "
             "one of the verdicts of the line within their range.", "",
             "| workload | system | " + " | ".join(
                 f"{each} cores free" for each in cores) + " | the card equals | hangs on |",
             "|---|---|" + "---|" * (len(cores) + 2)]
    for record in records:
        by_cores = record["by_free_cores"]
        if {each["kind"] for each in by_cores.values()} == {"neither"}:
            continue
        replaced = by_cores["all"]["cores_replaced"]
        cells = [_verdict(each) for each in by_cores.values()]
        equal = (f"{replaced} of {record['cores']} cores" if replaced else
                 "more than all cores" if by_cores["all"]["card"] else "-")
        names = sorted({name for each in by_cores.values() for name in each["hangs_on"]})
        lines.append(f"| {record['workload']} | {record['system']} | " + " | ".join(cells)
                     + f" | {equal} | {', '.join(f'`{name}`' for name in names) or '-'} |")
    lines += ["", "The other pairs are *neither* with any number of free cores."]
    return "\n".join(lines) + "\n"


def hangs_on(count):
    """The widest range of a count over an assumed or fitted constant, and over a measured one if
    that is wider."""
    found, widest = [], 0
    for kinds in (("assumed", "fitted"), ("measured",)):
        spread = {name: each["counts"][1] - each["counts"][0]
                  for name, each in count["with"].items() if each["kind"] in kinds}
        name = max(spread, key=lambda each: spread[each], default=None)
        if name and spread[name] > widest:
            widest, (low, high) = spread[name], count["with"][name]["counts"]
            found.append(f"{low} to {high} over the range of the {count['with'][name]['kind']} "
                         f"`{name}`")
    return ", ".join(found) or "with every constant in its range"


def _moved(counts):
    """One line for each constant that changes a count."""
    found = {name: each for count in counts.values() for name, each in count["with"].items()}
    for name, each in found.items():
        cells = [f"{low} to {high}" for low, high in (
            count["with"][name]["counts"] if name in count["with"] else (count["value"],) * 2
            for count in counts.values())]
        yield (f"| `{name}` | {each['kind']} | {each['value']:g} | {each['within'][0]:g} to "
               f"{each['within'][1]:g} | {' | '.join(cells)} |")


def _choices(records):
    """For each workload the fastest, the cheapest and the smallest machine."""
    def named(each):
        return (f"{each['placement']} on {each['system']}, {each['ms']:.1f} ms, "
                f"{each['usd']:.2f} $")

    return ["## Fastest, cheapest, smallest", "",
            "Without a card. Prices are of a billion samples, from the prices of machines in "
            "`data/systems.toml`, most of them recalled. *Smallest* is the least host memory with "
            "which the tables on disk (`disk`) are within 1.1 of the fastest placement on the "
            "machine that is named.", "",
            "| workload | tables (GB) | fastest | cheapest | smallest |", "|---|---|---|---|---|",
            *(f"| {each['workload']} | {each['table_gb']:.1f} | {named(each['fastest'])} | "
              f"{named(each['cheapest'])} | "
              + (f"{each['least_memory']['gb']:g} GB on {each['least_memory']['system']} |"
                 if each["least_memory"] else "- |") for each in records)]


def _verdict(answer):
    if answer["kind"] == "card":
        gain = f"{answer['gain']:.2f}x" if answer["gain"] else "alone fits"
        return f"**card** ({answer['with_card']}), {gain}"
    name = answer["without_card"] or "nothing fits"
    return f"software ({name})" if answer["kind"] == "software" else f"neither: {name}"


def validation_markdown(result):
    """Published results and the model's."""
    lines = ["# Published results and the model", "", NOTICE, "",
             "Fitted: a constant of the model was adjusted to this result. No value was adjusted "
             "to the others, but the form of the model and the settings marked as assumed were "
             "chosen with knowledge of all of them, so they are no blind test.", "",
             "| published result | published | model | | constants |", "|---|---|---|---|---|"]
    for each in result["published"]:
        close = abs(each["model"] / each["published"] - 1) <= 0.3
        lines.append(f"| {each['title']}; {each['setting']} | {each['published']:.3g} | "
                     f"{each['model']:.2f} | {'within 30 %' if close else '**off**'} | "
                     f"{'fitted' if each['fitted'] else 'not fitted'} |")
    lines += ["", "| figure | model | best constant |", "|---|---|---|",
              f"| geometric-mean error | {100 * result['geometric_mean_error']:.0f} % | "
              f"{100 * result['best_constant_error']:.0f} % (always "
              f"{result['best_constant']:.2f}) |",
              "| the same, without the fitted results | "
              f"{100 * result['not_fitted_error']:.0f} % | "
              f"{100 * result['not_fitted_best_constant_error']:.0f} % |",
              f"| within 30 % of {len(result['published'])} | {result['within_30_percent']} | "
              f"{result['most_within_of_a_constant']} (the most of any constant) |",
              f"| within 30 % of {result['not_fitted']} not fitted | "
              f"{result['not_fitted_within_30_percent']} | |",
              f"| rank correlation | {result['rank_correlation']:.2f} | none |", "",
              "| qualitative finding of the study | reproduced | model |", "|---|---|---|"]
    lines += [f"| {each['name']} | {'yes' if each['reproduced'] else '**no**'} | "
              f"{each['evidence']} |" for each in result["qualitative"]]
    lines += ["", "Sensitivity to one assumed constant, halved or doubled (the six largest "
              "effects; all constants are in `data/constants.toml` with their sources):", "",
              "| constant | times | error over best constant's | within 30 % | rank correlation |",
              "|---|---|---|---|---|"]
    lines += [f"| {each['constant']} | {each['factor']:g} | "
              f"{each['error_over_best_constant']:.2f} | {each['within_30_percent']} | "
              f"{each['rank_correlation']:.2f} |" for each in result["sensitivity"][:6]]
    return "\n".join(lines) + "\n"


def write_records(folder, records, result):
    """The sweeps as CSV, everything as JSON."""
    with open(folder / "sweeps.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, ["knob", "value", "placement", "seconds", "reason"])
        writer.writeheader()
        writer.writerows(records)
    (folder / "explore.json").write_text(json.dumps(
        finite({**result, "sweeps": records}), indent=1, allow_nan=False))
