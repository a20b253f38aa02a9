"""The settings of published results on the card's cycles, beside the papers' headlines.

Ours is the schedule of `hotrow bench end-to-end`; theirs, which no card takes part in, is the
explorer's projection. A published cache that is larger than the card's directory is cut to it.
"""

from dataclasses import replace

from . import cards, constants
from .constants import read
from .placements import PLACEMENTS
from .systems import ExploreError
from .validate import cases, combined, ratios

MODES = {"hotline": "hotline", "scratchpipe": "scratchpipe", "frequency-cache": "freqcache"}


def compare(options, run, steps) -> list[dict]:
    """One record per published result of a system that a card runs.

    Parameters
    ----------
    options : argparse.Namespace
        Of the command; `published` has the names.
    run : callable
        From (mode, Question, advance) to the figures of the mode.
    steps : hotrow.terminal.Steps

    Raises
    ------
    ExploreError
        A name is none of a published result, or the card has no rates.
    """
    known, card = constants.load(), cards.find(options.preset)
    entries = {name: entry for name, entry in read("published").items() if entry["ours"] in MODES}
    wanted = entries if options.published == ("all",) else options.published
    for name in wanted:
        if name not in entries:
            raise ExploreError(f"--published names all or some of {','.join(entries)}, not {name}")
    ideal = {each.name: each.model for each in ratios(known)}
    records, done = [], {}
    for name in wanted:
        entry, speedups, against = entries[name], [], []
        settings = list(cases(entry, known, card))
        advance = steps.begin(name, len(settings))
        for ours, theirs in settings:
            rows = int(min(ours.hot_rows, card.slots))
            ours = replace(ours, hot_bytes=rows * ours.workload.row_bytes)
            at = (entry["ours"], ours.workload, ours.system, ours.framework, rows)
            if at not in done:  # several results share settings
                done[at] = run(MODES[entry["ours"]], ours)
            speedups.append(1e3 * PLACEMENTS[entry["theirs"]](theirs).seconds
                            / done[at]["step_ms"])
            against.append(done[at]["over_explore"])
            advance()
        compared = [each for each in against if each]
        records.append({
            "result": name, "published": entry["value"], "end_to_end": combined(entry, speedups),
            "explorer_ideal_card": ideal[name], "settings": len(settings),
            "over_explorer_least": min(compared, default=None),
            "over_explorer_most": max(compared, default=None),
            "settings_beyond_the_slots": len(against) - len(compared)})
    return records
