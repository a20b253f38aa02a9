"""Plots: one page per question, with units, and marks for placements that do not fit."""

import io

from matplotlib import rc_context
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from . import sweeps
from .placements import PLACEMENTS

NEAR = 2.0  # times the best step within which a placement has a colour
MARKS = "osD^vP*X<>hpd8H12"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#e69f00", "#cc79a7", "#56b4e9", "#8c564b", "#b8a500",
           "#7f3c8d", "#000000", "#e7298a", "#66a61e", "#a6761d", "#1b9e77", "#3b528b", "#fb9a99",
           "#6a3d9a")


def _figure(title):
    figure = Figure(figsize=(9, 5.2), layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title)
    axes.grid(True, alpha=0.3)
    return figure, axes


def sweep_figure(records, knob, title):
    """Step time of every placement over one parameter.

    Colours are for placements that come near the best somewhere, grey is for the others. Crosses
    on top mark values at which a placement does not fit.
    """
    figure, axes = _figure(title)
    values = list(dict.fromkeys(record["value"] for record in records))
    times: dict[str, dict] = {}
    for record in records:
        if record["seconds"]:
            times.setdefault(record["placement"], {})[record["value"]] = 1e3 * record["seconds"]
    best = {value: min((own[value] for own in times.values() if value in own), default=None)
            for value in values}
    top = 1.6 * max((each for own in times.values() for each in own.values()), default=1)
    ranked = sorted(times, key=lambda name: min(
        own / best[value] for value, own in times[name].items()))
    near = [name for name in ranked if any(
        own <= NEAR * best[value] for value, own in times[name].items())]
    for name in reversed(ranked):
        own, bold = times[name], name in near
        colour = COLOURS[list(PLACEMENTS).index(name)] if bold else "#bbbbbb"
        axes.plot([values.index(value) for value in own], list(own.values()), color=colour,
                  marker=MARKS[list(PLACEMENTS).index(name)], linewidth=2 if bold else 0.8,
                  markersize=6 if bold else 3, label=name, zorder=3 if bold else 2)
        axes.plot([values.index(value) for value in values if value not in own],
                  [top] * (len(values) - len(own)), "x", color=colour)
    for name in PLACEMENTS:
        if name not in times:
            axes.plot([], [], "x", color="#bbbbbb", label=f"{name}: not possible here")
    axes.axhline(top, color="grey", linewidth=0.7, linestyle=":")
    axes.annotate("x: does not fit", (0, top), fontsize=8, color="grey", va="bottom")
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xticks(range(len(values)), [_tick(value) for value in values])
    axes.set_xlabel(sweeps.SWEEPS[knob][0])
    axes.set_ylabel("time of a training step (ms), projected")
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def _tick(value):
    """A value of a sweep, short: 40000000 as 40 M."""
    if not isinstance(value, int) or value < 10_000:
        return str(value)
    return f"{value / 1e6:g} M" if value >= 10**6 else f"{value / 1e3:g} k"


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


def svg(figure) -> str:
    """The figure as an SVG element, the same bytes for the same figure."""
    FigureCanvasSVG(figure)
    file = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "hotrow"}):
        figure.savefig(file, format="svg", metadata={"Date": None})
    text = file.getvalue()
    return text[text.index("<svg"):]
