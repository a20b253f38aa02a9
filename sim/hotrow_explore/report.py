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


def verdict_markdown(records, card):
    """The map of verdicts: one line for a workload and system where the card or the compiled
    engine is the fastest, counts of the others."""
    kinds = [each["kind"] for record in records for each in record["by_free_cores"].values()]
    misfits = sum(each["seconds"] is None for record in records
                  for each in record["by_free_cores"].values())
    cores = list(records[0]["by_free_cores"])
    lines = ["# Card, software or neither", "",
             f"Of {len(kinds)} settings ({len(records)} pairs of workload and system, each with "
             f"{', '.join(cores[:-1])} and all cores free) a card ({card}) is at least 1.1 times "
             f"faster than everything without one in **{kinds.count('card')}**, hotrow's software "
             f"than everything else without a card in **{kinds.count('software')}**, and neither "
             f"in {kinds.count('neither')}, of which {misfits} fit no placement. " + NOTICE, "",
             "![A cell for each workload and system with the fastest placement and a bar for each "
             "number of free cores; the card's are orange](images/verdicts.svg)", "",
             "Rows and columns are the names of `--workload` and `--system`; [the explorer]"
             "(explorer.md) describes the placements. A card that *equals* N cores is as fast as "
             "the best placement without a card on N cores of the host.", "",
             "| workload | system | " + " | ".join(
                 f"{each} cores free" for each in cores) + " | the card equals |",
             "|---|---|" + "---|" * (len(cores) + 1)]
    for record in records:
        by_cores = record["by_free_cores"]
        if {each["kind"] for each in by_cores.values()} == {"neither"}:
            continue
        replaced = by_cores["all"]["cores_replaced"]
        cells = [_verdict(each) for each in by_cores.values()]
        equal = (f"{replaced} of {record['cores']} cores" if replaced else
                 "more than all cores" if by_cores["all"]["card"] else "-")
        lines.append(f"| {record['workload']} | {record['system']} | " + " | ".join(cells)
                     + f" | {equal} |")
    lines += ["", "The other pairs are *neither* with any number of free cores."]
    return "\n".join(lines) + "\n"


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
