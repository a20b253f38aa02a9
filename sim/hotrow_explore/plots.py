"""Plots: one page per question, with units, and marks for placements that do not fit."""

from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from .placements import PLACEMENTS
from .sweeps import SWEEPS

CANVAS = {"png": FigureCanvasAgg, "svg": FigureCanvasSVG}
MARKS = "osD^vP*X<>h"
COLOURS = ("#1b6ca8", "#d1495b", "#66a182", "#edae49", "#6a4c93", "#8d6e63", "#00798c", "#b56576",
           "#5c677d", "#111111", "#ff7f0e")


def _figure(title):
    figure = Figure(figsize=(9, 5.2), layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title)
    axes.grid(True, alpha=0.3)
    return figure, axes


def sweep_figure(records, knob, title):
    """Step time of every placement over one parameter; crosses on top mark those that do not
    fit."""
    figure, axes = _figure(title)
    values = list(dict.fromkeys(record["value"] for record in records))
    times = [record["seconds"] for record in records if record["seconds"]]
    top = 2e3 * max(times, default=1e-3)
    for name, mark, colour in zip(PLACEMENTS, MARKS, COLOURS, strict=True):
        own = {record["value"]: record["seconds"] for record in records
               if record["placement"] == name}
        fits = [value for value in values if own.get(value)]
        missing = [values.index(value) for value in values if not own.get(value)]
        if fits:
            axes.plot([values.index(value) for value in fits],
                      [1e3 * own[value] for value in fits], marker=mark, color=colour, label=name)
            axes.plot(missing, [top] * len(missing), "x", color=colour)
        else:
            axes.plot([], [], "x", color=colour, label=f"{name}: not possible here")
    axes.axhline(top, color="grey", linewidth=0.7, linestyle=":")
    axes.annotate("x: does not fit", (0, top), fontsize=8, color="grey", va="bottom")
    axes.set_yscale("log")
    axes.set_xticks(range(len(values)), [str(value) for value in values])
    axes.set_xlabel(SWEEPS[knob][0])
    axes.set_ylabel("time of a training step (ms), projected")
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def parts_figure(answers, title):
    """The parts of each placement's step."""
    figure, axes = _figure(title)
    fitting = sorted((each for each in answers if each.step), key=lambda each: each.seconds)
    parts = list(dict.fromkeys(part for each in fitting for part in each.step.parts))
    shades = {part: COLOURS[at % len(COLOURS)] for at, part in enumerate(parts)}
    left = [0.0] * len(fitting)
    for part in parts:
        widths = [1e3 * each.step.parts.get(part, 0.0) for each in fitting]
        hatch = "//" if parts.index(part) >= len(COLOURS) else None
        axes.barh(range(len(fitting)), widths, left=left, color=shades[part], label=part,
                  hatch=hatch)
        left = [before + width for before, width in zip(left, widths, strict=True)]
    axes.plot([1e3 * each.seconds for each in fitting], range(len(fitting)), "k|", markersize=18,
              label="step, after overlap")
    axes.set_yticks(range(len(fitting)), [each.placement for each in fitting])
    axes.invert_yaxis()
    axes.set_xlabel("time (ms), projected; parts that overlap others are drawn in full")
    axes.set_ylabel("placement")
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def validation_figure(result):
    """Published ratios and the model's."""
    figure, axes = _figure("Published ratios and the model")
    low, high = 0.4, 6.0
    axes.fill_between([low, high], [0.7 * low, 0.7 * high], [1.3 * low, 1.3 * high], alpha=0.15,
                      color="grey", label="within 30 %")
    axes.plot([low, high], [low, high], color="grey", linewidth=0.8, label="equal")
    axes.axhline(result["best_constant"], color="grey", linestyle=":", label="best constant")
    for fitted, mark, label in ((True, "s", "fitted"), (False, "o", "not fitted")):
        own = [each for each in result["published"] if each["fitted"] == fitted]
        axes.plot([each["published"] for each in own], [each["model"] for each in own], mark,
                  label=label)
        for each in own:
            axes.annotate(each["name"], (each["published"], each["model"]), fontsize=7,
                          xytext=(5, -9) if fitted else (-5, 5), textcoords="offset points",
                          ha="left" if fitted else "right")
    axes.set(xscale="log", yscale="log", xlabel="published speed-up (times)",
             ylabel="model's speed-up (times), projected", xlim=(low, high), ylim=(low, high))
    ticks = (0.5, 1, 2, 3, 5)
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.set_yticks(ticks, [str(tick) for tick in ticks])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.legend(fontsize=8, loc="lower right")
    return figure


def save(figure, path, kind):
    """Write one figure as PNG or SVG."""
    path = Path(path).with_suffix(f".{kind}")
    CANVAS[kind](figure)
    figure.savefig(path, format=kind, dpi=130)
    return path
