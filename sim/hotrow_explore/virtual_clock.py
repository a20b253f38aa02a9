"""The schedule of a training pipeline on a virtual clock: stages of batches on resources in order.

The rules are those of `hotrow.torch.store.batch_stages`: a batch is planned once the batch `depth`
before it has trained; its rows are read once the write-backs that could change them have landed; it
trains when its rows are in their slots. Stages of different batches overlap.
"""

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

from hotrow.timeline import LANES, LINK, LOOKUP, MOVE, TRAINER, Slices

DRIVER = "driver"  # lane of the timeline
DEPTH, LOOK_AHEAD = 4, 2  # batches planned and not trained, and marked beyond them
WARM_UP = DEPTH + LOOK_AHEAD  # first batches, which are not timed
ENGINES = {"drive": "driver", "plan": "lookup", "gather": "move", "down": "down", "up": "up",
           "write_back": "move", "popular": "trainer", "train": "trainer"}  # what serves each stage
SHARED = ENGINES | dict.fromkeys(("plan", "gather", "write_back"), "cores")
STALLS = ("driver", "plan", "gather", "link", "write_back", "order")


@dataclass(frozen=True)
class BatchTimes:
    """Seconds of one batch's stages, and what they depend on.

    Parameters
    ----------
    plan, gather, write_back : float
        SPLIT or PLAN with MARK, GATHER of the rows that the trainer lacks, SCATTER of those that
        return.
    down, up : float
        The link to the trainer and back.
    popular, train : float
        Training of samples that need no fetched row, then of the others.
    drive : float
        The driver's own time on a core of the host, before the batch is planned.
    wait_for : int
        Batch whose rows must be in the tables before this batch's are read; -1 for none.
    """

    plan: float
    gather: float
    write_back: float
    down: float
    up: float
    popular: float
    train: float
    drive: float = 0.0
    wait_for: int = -1


class Schedule:
    """Times of every stage of every batch.

    Parameters
    ----------
    batches : list of BatchTimes
    hotline : bool
        A batch's rows return to the tables after it trained; else victims return before.
    shared : bool
        One resource plans and moves rows: the host's cores, in the schedule without a card.

    Attributes
    ----------
    spans : dict of str to list of (float, float)
        Start and end of each stage by batch: "drive", "plan", "gather", "down", "up", "write_back",
        "popular", "train".
    step_seconds : float
        Mean time from step to step, without the first `WARM_UP` batches and the last `DEPTH`, at
        most a third and a quarter of all.
    """

    def __init__(self, batches, hotline, shared=False):
        self.batches, self.hotline = batches, hotline
        self.spans = defaultdict(list)
        self._engines = SHARED if shared else ENGINES
        free: dict[str, float] = defaultdict(float)
        while start := self._earliest(free):
            began, _, stage = start
            end = began + getattr(batches[len(self.spans[stage])], stage)
            free[self._engines[stage]] = end
            self.spans[stage].append((began, end))
        ends = [end for _, end in self.spans["train"]]
        self._first, last = min(WARM_UP, len(ends) // 3), len(ends) - 1 - min(DEPTH, len(ends) // 4)
        self._timed = range(self._first + 1, last + 1)
        self.step_seconds = ((ends[last] - ends[self._first]) / len(self._timed) if self._timed
                             else ends[last])

    def _earliest(self, free):
        """(start, rank, stage) of the stage that can start first; of several the one that brings a
        batch furthest. None at the end."""
        found = []
        for rank, stage in enumerate(self._engines):
            number = len(self.spans[stage])
            after = [(each, before) for each, before in self._after(stage, number) if before >= 0]
            if number < len(self.batches) and all(
                    before < len(self.spans[each]) for each, before in after):
                ready = max((self.spans[each][before][1] for each, before in after), default=0.0)
                found.append((max(ready, free[self._engines[stage]]), -rank, stage))
        return min(found, default=None)

    def _after(self, stage, number):
        """(stage, batch) of what must end before a stage of a batch starts."""
        if number >= len(self.batches):
            return []
        if stage == "drive":
            return [("train", number - DEPTH)]
        if stage == "plan":
            return [("drive", number)]
        if self.hotline:
            return {
                "gather": [("plan", number), ("write_back", number - 1)],
                "down": [("gather", number)],
                "popular": [("plan", number), ("train", number - 1)],
                "train": [("popular", number), ("down", number)],
                "up": [("train", number)], "write_back": [("up", number)]}[stage]
        return {
            "gather": [("plan", number), ("write_back", number - LOOK_AHEAD - 1),
                       ("train", self.batches[number].wait_for)],
            "down": [("gather", number)], "up": [("gather", number)],
            "write_back": [("up", number), ("down", number)],
            "popular": [("write_back", number), ("train", number - 1)],
            "train": [("popular", number)]}[stage]

    def hidden(self, *stages):
        """Share of the time of stages in which the trainer was busy; None if they took none."""
        spans = [span for stage in stages for span in self._of_timed(stage)]
        total = sum(end - start for start, end in spans)
        idle = sum(_common(gap, span) for gap, _ in self._gaps() for span in spans)
        return 1 - idle / total if total else None

    def stalls(self):
        """Milliseconds per step in which the trainer waited, by the stage that it waited for."""
        waited = dict.fromkeys(STALLS, 0.0)
        for gap, number in self._gaps():
            left = gap[1] - gap[0]
            for cause, stages in (("driver", ("drive",)), ("gather", ("gather",)),
                                  ("link", ("down", "up")), ("plan", ("plan",)),
                                  ("write_back", ("write_back",))):
                # A batch reads its rows after the write-back of the batch before.
                during = max(_common(gap, self.spans[stage][each]) for stage in stages
                             for each in (number, number - 1) if each >= 0)
                during = min(left, during)
                waited[cause] += during
                left -= during
            waited["order"] += left
        steps = max(1, len(self._timed))
        return {cause: 1e3 * seconds / steps for cause, seconds in waited.items()}

    def _gaps(self):
        """((start, end), batch) of every time after the warm-up in which the trainer waited."""
        slices = [(*self.spans[stage][number], number) for number in range(len(self.batches))
                  for stage in ("popular", "train")]
        return [((before[1], after[0]), after[2])
                for before, after in pairwise(slices)
                if after[2] in self._timed and after[0] > before[1]]

    def _of_timed(self, stage):
        return [self.spans[stage][number] for number in self._timed]

    def draw(self, path, title):
        """Write the schedule as a timeline."""
        slices = Slices(title, (DRIVER, *LANES))
        lanes = {"drive": DRIVER, "plan": LOOKUP, "gather": MOVE, "write_back": MOVE, "down": LINK,
                 "up": LINK, "popular": TRAINER, "train": TRAINER}
        names = {"drive": "driver", "plan": "SPLIT" if self.hotline else "PLAN", "gather": "GATHER",
                 "write_back": "SCATTER", "down": "rows to the trainer",
                 "up": "rows from the trainer", "popular": "popular samples",
                 "train": "other samples" if self.hotline else "step"}
        for stage, spans in self.spans.items():
            for number, (start, end) in enumerate(spans):
                if end > start:
                    slices.add(lanes[stage], names[stage], start, end, batch=number)
        slices.write(path)


def _common(one, other):
    return max(0.0, min(one[1], other[1]) - max(one[0], other[0]))
