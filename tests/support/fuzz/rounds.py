"""Rounds of commands for both queues, with events between them, free of deadlocks."""

from dataclasses import dataclass, field

import numpy as np
from hotrow_rtl.config import Config
from hotrow_rtl.contract.encoding import QUEUES, Opcode

from .commands import CommandSource
from .planning import PlannedBatches

NEVER = 7  # an event that no command sets: a WAIT for it ends by an abort


@dataclass
class Round:
    """Commands that are submitted together.

    Attributes
    ----------
    lists : uint8[...]
        Contents of the list buffer.
    commands : dict of str to list of dict
        Operands of every command, by queue.
    halt : dict of str to bool
        Whether the queue halts on an error.
    restart : dict of str to bool
        Whether the host disables and enables the queue before the round.
    soft_reset : bool
    wrong_doorbells : list of (queue, int)
        Invalid doorbells, rung before the valid ones.
    aborts : dict of str to set of int
        Positions of the commands that end by an abort.
    retires : int or None
        Value written to PLAN_RETIRED before the round; None without a planner.
    """

    lists: np.ndarray
    commands: dict
    halt: dict
    restart: dict
    soft_reset: bool
    wrong_doorbells: list
    aborts: dict = field(default_factory=lambda: {queue: set() for queue in QUEUES})
    retires: int | None = None


class RoundSource:
    """Draws rounds.

    Parameters
    ----------
    rng : numpy.random.Generator
    config : Config
    setup : Setup
    entries : int
        Commands that a ring holds.
    """

    def __init__(self, rng, config: Config, setup, entries):
        self.rng, self.config, self.tables, self.entries = rng, config, setup.tables, entries
        self.events = list(setup.events)
        self.batches = PlannedBatches()

    def follow(self, round_, observation):
        """Update the planned batches by a round's results, so that most draws are in order."""
        if self.config.planner:
            self.batches.follow(round_.commands["lookup"], observation.completions["lookup"],
                                observation.registers["PLAN_RETIRED"])

    def draw(self):
        """The next round; its commands can run one by one in the order of the draws."""
        rng, source = self.rng, CommandSource(self.rng, self.config, self.tables)
        round_ = Round(source.lists, {queue: [] for queue in QUEUES},
                       *({queue: bool(rng.random() < 0.3) for queue in QUEUES} for _ in range(2)),
                       bool(rng.random() < 0.1), [])
        if rng.random() < 0.3:
            round_.wrong_doorbells = [(queue, int(rng.choice([1 << 31, self.entries + 1])))
                                      for queue in QUEUES]
        if self.config.planner:
            round_.retires = self.batches.retirement(rng)
        self._next_batch = self.batches.planned + 1
        self._signalled, self._splits, self._published, self._misses = [], [], {}, []
        for _ in range(int(rng.integers(1, 2 * self.entries))):
            queue = QUEUES[rng.integers(2)]
            commands = round_.commands[queue]
            if len(commands) >= self.entries or not source.room():
                break
            operands = self._draw_one(source, queue)
            if operands.get("event") == NEVER:
                round_.aborts[queue].add(len(commands))
            elif rng.random() < 0.2:
                operands = source.malformed(operands)
            else:
                self._remember(queue, operands)
            commands.append(source.finish(operands))
        return round_

    def _draw_one(self, source, queue):
        rng, kind = self.rng, self.rng.random()
        if kind < 0.08:
            return {"opcode": rng.choice([Opcode.NOP, Opcode.FENCE])}
        if kind < 0.18:  # only one queue sets each event, so its value never decreases
            event = 2 * int(rng.integers(NEVER // 2)) + QUEUES.index(queue)
            self.events[event] = self.events[event] + int(rng.integers(1, 4)) & 0xFFFF_FFFF
            return {"opcode": Opcode.SIGNAL, "event": event, "value": self.events[event]}
        if kind < 0.25 and self._signalled:  # by an earlier draw, so the WAIT ends
            event, value = self._signalled[rng.integers(len(self._signalled))]
            return {"opcode": Opcode.WAIT, "event": event, "value": value}
        if kind < 0.27:
            return {"opcode": Opcode.WAIT, "event": NEVER, "value": self.events[NEVER] + 1}
        if queue == "move" and self._misses and rng.random() < 0.7:
            return source.gather(*self._misses.pop())
        if queue == "move" and self._published and rng.random() < 0.5:
            event, value = next(iter(self._published))
            return {"opcode": Opcode.WAIT, "event": event, "value": value}
        if queue == "move":
            draw = (source.gather, source.scatter, source.copy, source.fill)
            if self.config.arithmetic:
                draw += source.pool, source.update
            return draw[rng.integers(len(draw))]()
        if self.config.planner and rng.random() < 0.6:
            return self._draw_batch(source)
        draw = (
            lambda: source.batch(Opcode.OBSERVE), lambda: source.batch(Opcode.OBSERVE),
            lambda: source.batch(Opcode.SPLIT), lambda: source.batch(Opcode.SPLIT),
            lambda: source.rows(Opcode.INSTALL), lambda: source.rows(Opcode.INSTALL),
            lambda: source.rows(Opcode.REMOVE), source.harvest, source.harvest, source.decay,
            source.remove_all)
        return draw[rng.integers(len(draw))]()

    def _draw_batch(self, source):
        """PLAN of the next batch, or MARK of a coming one; rarely of another batch."""
        rng, number = self.rng, self._next_batch
        if rng.random() < 0.05:
            number += int(rng.choice([-1, 1, 100, 1 << 31]))
        if rng.random() < 0.5:
            return source.mark(number + int(rng.choice([0, 0, 1, 1, 3])))
        return source.plan(number)

    def _remember(self, queue, operands):
        """Record the commands that later ones can depend on.

        A GATHER may use a SPLIT's miss list after a WAIT for a SIGNAL that follows the SPLIT. The
        draws assume that a PLAN succeeds.
        """
        opcode = operands["opcode"]
        event = operands.get("event"), operands.get("value")
        if opcode == Opcode.PLAN:
            self._next_batch += operands["value"] == self._next_batch
        elif opcode == Opcode.REMOVE and operands.get("flags"):
            self._next_batch = 0
        elif opcode == Opcode.SPLIT:
            self._splits.append((operands["misses"], operands["count"]))
        elif opcode == Opcode.SIGNAL:
            self._signalled.append(event)
            if queue == "lookup":
                self._published[event], self._splits = self._splits, []
        elif opcode == Opcode.WAIT and queue == "move":
            self._misses += self._published.pop(event, [])
