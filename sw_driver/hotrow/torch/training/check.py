"""The check of a trainer against the plain reference, step by step."""

import torch

RELATIVE, ABSOLUTE = 1e-6, 1e-7  # a value agrees within RELATIVE * abs(reference) + ABSOLUTE


def excess(value, reference):
    """Largest difference in units of the limit: a float, at most 1 where all agree.

    A value that is not a number agrees with nothing, and counts as the largest fp32 number.
    """
    if not value.numel():
        return 0.0
    difference = (value - reference).abs() / (reference.abs() * RELATIVE + ABSOLUTE)
    largest = torch.finfo(torch.float32).max
    return float(difference.nan_to_num(nan=largest, posinf=largest).max())


class StepCheck:
    """Whether each step of a trainer does what the reference's step does.

    A bound on the loss proves nothing: a run can lose every embedding update and hardly show it.
    So before each step the trainer is put into the reference's state, both take the step, and
    every touched row, its state, and every dense parameter must agree. Then the trainer is put
    back into its own state, so that its free run goes on undisturbed.

    A step that starts from the reference's state cannot tell whether rows that moved between two
    steps kept their values: `move` tells, in the trainer's own state.

    Parameters
    ----------
    trainer, reference : Trainer

    Members
    -------
    max_difference : float
        Largest so far, in units of the limit.
    """

    def __init__(self, trainer, reference):
        self.trainer, self.reference = trainer, reference
        self.max_difference = 0.0

    @property
    def held(self):
        return self.max_difference <= 1.0

    def step(self, samples):
        """Check one batch; the reference has trained on it after, the trainer has not.

        Returns
        -------
        StepResult
            The reference's.
        """
        rows = torch.unique(self.trainer.tables.flat_rows(samples))
        own = self.trainer.capture(rows)
        self.trainer.load(rows, self.reference.capture(rows))
        self.trainer.rehearse(samples)
        result = self.reference.step(samples)
        got, expected = self.trainer.capture(rows), self.reference.capture(rows)
        self.max_difference = max(self.max_difference, *_differences(got, expected))
        self.trainer.load(rows, own)
        return result

    def move(self, rows, action):
        """Check that an action which moves rows changes none: to the bit, as it computes nothing.

        A difference counts as the largest fp32 number.

        Parameters
        ----------
        rows : int64[n]
            Flat rows, each once.
        action : callable

        Returns
        -------
        What the action returns.
        """
        rows = torch.from_numpy(rows)
        before = self.trainer.read_rows(rows)
        result = action()
        if not all(map(_same_bits, before, self.trainer.read_rows(rows))):
            self.max_difference = torch.finfo(torch.float32).max
        return result


def _same_bits(one, other):
    return one is None or torch.equal(one.view(torch.int32), other.view(torch.int32))


def _differences(got, expected):
    yield excess(got.weights, expected.weights)
    if expected.state is not None:
        yield excess(got.state, expected.state)
    for value, reference in zip(got.dense, expected.dense, strict=True):
        yield excess(value, reference)
