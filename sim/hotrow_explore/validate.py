"""The model compared with published ratios, and with a study's qualitative findings."""

from dataclasses import dataclass, replace
from itertools import pairwise
from math import exp, log

from . import systems, workloads
from .cards import PublishedAccelerator
from .constants import read
from .placements import PLACEMENTS, DoesNotFit, Question

WITHIN = 0.30
UNTURNED = ("usable_memory", "worthwhile_gain")  # no rates, so that doubling is meaningless
HUGE = 16_000_000  # rows of each of 32 tables: more than Big Basin's HBM, less than its host's
HOT_BYTES = 256 * 2**20  # the middle of the budgets of 128, 256 and 512 MB that FAE gives


@dataclass(frozen=True)
class Ratio:
    """One published ratio and the model's; `fitted` if a constant was adjusted to it."""

    name: str
    title: str
    published: float
    model: float
    fitted: bool
    setting: str

    @property
    def close(self):
        return abs(self.model / self.published - 1) <= WITHIN

    @property
    def error(self):
        """Absolute log of model over published."""
        return abs(log(self.model / self.published))


def ratios(constants) -> list[Ratio]:
    """The model's answer to every published ratio."""
    return [Ratio(name, entry["title"], entry["value"], _ratio(entry, constants),
                  entry["fitted"], entry["setting"])
            for name, entry in read("published").items()]


def _ratio(entry, constants):
    return combined(entry, [
        PLACEMENTS[entry["theirs"]](theirs).seconds / PLACEMENTS[entry["ours"]](ours).seconds
        for ours, theirs in cases(entry, constants)])


def combined(entry, ratios):
    """One ratio of those of all settings: the largest or the geometric mean, as published."""
    return max(ratios) if entry.get("largest") else exp(sum(map(log, ratios)) / len(ratios))


def cases(entry, constants, card=None):
    """The questions (ours, theirs) of every setting of a published result; without a card of the
    caller's with one that bounds nothing."""
    card = card or PublishedAccelerator()
    for name in entry["workloads"]:
        for system in map(systems.find, entry["systems"]):
            for slope in entry.get("slopes", [None]):
                work = workloads.find(name)
                changes = {key: entry[key] for key in ("batch", "dim") if key in entry}
                if slope is not None:
                    changes["slope"] = slope
                if entry.get("batch_per_gpu"):
                    changes["batch"] = work.batch * system.gpus
                yield _case(entry, constants, work.changed(**changes), system, card)


def _case(entry, constants, work, system, card):
    share = entry.get("cached") or (entry.get("hot_share") and constants.static_cache_share)
    hot_bytes = share * work.table_bytes if share else HOT_BYTES
    framework = entry.get("framework", "fused")
    ours = Question(work, system, constants, hot_bytes, card, framework)
    return ours, replace(ours, framework=entry.get("their_framework", framework))


def best_constant(published):
    """The constant of least mean absolute log error: the geometric median."""
    ranked = sorted(published)
    half = len(ranked) // 2
    return ranked[half] if len(ranked) % 2 else (ranked[half - 1] * ranked[half]) ** 0.5


def rank_correlation(first, second):
    """Spearman's, equal values sharing the mean of their ranks."""
    def ranked(values):
        order = sorted(values)
        return [order.index(value) + (order.count(value) - 1) / 2 for value in values]

    one, two = ranked(first), ranked(second)
    mean = (len(one) - 1) / 2
    above = sum((a - mean) * (b - mean) for a, b in zip(one, two, strict=True))
    below = (sum((a - mean) ** 2 for a in one) * sum((b - mean) ** 2 for b in two)) ** 0.5
    return above / below if below else 0.0


def score(found) -> dict:
    """Figures of `hotrow explore --validate` over a list of ratios."""
    published, model = [each.published for each in found], [each.model for each in found]
    constant = best_constant(published)
    ours = sum(each.error for each in found) / len(found)
    theirs = sum(abs(log(constant / value)) for value in published) / len(found)
    most = max(sum(abs((1 + WITHIN) * low / value - 1) <= WITHIN + 1e-9 for value in published)
               for low in published)  # a best constant is at the upper bound of some result
    others = [each for each in found if not each.fitted]
    constant_others = best_constant([each.published for each in others])
    return {
        "within_30_percent": sum(each.close for each in found),
        "rank_correlation": rank_correlation(published, model),
        "geometric_mean_error": exp(ours) - 1,
        "best_constant": constant,
        "best_constant_error": exp(theirs) - 1,
        "most_within_of_a_constant": most,
        "error_over_best_constant": ours / theirs,
        "not_fitted": len(others),
        "not_fitted_within_30_percent": sum(each.close for each in others),
        "not_fitted_error": exp(sum(each.error for each in others) / len(others)) - 1,
        "not_fitted_best_constant_error": exp(sum(
            abs(log(constant_others / each.published)) for each in others) / len(others)) - 1,
    }


