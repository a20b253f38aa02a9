"""The fastest placement, and sweeps over one parameter."""

from dataclasses import dataclass, replace

from . import cards
from .cards import PublishedAccelerator
from .constants import read
from .placements import OURS, PLACEMENTS, WITH_CARD, WITHOUT_CARD, DoesNotFit, Question
from .systems import GB

MB = 2**20
FREE_CORES = (2, 8, None)  # None: all
SWEEPS = {  # by parameter: label with its unit, values
    "dense": ("dense features", (64, 256, 1024, 4096)),
    "sparse": ("sparse features (tables)", (4, 8, 16, 32, 64, 128)),
    "batch": ("batch (samples)", (256, 512, 1024, 2048, 4096, 8192)),
    "hash": ("hash size (rows per table)", (10**5, 10**6, 10**7, 4 * 10**7)),
    "mlp": ("MLP, width^layers", ((64, 2), (256, 3), (512, 3), (1024, 3), (2048, 4))),
    "pooling": ("lookups per sparse feature", (1, 4, 16, 32)),
    "hot": ("hot rows at the trainer (MB)", (16, 64, 256, 1024, 4096)),
    "card": ("card", ("ecp5", "alveo-u55c", "no bottleneck")),
    "link": ("link of host to GPU (GB/s)", (2, 6, 12, 24, 50)),
}


@dataclass(frozen=True)
class Answer:
    """Answer of one placement: `step` (StepTime), or the `reason` why it does not fit; `title` says
    where one GPU of several trains alone."""

    placement: str
    step: object = None
    reason: str = ""
    title: str = ""

    @property
    def seconds(self):
        return self.step.seconds if self.step else None


def answers(question, names=PLACEMENTS) -> list[Answer]:
    """Every placement's answer to one question."""
    found = []
    for name in names:
        try:
            found.append(Answer(name, PLACEMENTS[name](question)))
        except DoesNotFit as reason:
            found.append(Answer(name, reason=str(reason)))
    return found


def fastest(question, names):
    """The fastest answer of these placements that fits, or None.

    Caches have the hot budget, or all of the GPU's memory if that is faster, as a user without a
    card would use it. One GPU trains alone if that is faster than all: no gradients are exchanged.
    """
    gpus = question.system.gpus
    fitting = [replace(answer, title=answer.placement + " on one GPU" * (each.system.gpus != gpus))
               for each in variants(question) for answer in answers(each, names) if answer.step]
    return min(fitting, key=lambda answer: answer.seconds, default=None)


def variants(question):
    """The question with the hot budget or all of the GPU's memory, on all GPUs or one."""
    system = question.system
    whole = question.constants.usable_memory * system.gpu_memory_gb * GB
    return [replace(question, hot_bytes=hot_bytes, system=system.changed(gpus=gpus))
            for gpus in sorted({system.gpus, min(1, system.gpus)}, reverse=True)
            for hot_bytes in ((question.hot_bytes, whole) if gpus else (question.hot_bytes,))]


def kind_of(card, software, others, least):
    """The verdict of the seconds of the fastest placement with a card, of hotrow without one, and
    of all others, None where nothing fits: the one `least` times faster than the rest."""
    plain = min((each for each in (software, others) if each), default=None)
    if card and (plain is None or plain >= least * card):
        return "card"
    if software and (others is None or others >= least * software):
        return "software"
    return "neither"


def cores_replaced(question, card) -> int | None:
    """Fewest cores of the host with which some placement without a card is as fast as `card`.

    None if all cores are not enough, or nothing with a card fits.
    """
    def slower(cores):
        plain = fastest(_with_cores(question, cores), WITHOUT_CARD)
        return plain is None or plain.seconds > card.seconds

    if card is None or slower(question.system.cores):
        return None
    few, enough = 0, question.system.cores
    while enough - few > 1:
        middle = (few + enough) // 2
        few, enough = (middle, enough) if slower(middle) else (few, middle)
    return enough


def _with_cores(question, cores):
    return replace(question, system=question.system.with_free_cores(cores))


def with_free_cores(question, free_cores=FREE_CORES):
    """The question with each number of the host's cores free, None for all."""
    return [_with_cores(question, cores or question.system.cores) for cores in free_cores]


def _cores_name(cores):
    return "all" if cores is None else str(cores)


def verdicts(questions, free_cores=FREE_CORES) -> list[dict]:
    """The verdict of every question over the number of cores that the trainers leave free.

    Parameters
    ----------
    questions : iterable of Question
    free_cores : tuple of (int or None)
        None for all of a system's cores.

    Returns
    -------
    list of dict
        "workload", "system", "cores_replaced" of all cores, and by number of cores, "all" for all,
        the fields of `recommend`.
    """
    records = []
    for question in questions:
        by_cores = {_cores_name(cores): recommend(each) for cores, each in zip(
            free_cores, with_free_cores(question, free_cores), strict=True)}
        records.append({"workload": question.workload.name, "system": question.system.name,
                        "cores": question.system.cores, "by_free_cores": by_cores})
    return records


