"""Model of the schedule's commands in the rings of a card: what waits for what, and if it ends.

A look-ahead pipeline has four parties that each do one thing after the other: the host, the lookup
ring, the move ring and the trainer. Whatever an action waits for stays done once it is, so that one
run at any speed tells of all of them: if every action ends in one, it ends in all.
"""

from dataclasses import dataclass

from ..golden.lookup.planner import NEVER
from ..golden.training_pipeline import Offsets

HOST, LOOKUP, MOVE, TRAINER = "host", "lookup ring", "move ring", "trainer"


@dataclass(frozen=True)
class Action:
    """`what` is done for a `batch` by `party`, behind its earlier ones and once all of `after`,
    pairs (what, batch), are."""

    party: str
    what: str
    batch: int
    after: tuple = ()

    @property
    def name(self):
        return self.what, self.batch


def scheduled(count, wait_for, offsets=None, order="cit", stalls=True) -> list:
    """The actions of `count` batches in the order in which the host queues them: see `Schedule`.

    PLAN waits for no RETIRE: a batch beyond the window is refused, so the host retires first.
    COLLECT reads victims and fills, behind the write-back that the plan names and the training of
    the last batch that was retired for it.

    Parameters
    ----------
    count : int
    wait_for : sequence of int
        Of each plan: the newest batch whose bypassed rows must be back, or `NEVER`.
    offsets : Offsets, optional
    order : str
        As of `Schedule`.
    stalls : bool
        The host queues COLLECT behind the write-back that it waits for; without, at once.
    """
    offsets = offsets or Offsets()
    actions, moving = [], [None] * (offsets.train + 1)
    planned, landed, marked = 0, NEVER, 0

    def plan():
        nonlocal planned, marked
        if planned == count:
            return None
        batch = planned
        last = min(batch + offsets.future + 1, count)
        actions.extend(Action(LOOKUP, "mark", coming) for coming in range(marked, last))
        marked = max(marked, last)
        retired = batch - offsets.past - 1
        before = ()
        if retired >= 0:
            actions.append(Action(HOST, "retire", retired, (("plan", retired),)))
            before = (("retire", retired),)
        actions.append(Action(LOOKUP, "plan", batch, before))
        planned += 1
        return batch

    def collect(batch):
        after = [("plan", batch)]
        if wait_for[batch] != NEVER:
            after.append(("write back", wait_for[batch]))
        if batch > offsets.past:
            after.append(("train", batch - offsets.past - 1))
        actions.append(Action(HOST, "take plan", batch, (("plan", batch),)))
        actions.append(Action(MOVE, "collect", batch, tuple(after)))

    def insert(batch):
        actions.append(Action(MOVE, "insert", batch, (("collect", batch),)))

    def train(batch):
        nonlocal landed
        actions.append(Action(TRAINER, "train", batch, (("insert", batch),)))
        actions.append(Action(MOVE, "write back", batch, (("train", batch),)))
        landed = batch

    stages = {"c": (offsets.collect, collect), "i": (offsets.insert, insert),
              "t": (offsets.train, train)}
    while planned < count or any(batch is not None for batch in moving):
        waiting = moving[offsets.collect - 1]
        if stalls and waiting is not None and wait_for[waiting] > landed:
            moving = [*moving[:offsets.collect], None, *moving[offsets.collect:-1]]
        else:
            moving = [plan(), *moving[:-1]]
        for letter in order:
            place, stage = stages[letter]
            if moving[place] is not None:
                stage(moving[place])
    return actions


def against_the_ring_rule(actions) -> list:
    """Pairs of a command and the one behind it in its own ring that it waits for: none may be."""
    place = {}
    for at, action in enumerate(actions):
        place[action.name] = at, action.party
    return [(action, name) for at, action in enumerate(actions) for name in action.after
            if name in place and place[name][1] == action.party and place[name][0] > at]


def stuck(actions) -> list:
    """The action at which each party stands still for ever; none if all of them end.

    The host hands a command over when it comes to it, so that a party does nothing that the host
    has not reached.
    """
    done, reached = set(), 0
    queues = {party: [] for party in (HOST, LOOKUP, MOVE, TRAINER)}
    progress = True
    while progress:
        progress = False
        while reached < len(actions) and not queues[HOST]:  # the host blocks at its own actions
            queues[actions[reached].party].append(actions[reached])
            reached, progress = reached + 1, True
        for queue in queues.values():
            while queue and done.issuperset(queue[0].after):
                done.add(queue.pop(0).name)
                progress = True
    return [queue[0] for queue in queues.values() if queue]