@dataclass(frozen=True)
class Finding:
    """A qualitative finding, and the values that confirm or refute it."""

    name: str
    reproduced: bool
    evidence: str


def gpu_gain(work, constants, system="big-basin"):
    """Speed-up of the best GPU placement over CPUs with parameter servers, as in the study."""
    base = Question(work, systems.find("ps-fleet"), constants, framework="caffe2")
    question = Question(work, systems.find(system), constants, framework="caffe2")
    return _seconds("parameter-servers", base) / min(
        _seconds(name, question) for name in ("gpu-tables", "gpu-rows", "hybrid"))


def _seconds(name, question):
    try:
        return PLACEMENTS[name](question).seconds
    except DoesNotFit:
        return float("inf")


def findings(constants) -> list[Finding]:
    """The study's qualitative findings, each with its check."""
    base = workloads.find("study")
    sweeps = (
        ("gains grow with dense features", "dense", (64, 256, 1024, 4096), 1),
        ("gains grow with MLP size", "mlp", ((64, 2), (512, 3), (1024, 3), (2048, 4)), 1),
        ("gains grow with batch", "batch", (200, 800, 1600, 3200), 1),
        ("gains shrink with sparse features", "sparse", (4, 16, 64, 128), -1),
        ("gains shrink with lookups per feature", "pooling", (1, 4, 16, 32), -1),
    )
    found = []
    for name, knob, values, sign in sweeps:
        gains = [gpu_gain(base.changed(**{knob: value}), constants) for value in values]
        steps = [sign * (after - before) for before, after in pairwise(gains)]
        found.append(Finding(name, all(step > 0 for step in steps), ", ".join(
            f"{value}: {gain:.2f}x" for value, gain in zip(values, gains, strict=True))))
    dots = [gpu_gain(base.changed(sparse=value, interaction="dot"), constants)
            for value in (4, 128)]
    found[3] = replace(found[3], evidence=f"{found[3].evidence} (with the dot product of all pairs"
                       f" instead of the assumed sum: {dots[0]:.2f}x to {dots[1]:.2f}x)")
    small = gpu_gain(base.changed(hash=100_000), constants)
    large = gpu_gain(base.changed(hash=HUGE), constants)
    off = _seconds("gpu-rows", Question(base.changed(hash=HUGE),
                                        systems.find("big-basin"), constants,
                                        framework="caffe2")) == float("inf")
    found.append(Finding("large hash sizes push tables off HBM and the gain falls",
                         off and large < small,
                         f"100 k rows: {small:.2f}x; 16 M rows: "
                         f"{'off HBM' if off else 'in HBM'}, {large:.2f}x"))
    best = {}
    for name in ("big-basin", "zion"):
        question = Question(workloads.find("m2"), systems.find(name), constants,
                            framework="caffe2")
        best[name] = min(("gpu-tables", "gpu-rows", "hybrid"),
                         key=lambda placement: _seconds(placement, question))
    found.append(Finding("best placement of M2 flips from HBM on Big Basin to host DRAM on Zion",
                         best["big-basin"].startswith("gpu") and best["zion"] == "hybrid",
                         ", ".join(f"{name}: {place}" for name, place in best.items())))
    return found


def sensitivity(constants) -> list[dict]:
    """Score with one assumed constant halved or doubled."""
    outcome = []
    for name, constant in constants.documented.items():
        if constant.kind != "assumed" or name in UNTURNED:
            continue
        for factor in (0.5, 2.0):
            turned = score(ratios(constants.replaced(**{name: constant.value * factor})))
            outcome.append({"constant": name, "factor": factor,
                            **{key: turned[key] for key in ("within_30_percent",
                               "rank_correlation", "error_over_best_constant")}})
    return sorted(outcome, key=lambda each: -each["error_over_best_constant"])


def passed(result):
    """Whether the model reaches the requirements set before the comparison."""
    return (result["error_over_best_constant"] <= 0.5 and result["rank_correlation"] >= 0.8
            and result["within_30_percent"] >= 6
            and result["qualitative_reproduced"] == result["qualitative_findings"])


def validation(constants) -> dict:
    """Everything of `hotrow explore --validate`, as JSON."""
    found, qualitative = ratios(constants), findings(constants)
    return {
        "published": [{"name": each.name, "title": each.title, "published": each.published,
                       "model": each.model, "fitted": each.fitted, "setting": each.setting}
                      for each in found],
        **score(found),
        "sensitivity": sensitivity(constants),
        "qualitative": [vars(each) for each in qualitative],
        "qualitative_reproduced": sum(each.reproduced for each in qualitative),
        "qualitative_findings": len(qualitative),
        "projected": True,
    }
