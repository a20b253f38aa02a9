"""Trainings in which calls of every kind come at random, in the same order on every rank."""

import copy
import random
from contextlib import suppress

import torch
import torch.distributed as dist
from hotrow.contract.errors import Error

from tests.torch.any_id_training import BATCHES, SAMPLES, drawn, opened, outcome, part, saved, step

SCHEDULED = {"mode": "scratchpipe", "optimizer": "adagrad", "workers": 1}
SEEDS = range(4)
CALLS = ("prefetch", "prefetch", "train", "train", "train", "accumulate", "skip", "abandon",
         "evaluate", "export", "resume", "mislead")


class Schedule:
    """A training by calls; `bare` leaves out those that must change nothing."""

    def __init__(self, seed, group, bare, options):
        rank, self.world = (dist.get_rank(group), dist.get_world_size(group)) if group else (0, 1)
        self.rng, self.made, self.bare = random.Random(seed), drawn(seed=seed), bare
        self.bags = [part(batch, rank, self.world) for batch in self.made]
        self.options = {"group": group, **options}
        self.embeddings = opened(**self.options)
        self.at, self.ahead, self.held = 0, 0, False

    def prefetch(self):
        if self.ahead < min(4, BATCHES - self.at):
            if not self.bare:
                self.embeddings.prefetch(self.bags[self.at + self.ahead])
            self.ahead += 1

    def train(self, applies=True):
        step(self.embeddings, self.bags[self.at], self.world, applies)
        self.at, self.ahead, self.held = self.at + 1, max(0, self.ahead - 1), not applies

    def accumulate(self):
        if not self.held:
            self.train(applies=False)

    def skip(self):
        if self.ahead and any(len(ids) for ids, _ in self.made[self.at]):
            if self.bare:
                self.embeddings.prefetch(self.bags[self.at])
            self.embeddings.skip()
            self.at, self.ahead = self.at + 1, self.ahead - 1

    def evaluate(self):
        self.embeddings.eval()(self.rng.choice(self.bags))
        self.embeddings.train()

    def export(self):
        self.embeddings.changes(self.rng.choice((0, self.at // 2)))

    def mislead(self):
        wrong = [*self.rng.choice(self.bags)]
        wrong[3] = torch.tensor([9]), torch.zeros(SAMPLES // self.world, dtype=torch.int64)
        with suppress(Error):
            (self.embeddings.prefetch if self.ahead else self.embeddings)(wrong)

    def abandon(self):
        if not self.held:
            self.ahead = 0
            self.embeddings.abandon()

    def resume(self):
        if self.held:
            return
        if not self.bare:
            state = copy.deepcopy(saved(self.embeddings))
            self.embeddings.abandon()
            self.embeddings.close()
            self.embeddings = opened(**self.options)
            self.embeddings.load_state_dict(state["model"])
            self.embeddings.optimizer.load_state_dict(state["rows"])
        self.ahead = 0


def scheduled(seed, group=None, bare=False, **options):
    """The outcome of a Schedule of that seed."""
    schedule = Schedule(seed, group, bare, options)
    while schedule.at < BATCHES:
        getattr(schedule, schedule.rng.choice(CALLS))()
    with schedule.embeddings as embeddings:
        embeddings.optimizer.step()
        return outcome(embeddings)
