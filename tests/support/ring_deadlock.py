"""Model of a pipeline's commands in the rings of a card, and whether all of them complete.

A look-ahead pipeline has four parties that each process their actions in order: the host, the
lookup ring, the move ring and the trainer. A condition that an action waits for never becomes false
again, so one run at any speed decides: if every action completes in one run, it completes in all.
"""

from dataclasses import dataclass

from hotrow_sim.golden.lookup.planner import NEVER
from hotrow_sim.golden.training_pipeline import StageOrder

HOST, LOOKUP, MOVE, TRAINER = "host", "lookup ring", "move ring", "trainer"


@dataclass(frozen=True)
class Action:
    """Action `what` of `party` for a `batch`, which waits for the party's earlier actions and for
    all of `after`, pairs (what, batch)."""

    party: str
    what: str
    batch: int
    after: tuple = ()

    @property
    def name(self):
        return self.what, self.batch


class _Commands(StageOrder):
    """Collects the actions in `actions`.

    PLAN waits for no RETIRE in its ring: the card refuses a batch beyond the window, so the host
    retires first. COLLECT reads victims and fills after the write-back that the plan names and
    after the training of the last batch that was retired for it.
    """

    def __init__(self, count, wait_for, offsets, order, stalls):
        super().__init__(count, offsets, order=order, stall=stalls)
        self.wait_for, self.actions = wait_for, []

    def _add(self, party, what, batch, *after):
        self.actions.append(Action(party, what, batch, after))

    def waits_for(self, batch):
        return self.wait_for[batch]

    def mark(self, batch):
        self._add(LOOKUP, "mark", batch)

    def retire(self, batch):
        self._add(HOST, "retire", batch, ("plan", batch))

    def plan(self, batch):
        retired = batch - self.past - 1
        self._add(LOOKUP, "plan", batch, *([("retire", retired)] if retired >= 0 else []))

    def collect(self, batch):
        after = [("plan", batch)]
        if self.wait_for[batch] != NEVER:
            after.append(("write back", self.wait_for[batch]))
        if batch > self.past:
            after.append(("train", batch - self.past - 1))
        self._add(HOST, "take plan", batch, ("plan", batch))
        self._add(MOVE, "collect", batch, *after)

    def insert(self, batch):
        self._add(MOVE, "insert", batch, ("collect", batch))

    def train(self, batch):
        self._add(TRAINER, "train", batch, ("insert", batch))
        self._add(MOVE, "write back", batch, ("train", batch))


def scheduled(count, wait_for, offsets=None, order="cit", stalls=True) -> list:
    """The actions of `count` batches in the order in which the host queues them.

    Parameters
    ----------
    count : int
    wait_for : sequence of int
        Per plan, the newest batch whose bypassed rows must be written back, or `NEVER`.
    offsets, order
        As for `StageOrder`.
    stalls : bool
        The host queues COLLECT after the write-back that it waits for; if False, at once.
    """
    commands = _Commands(count, wait_for, offsets, order, stalls)
    commands.run()
    return commands.actions


def against_the_ring_rule(actions) -> list:
    """Pairs of a command and a later command of the same ring that it waits for: deadlocks."""
    place = {action.name: (at, action.party) for at, action in enumerate(actions)}
    return [(action, name) for at, action in enumerate(actions) for name in action.after
            if name in place and place[name][1] == action.party and place[name][0] > at]


def stuck(actions) -> list:
    """The first action of each party that never completes; empty if all of them complete.

    The host submits actions in order, and blocks while an action of its own waits.
    """
    done, submitted = set(), 0
    queues = {party: [] for party in (HOST, LOOKUP, MOVE, TRAINER)}
    progress = True
    while progress:
        progress = False
        while submitted < len(actions) and not queues[HOST]:
            queues[actions[submitted].party].append(actions[submitted])
            submitted, progress = submitted + 1, True
        for queue in queues.values():
            while queue and done.issuperset(queue[0].after):
                done.add(queue.pop(0).name)
                progress = True
    return [queue[0] for queue in queues.values() if queue]
