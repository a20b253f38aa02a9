"""Mode `resident`: all tables in the trainer's own memory, and no device."""

import torch

from .step import Step
from .trainer import StepResult, Trainer


class ResidentTrainer(Trainer):
    """Trains the tables where they are, with the arithmetic of every other mode."""

    def step(self, samples):
        rows = self.tables.flat_rows(samples)
        step = Step(self.model, samples)
        step.run(torch.arange(len(samples)), self.tables.rows, rows)
        self.dense_optimizer.step()
        step.apply(self.optimizer, self.tables.rows, rows)
        lookups = samples.ids.size
        return StepResult(step.logits.numpy(), lookups, lookups, len(samples))
