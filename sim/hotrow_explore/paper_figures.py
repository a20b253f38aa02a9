"""One figure of each of the four published systems: the model's values and the published points."""

from matplotlib.figure import Figure

from . import workloads
from .constants import read
from .placements import PLACEMENTS
from .validate import cases, gpu_gain

# Results of `data/published.toml`.
_HOTLINE = ("hotline-hybrid", "hotline-hugectr")
_PEERS = ("over CPU-GPU DLRM", "over HugeCTR")
_SCRATCHPIPE = ("scratchpipe-mean", "scratchpipe-max")
_FREQUENCY = ("freqcache-1tb", "freqcache-kaggle", "freqcache-avazu")
_MLPS = ((64, 2), (512, 3), (1024, 3), (2048, 4))


def paper_figures(constants) -> list[dict]:
    """The model's values of the four figures, as JSON.

    Parameters
    ----------
    constants : Constants

    Returns
    -------
    list of dict
        `title`, with its source; `axis`; `series` of `name`, `labels` and the model's `values`;
        `points`, published values of single labels; `lines`, published values of all of a series.
    """
    published = read("published")
    hotline = [_series(published[name], constants, "name") for name in _HOTLINE]
    scratchpipe = _series(published[_SCRATCHPIPE[0]], constants, "slope")
    frequency = [_series(published[name], constants, "name") for name in _FREQUENCY]
    return [
        {"title": "Hotline (ISCA 2024): speed-up by data set, 4 GPUs", "axis": "data set",
         "series": [{**each, "name": name}
                    for name, each in zip(_PEERS, hotline, strict=True)],
         "points": {}, "lines": [
             {"name": f"published mean {name}", "value": published[key]["value"]}
             for key, name in zip(_HOTLINE, _PEERS, strict=True)]},
        {"title": "ScratchPipe (ISCA 2022): speed-up over a static cache",
         "axis": "rank-frequency slope",
         "series": [{**scratchpipe, "name": "over a static hot-row cache"}], "points": {},
         "lines": [{"name": f"published {name}", "value": published[key]["value"]}
                   for key, name in zip(_SCRATCHPIPE, ("mean", "largest"), strict=True)]},
        {"title": "Frequency-aware software cache (2022): speed-up over UVM",
         "axis": "data set",
         "series": [{"name": "over managed memory",
                     "labels": [label for each in frequency for label in each["labels"]],
                     "values": [value for each in frequency for value in each["values"]]}],
         "points": {label: published[name]["value"] for name, each in zip(
             _FREQUENCY, frequency, strict=True) for label in each["labels"]}, "lines": []},
        {"title": "Training efficiency (HPCA 2021): GPUs over CPUs (published: it grows)",
         "axis": "width^layers of the MLPs",
         "series": [{"name": "Big Basin over CPUs with parameter servers",
                     "labels": [f"{width}^{layers}" for width, layers in _MLPS],
                     "values": [gpu_gain(workloads.find("study").changed(mlp=mlp), constants)
                                for mlp in _MLPS]}],
         "points": {}, "lines": []},
    ]


def _series(entry, constants, label) -> dict:
    found = list(cases(entry, constants))
    return {"labels": [str(getattr(ours.workload, label)) for ours, _ in found],
            "values": [PLACEMENTS[entry["theirs"]](theirs).seconds
                       / PLACEMENTS[entry["ours"]](ours).seconds for ours, theirs in found]}


def drawn(figures) -> Figure:
    """The four figures on one page."""
    figure = Figure(figsize=(11, 8), layout="constrained")
    for axes, each in zip(figure.subplots(2, 2).flat, figures, strict=True):
        width = 0.8 / len(each["series"])
        for at, series in enumerate(each["series"]):
            places = [number + at * width for number in range(len(series["values"]))]
            bars = axes.bar(places, series["values"], width, label=f"model, {series['name']}")
            axes.bar_label(bars, fmt="%.2f", fontsize=7)
        labels = each["series"][0]["labels"]
        middle = (len(each["series"]) - 1) * width / 2
        axes.set_xticks([number + middle for number in range(len(labels))], labels)
        if each["points"]:
            axes.plot([labels.index(label) + middle for label in each["points"]],
                      list(each["points"].values()), "kD", label="published")
        for at, line in enumerate(each["lines"]):
            axes.axhline(line["value"], color="black", linestyle=("--", ":")[at],
                         label=f"{line['name']}: {line['value']:g}")
        axes.set_title(each["title"], fontsize=9)
        axes.set_xlabel(each["axis"])
        axes.set_ylabel("speed-up (times), projected")
        axes.legend(fontsize=7)
    return figure
