"""The report: one page, in Markdown and in HTML."""

import csv
import html
import json
import re

NOTICE = ("Every time and ratio on this page is projected by a model of a training step; none was "
          "measured on a card, and no card exists in hardware yet.")


def markdown(result, plots):
    """The page.

    Parameters
    ----------
    result : dict
        See `cli.explore`.
    plots : list of (str, Path)
        Caption and file, in the folder of the page.
    """
    lines = ["# Which placement trains this model fastest", "", f"**{result['verdict']}**", "",
             NOTICE, "",
             f"Model {result['workload']}: {result['tables']} tables, {result['rows']:,} rows, "
             f"{result['table_gb']:.2f} GB, dimension {result['dim']}, batch {result['batch']}. "
             f"System: {result['system']}. Card: {result['card']}.", "",
             "| placement | step (ms) | against the best | note |", "|---|---|---|---|"]
    times = [each["seconds"] for each in result["placements"] if each["seconds"]]
    best = min(times, default=0)
    order = sorted(result["placements"], key=lambda each: each["seconds"] or float("inf"))
    for each in order:
        if each["seconds"]:
            lines.append(f"| {each['placement']} | {1e3 * each['seconds']:.3f} | "
                         f"{each['seconds'] / best:.2f}x | |")
        else:
            lines.append(f"| {each['placement']} | - | - | {each['reason']} |")
    seen = result["locality"]
    lines += ["", "Counted on the accesses by the golden models: "
              f"{seen['lookups']:,.0f} lookups a batch, {seen['unique']:,.0f} distinct rows, "
              f"hit rate {seen['hit_rate']:.3f} and samples of hot rows only "
              f"{seen['popular']:.3f} with "
              f"{result['hot_mb']:g} MB of hot rows. The table and the plots have that budget; the "
              "verdict lets every cache use all of the GPU's memory where that is faster.", ""]
    if result.get("calibration"):
        lines += [f"Host rates measured here with PyTorch in {result['calibration']['seconds']:.0f}"
                  " s; the GPU and its link, if any, are the named system's data sheet.", ""]
    for caption, path in plots:
        lines += [f"![{caption}]({path.name})", "", caption, ""]
    return "\n".join(lines)


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


def to_html(text, title):
    """Convert the Markdown of a report to an HTML page."""
    body, table = [], []

    def inline(line):
        line = html.escape(line, quote=False)
        line = re.sub(r"!\[([^]]*)\]\(([^)]*)\)", r'<img alt="\1" src="\2">', line)
        return re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", line)

    def close_table():
        if table:
            head, _, *rows = table
            body.append("<table>" + "".join(
                "<tr>" + "".join(f"<{tag}>{inline(cell.strip())}</{tag}>" for cell in cells)
                + "</tr>" for tag, cells in [("th", head), *(("td", row) for row in rows)])
                + "</table>")
            table.clear()

    for line in text.splitlines():
        if line.startswith("|"):
            table.append(line.strip("|").split("|"))
            continue
        close_table()
        if line.startswith("# "):
            body.append(f"<h1>{inline(line[2:])}</h1>")
        elif line:
            body.append(f"<p>{inline(line)}</p>")
    close_table()
    style = ("body{font:16px sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
             "td,th{border:1px solid #bbb;padding:.3em .6em;text-align:left}"
             "table{border-collapse:collapse}img{max-width:100%}")
    return (f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>"
            f"{html.escape(title)}</title><style>{style}</style></head><body>"
            + "\n".join(body) + "</body></html>\n")


def write(folder, name, text, title):
    """Both forms of a page."""
    (folder / f"{name}.md").write_text(text + "\n" * (not text.endswith("\n")))
    (folder / f"{name}.html").write_text(to_html(text, title))


def write_records(folder, records, result):
    """The sweeps as CSV, everything as JSON."""
    with open(folder / "sweeps.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, ["knob", "value", "placement", "seconds", "reason"])
        writer.writeheader()
        writer.writerows(records)
    (folder / "explore.json").write_text(json.dumps({**result, "sweeps": records}, indent=1))
