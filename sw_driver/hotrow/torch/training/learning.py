"""When a run in mode hotline learns which rows are hot."""

from ...traces.trace import Samples
from .check import StepCheck
from .collection_trainer import CollectionTrainer


class LearningSchedule:
    """Counts the first batches, learns from their counts, and later learns again.

    Parameters
    ----------
    batches : int
        Batches to count before learning.
    limit : int
        Most rows that may be hot.
    every : int
        Batches from one learning to the next; 0 for one learning only.
    decay : int
        Binary places by which every count is shifted right before learning again.

    Attributes
    ----------
    times, replaced : int
        Number of times that rows were learned again, and rows that got a slot thereby.
    """

    def __init__(self, batches: int, limit: int, every: int = 0, decay: int = 1):
        self.batches, self.limit, self.every, self.decay = batches, limit, every, decay
        self.times = self.replaced = 0

    def due(self, number: int) -> bool:
        """Whether to learn again before a batch."""
        number -= self.batches
        return self.every > 0 and number > 0 and number % self.every == 0

    def before(self, number: int, samples: Samples, trainer: CollectionTrainer,
               check: StepCheck) -> None:
        """Count, learn or do nothing before the step of batch `number`; `check` the rows moved."""
        if number < self.batches:
            trainer.observe(samples)
        elif number == self.batches:
            check.move(lambda: trainer.learn(self.limit))
        elif self.due(number):
            self.times += 1
            self.replaced += check.move(lambda: trainer.learn(self.limit, self.decay))
        # Steps count their lookups if these will be used.
        trainer.counting = number >= self.batches and self.every > 0