def recommend(question) -> dict:
    """The verdict whether a card helps, and the best placement with and without one: see
    `fastest`."""
    plain = fastest(question, WITHOUT_CARD)
    others = fastest(question, tuple(name for name in WITHOUT_CARD if name not in OURS))
    unbound = question.card is None
    if unbound:
        question = replace(question, card=PublishedAccelerator())
    card = fastest(question, WITH_CARD)
    least = question.constants.worthwhile_gain
    software = plain.seconds if plain and plain.placement in OURS else None
    if plain is None and card is None:
        verdict = "does not fit: these tables fit no placement on this system"
    elif card is None:
        verdict = f"no card: {plain.title} is best; no placement with a card fits this system"
    elif unbound and (plain is None or plain.seconds >= least * card.seconds):
        verdict = (f"undecided: {plain.title if plain else 'nothing'} is best without a card; "
                   "a card without bottleneck would help, but no card has a measured rate")
    elif plain is None:
        verdict = f"card: these tables only fit {card.title} on this system"
    elif plain.seconds < least * card.seconds:
        verdict = (f"no card: {plain.title} takes {1e3 * plain.seconds:.2f} ms a step, "
                   f"{card.title} with {'an ideal card' if unbound else 'a card'} "
                   f"{1e3 * card.seconds:.2f} ms "
                   f"(a card must be at least {least:g} times faster)")
    else:
        verdict = (f"card: {card.title} is {plain.seconds / card.seconds:.2f} times faster "
                   f"than {plain.title}, the best without one")
    kind = kind_of(None if unbound else card and card.seconds, software,
                   others and others.seconds, least)
    return {"verdict": verdict, "card": kind == "card", "kind": kind,
            "gain": plain.seconds / card.seconds if plain and card else None,
            "cores_replaced": cores_replaced(question, card),
            "without_card": plain and plain.title,
            "with_card": card and card.title,
            "loading_cores": plain and loading_cores(question, plain.seconds),
            "seconds": min((each.seconds for each in (plain, card) if each), default=None)}


def loading_cores(question, seconds):
    """Cores of the host that read and map the ids of a step in that time."""
    c, lookups = question.constants, question.workload.step_lookups
    return lookups * c.load_ns * 1e-9 / seconds / question.system.core_rate(c)


PER_TABLE = ("hybrid", "static-cache", "frequency-cache", *WITH_CARD)  # with tables held wholly
SHARES = (0, 1 / 64, 1 / 16, 1 / 4, 1 / 2, 1)  # of a trainer's memory for such tables


def per_table(question) -> dict | None:
    """The fastest placement of each table: wholly at the trainer, or as the others.

    Tables with the fewest rows per lookup are held first, up to a share of the trainer's memory.

    Returns
    -------
    dict or None
        "placement" of the other tables, "seconds" of the step, and "tables" with the place of
        each; None if nothing fits.
    """
    work, best = question.workload, None
    order = sorted(range(work.tables), key=lambda at: work.rows[at] / work.lookups[at])
    room = question.constants.usable_memory * question.system.gpu_memory_gb * GB
    held = set()
    for share in SHARES:
        whole, octets = [], 0
        for at in order[:-1]:  # the placement has at least one table
            octets += work.rows[at] * work.row_bytes
            if octets <= share * room:
                whole.append(at)
        if (whole := frozenset(whole)) in held:
            continue
        held.add(whole)
        held_bytes = replace(question, whole=whole).whole_bytes
        for hot_bytes in (question.hot_bytes, room - held_bytes):  # or all that is left
            for answer in answers(replace(question, whole=whole, hot_bytes=hot_bytes), PER_TABLE):
                if answer.step and (best is None or answer.seconds < best[0].seconds):
                    best = answer, whole
    if best is None:
        return None
    answer, whole = best
    return {"placement": answer.placement, "seconds": answer.seconds, "tables": [
        {"table": at, "rows": rows, "lookups": lookups, "mb": rows * work.row_bytes / MB,
         "place": "trainer's memory" if at in whole else answer.placement}
        for at, (rows, lookups) in enumerate(zip(work.rows, work.lookups, strict=True))]}


def turned(question, knob, value) -> Question:
    """The question with one parameter changed."""
    if knob == "hot":
        return replace(question, hot_bytes=value * MB)
    if knob == "link":
        return replace(question, system=question.system.changed(link_gbps=value))
    if knob == "card":
        return _with_card(question, value)
    work = question.workload
    if work.trace is not None and knob in ("sparse", "hash", "pooling"):
        raise KeyError(knob)
    return replace(question, workload=work.changed(**{knob: value}))


def _with_card(question, name):
    if name not in read("cards"):
        return replace(question, card=PublishedAccelerator())
    try:
        return replace(question, card=cards.find(name))
    except cards.NoResult as missing:
        return replace(question, card=None, why_no_card=str(missing))


def knobs(question):
    """The sweeps of this question; a trace fixes its tables and lookups."""
    fixed = ("sparse", "hash", "pooling") if question.workload.trace is not None else ()
    return [knob for knob in SWEEPS if knob not in fixed]


def sweep(question, knob) -> list[dict]:
    """One record per value and placement: projected seconds, or the reason why it does not fit."""
    records = []
    for value in SWEEPS[knob][1]:
        for each in answers(turned(question, knob, value)):
            shown = f"{value[0]}^{value[1]}" if knob == "mlp" else value
            records.append({"knob": knob, "value": shown, "placement": each.placement,
                            "seconds": each.seconds, "reason": each.reason})
    return records
