"""Which constants decide a verdict: each is moved to both ends of its range."""

from collections import Counter
from dataclasses import replace

from .placements import OURS, PLACEMENTS, WITH_CARD, DoesNotFit
from .sweeps import kind_of, variants

FAR = 4.0  # times the fastest from which a placement cannot win within the ranges


class Setting:
    """The placements of a question that come near the fastest."""

    def __init__(self, question):
        self.question = question
        found = [(name, each, _seconds(name, each)) for each in variants(question)
                 for name in PLACEMENTS]
        least = min((seconds for *_, seconds in found if seconds), default=0.0)
        self.near = [(name, each) for name, each, seconds in found
                     if seconds and seconds <= FAR * least]
        self.groups = {_group(name) for name, _ in self.near}

    def kind(self, constants):
        """The verdict with these constants."""
        if len(self.groups) < 2:
            return "neither" if self.groups <= {"others"} else next(iter(self.groups))
        least: dict[str, float] = {}
        for name, each in self.near:
            seconds = _seconds(name, replace(each, constants=constants))
            if seconds:
                group = _group(name)
                least[group] = min(seconds, least.get(group, seconds))
        return kind_of(least.get("card"), least.get("software"), least.get("others"),
                       constants.worthwhile_gain)


def _group(name):
    return "card" if name in WITH_CARD else "software" if name in OURS else "others"


def _seconds(name, question):
    try:
        return PLACEMENTS[name](question).seconds
    except DoesNotFit:
        return None


def turned(constants):
    """(name, value, the constants with it) at both ends of every range."""
    return [(name, value, constants.replaced(**{name: value}))
            for name, each in constants.documented.items() for value in each.within]


def sensitivity(questions, constants) -> dict:
    """What the constants decide.

    Parameters
    ----------
    questions : list of Question
    constants : Constants

    Returns
    -------
    dict
        "flips": for each question {constant: {value: verdict}} of those that change its verdict.
        "counts": of each verdict its "value", and of the constants that change it "kind", "value",
        "within" and "counts", least and most.
    """
    settings = [Setting(question) for question in questions]
    nominal = [each.kind(constants) for each in settings]
    flips: list[dict] = [{} for _ in settings]
    totals = Counter(nominal)
    counts = {kind: {"value": totals[kind], "with": {}} for kind in ("card", "software")}
    for name, value, known in turned(constants):
        kinds = [each.kind(known) for each in settings]
        for found, before, after in zip(flips, nominal, kinds, strict=True):
            if after != before:
                found.setdefault(name, {})[value] = after
        for kind, count in counts.items():
            now = kinds.count(kind)
            if now != count["value"]:
                each = constants.documented[name]
                found = count["with"].setdefault(name, {
                    "kind": each.kind, "value": each.value, "within": list(each.within),
                    "counts": [count["value"]] * 2})["counts"]
                found[:] = min(found[0], now), max(found[1], now)
    return {"flips": flips, "counts": counts}
