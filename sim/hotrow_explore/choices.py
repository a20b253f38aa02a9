"""For a model over all machines: the fastest, the cheapest, and how little memory would do."""

from dataclasses import replace

from .placements import PLACEMENTS, WITHOUT_CARD, DoesNotFit
from .sweeps import fastest

BILLION = 1e9
LEAST_GB = 0.25  # of host memory that is tried


def choices(questions) -> list[dict]:
    """One record for each workload of the questions.

    Returns
    -------
    list of dict
        "workload", "table_gb"; "fastest" and "cheapest", without a card, with "system",
        "placement", "ms" of a step and "usd" of a billion samples; "least_memory" with "gb" and
        "system": host memory with which `disk` is within the worthwhile gain of that machine's
        fastest placement, or None.
    """
    records: dict[str, list] = {}
    for question in questions:
        answer = fastest(question, tuple(WITHOUT_CARD))
        if answer:
            records.setdefault(question.workload.name, []).append((question, answer))
    return [_choice(found) for found in records.values()]


def _choice(found):
    work = found[0][0].workload
    rented = [each for each in found if each[0].system.usd_hour]
    least = [{"gb": gb, "system": question.system.name} for question, answer in found if (
        gb := least_memory(question, question.constants.worthwhile_gain * answer.seconds))]
    return {"workload": work.name, "table_gb": work.table_bytes / 1e9,
            "fastest": _named(*min(found, key=lambda each: each[1].seconds)),
            "cheapest": _named(*min(rented, key=lambda each: _usd(*each))),
            "least_memory": min(least, key=lambda each: each["gb"], default=None)}


def _usd(question, answer):
    return (answer.seconds / 3600 * question.system.usd_hour * BILLION / question.workload.batch)


def _named(question, answer):
    return {"system": question.system.name, "placement": answer.title,
            "ms": 1e3 * answer.seconds, "usd": _usd(question, answer)}


def least_memory(question, seconds):
    """GB of host memory, halved from the system's, with which `disk` takes at most that long."""
    least, memory = None, question.system.host_memory_gb
    while memory >= LEAST_GB:
        try:
            step = PLACEMENTS["disk"](replace(
                question, system=question.system.changed(host_memory_gb=memory)))
        except DoesNotFit:
            break
        if step.seconds > seconds:
            break
        least, memory = memory, memory / 2
    return least
