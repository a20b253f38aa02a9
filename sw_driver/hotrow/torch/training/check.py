"""Checks of a trainer against another that trains on the same batches."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import nn
from torch.nn.functional import elu

from ...traces.trace import Samples
from .collection_trainer import CollectionTrainer
from .trainer import Snapshot, StepResult, Trainer, flat_rows

RELATIVE, ABSOLUTE = 1e-6, 1e-7  # a value agrees within RELATIVE * abs(reference) + ABSOLUTE
OF_STEP = 1e-5  # and this share of the step: gradients are sums, rounded in another order
R = TypeVar("R")
_LARGEST = torch.finfo(torch.float32).max


def excess(value: torch.Tensor, reference: torch.Tensor,
           change: torch.Tensor | float = 0.0) -> float:
    """Largest difference in units of the limit: a float, at most 1 where all values agree.

    A value that is not a number agrees with nothing, and counts as the largest fp32 number.

    Parameters
    ----------
    value, reference : torch.Tensor
    change : torch.Tensor or float
        What the step added to each value, or the most that it added to a value of the same row or
        parameter.
    """
    if not value.numel():
        return 0.0
    limit = reference.abs() * RELATIVE + ABSOLUTE + torch.as_tensor(change).abs() * OF_STEP
    difference = (value - reference).abs() / limit
    return float(difference.nan_to_num(nan=_LARGEST, posinf=_LARGEST).max())


class StepCheck:
    """Compares each step of a trainer with plain PyTorch's, within a tolerance.

    A bound on the loss proves nothing: a run can lose every embedding update and hardly show it.
    So before each step the check gives the trainer the reference's state, both rehearse the step,
    and every touched row, its state, and every dense parameter must agree. Then the check returns
    both to their own state, so that the check disturbs neither run.

    In the rehearsal an ELU replaces each ReLU. The derivative of a ReLU jumps at 0: where an
    activation is within rounding of 0, two sums of other order give gradients that do not agree.

    A step that starts from the reference's state cannot show whether rows that moved between two
    steps kept their values; `move` checks that in the trainer's own state.

    Parameters
    ----------
    trainer : CollectionTrainer
    reference : Trainer

    Attributes
    ----------
    max_difference : float
        Largest difference so far, in units of the limit.
    """

    def __init__(self, trainer: CollectionTrainer, reference: Trainer):
        self.trainer, self.reference = trainer, reference
        self.max_difference = 0.0

    @property
    def held(self) -> bool:
        return self.max_difference <= 1.0

    def step(self, samples: Samples) -> StepResult:
        """Check one batch; afterwards the reference has trained on it and the trainer has not.

        Returns
        -------
        StepResult
            The reference's.
        """
        rows = torch.unique(flat_rows(self.trainer.tables, samples))
        own, start = self.trainer.capture(rows), self.reference.capture(rows)
        self.trainer.load(rows, start)
        after = []
        for trainer in (self.trainer, self.reference):
            with _without_kinks(trainer.model):
                trainer.rehearse(samples)
            after.append(trainer.capture(rows))
        self.max_difference = max(self.max_difference, *_differences(start, *after))
        self.trainer.load(rows, own)
        self.reference.load(rows, start)
        return self.reference.step(samples)

    def compare(self, result: StepResult, expected: StepResult) -> None:
        """Compare the StepResults of a free step; after `step` nothing remains to compare."""

    def move(self, action: Callable[[], R]) -> R:
        """Call `action`, which moves rows to slots and back, and check that no bit of any changes.

        A difference counts as the largest fp32 number. Returns the action's result.
        """
        trainer, storage = self.trainer, self.trainer.storage
        assert storage is not None  # mode resident moves no rows
        before = storage.resident
        values = trainer.read_rows(before)
        result = action()
        after = storage.resident
        arrived = after[~torch.isin(after, before)]
        # A row's values in its table do not change while it is in a slot.
        same = _same_bits(values, trainer.read_rows(before)) and _same_bits(
            trainer.tables.rows.read(arrived), trainer.read_rows(arrived))
        if not same:
            self.max_difference = _LARGEST
        return result


class BitCheck:
    """Compares predictions with those of mode resident, to the bit; `held` while they agree."""

    def __init__(self, reference: Trainer):
        self.reference, self.held = reference, True

    @property
    def max_difference(self) -> float:
        return 0.0 if self.held else float("inf")

    def step(self, samples: Samples) -> StepResult:
        """Let the reference train on a batch: its StepResult."""
        return self.reference.step(samples)

    def compare(self, result: StepResult, expected: StepResult) -> None:
        """Compare the trainer's StepResult with the reference's."""
        self.held &= bool((result.logits == expected.logits).all())


@contextmanager
def _without_kinks(model: nn.Module) -> Iterator[None]:
    """Let each `nn.ReLU` of a model compute an ELU, whose derivative is continuous."""
    hooks = [module.register_forward_hook(lambda _, inputs, __: elu(*inputs))
             for module in model.modules() if isinstance(module, nn.ReLU)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _same_bits(values: Iterable[torch.Tensor | None],
               others: Iterable[torch.Tensor | None]) -> bool:
    return all(one is other if one is None or other is None else
               torch.equal(one.view(torch.int32), other.view(torch.int32))
               for one, other in zip(values, others, strict=True))


def _differences(start: Snapshot, got: Snapshot, expected: Snapshot) -> Iterator[float]:
    changes = (expected.weights - start.weights).abs().amax(dim=1, keepdim=True)
    yield excess(got.weights, expected.weights, changes)
    if expected.state is not None:
        assert got.state is not None and start.state is not None
        yield excess(got.state, expected.state, expected.state - start.state)
    for before, value, reference in zip(start.dense, got.dense, expected.dense, strict=True):
        yield excess(value, reference, (reference - before).abs().max())
