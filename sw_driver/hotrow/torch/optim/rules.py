"""Optimizers of embedding rows: the step of a row, fp32, on what the row and its state hold."""

import math
from typing import Any, Literal

import torch
from torch import Tensor

from ...contract.errors import Error
from .arithmetic import rounded_sqrt, row_mean
from .rounding import round_stochastically

# Parameters that are numbers of at least 0, as messages name them.
_NUMBERS = {"lr": "lr, the learning rate,", "weight_decay": "weight_decay", "eps": "eps",
            "initial": "initial, the first value of the state,"}
_LARGEST = torch.finfo(torch.float32).max


class Rule:
    """A step on the rows of a batch. Rows that no sample looked up stay as they are.

    Weight decay, too, is for the rows of a step only, as in FBGEMM's table-batched embeddings:
    `g = fma(weight_decay, w, g)` before the step ("L2"), or, decoupled,
    `w = (1 - lr * weight_decay) * w`.

    Parameters
    ----------
    lr : float
    momentum : float
        0: momentum would move rows that no sample looked up.
    weight_decay : float
    decoupled_weight_decay : bool
    rounding_seed : int, optional
        Rows in fp16 or bf16 are rounded stochastically, by random bits that depend on the seed, the
        step, the row and the element only; by default to nearest.

    Attributes
    ----------
    name : str
    state : str or None
        Whether each "row" or each "element" has state; None without.
    initial : float
        First value of the state.
    tuned : tuple of str
        What the parameter group of the optimizer holds.
    steps : int
        Number of the step, from 1, of rules with `counts_steps`.
    """

    name, initial = "", 0.0
    state: str | None = None
    tuned: tuple[str, ...] = ("lr", "weight_decay")

    def __init__(self, lr: float, *, momentum: float = 0, weight_decay: float = 0.0,
                 decoupled_weight_decay: bool = False, rounding_seed: int | None = None) -> None:
        if momentum:
            raise Error(f"momentum {momentum} would move rows that no sample looked up, and is not "
                        f"supported: use 'adam', which moves the rows of a batch")
        self.lr, self.weight_decay = lr, weight_decay
        self.decoupled_weight_decay, self.rounding_seed = decoupled_weight_decay, rounding_seed
        self.steps = 0
        self.check()

    def check(self) -> None:
        """Raise Error if a parameter has no sense."""
        for name, what in _NUMBERS.items():
            _check_number(what, getattr(self, name, 0.0))
        seed = self.rounding_seed
        if seed is not None and not (isinstance(seed, int) and -1 << 63 <= seed < 1 << 63):
            raise Error(f"expected rounding_seed, an integer of 64 bits with its sign, or None, "
                        f"got {seed!r}")

    @property
    def plain(self) -> bool:
        """Whether a step depends on weights, gradients and state only, and rounds to nearest."""
        return not self.weight_decay and self.rounding_seed is None

    @property
    def counts_steps(self) -> bool:
        """Whether a step depends on the number of steps before it."""
        return self.rounding_seed is not None

    def columns(self, dim: int) -> int:
        """Numbers of state that follow the `dim` elements of a row."""
        return dim if self.state == "element" else 0

    def update(self, weights: Tensor, gradients: Tensor,
               state: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """The rows after one step: (weights, state)."""
        if self.weight_decay and self.decoupled_weight_decay:
            weights = weights * (1 - self.lr * self.weight_decay)
        elif self.weight_decay:
            gradients = torch.add(gradients, weights, alpha=self.weight_decay)
        return self.step(weights, gradients, state)

    def step(self, weights: Tensor, gradients: Tensor,
             state: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """`update` without weight decay."""
        raise NotImplementedError

    def rounded(self, weights: Tensor, dtype: torch.dtype, keys: Tensor | None = None) -> Tensor:
        """The rows as they are stored; `keys` int64[u] seeds stochastic rounding."""
        if self.rounding_seed is None or dtype == torch.float32:
            return weights
        assert keys is not None, "random bits depend on the row"
        return round_stochastically(weights, dtype, keys, self.rounding_seed, self.steps)


class SGD(Rule):
    """w = fma(-lr, g, w)."""

    name = "sgd"

    def step(self, weights: Tensor, gradients: Tensor,
             state: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        return torch.add(weights, gradients, alpha=-self.lr), None


class RowwiseAdagrad(Rule):
    """s += mean(g * g), then w = fma(-(lr / (sqrt(s) + eps)), g, w); one fp32 of state per row.

    Parameters
    ----------
    lr : float
    eps : float
    initial : float
        First value of a row's accumulator. It is far above zero on purpose: from zero, the first
        step of a row has length lr whatever its gradient, so that the rounding error of a small
        gradient would reach the row undamped.
    **options
        As in `Rule`.
    """

    name, state = "rowwise_adagrad", "row"
    default_eps, default_initial = 1e-8, 0.01

    def __init__(self, lr: float, eps: float = default_eps, initial: float = default_initial,
                 **options: Any) -> None:
        self.eps, self.initial = eps, initial
        super().__init__(lr, **options)

    def step(self, weights: Tensor, gradients: Tensor,
             state: Tensor | None) -> tuple[Tensor, Tensor | None]:
        assert state is not None
        state = state + row_mean(gradients * gradients)
        root = rounded_sqrt(state) + self.eps
        factor = -(torch.full_like(root, self.lr) / root)  # a number would take the reciprocal
        return torch.addcmul(weights, factor[:, None], gradients), state


class Adagrad(Rule):
    """s += g * g, then w -= lr * g / (sqrt(s) + eps), element by element, as `torch.optim.Adagrad`.

    Parameters
    ----------
    lr, eps : float
    initial : float
        First value of a row's accumulators.
    **options
        As in `Rule`.
    """

    name, state = "adagrad", "element"

    def __init__(self, lr: float, eps: float = 1e-10, initial: float = 0.0, **options: Any) -> None:
        self.eps, self.initial = eps, initial
        super().__init__(lr, **options)

    def step(self, weights: Tensor, gradients: Tensor,
             state: Tensor | None) -> tuple[Tensor, Tensor | None]:
        assert state is not None
        state = torch.addcmul(state, gradients, gradients)
        root = rounded_sqrt(state) + self.eps
        return torch.addcdiv(weights, gradients, root, value=-self.lr), state


class Adam(Rule):
    """Adam on the rows of a batch, with the formula of FBGEMM's ADAM and `torch.optim.Adam`.

    m = beta1 m + (1 - beta1) g, v = beta2 v + (1 - beta2) g g, then
    w -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps). `t` counts the optimizer's
    steps, not those of the row. `torch.optim.SparseAdam` adds eps to sqrt(v) as it is, so that its
    first steps are shorter where gradients are near eps. The state of a row is m, then v. FBGEMM's
    weight decay is decoupled: `decoupled_weight_decay=True`.

    Parameters
    ----------
    lr : float
    betas : (float, float)
    eps : float
    **options
        As in `Rule`.
    """

    name, state, counts_steps = "adam", "element", True
    tuned = ("lr", "weight_decay", "betas", "eps")

    def __init__(self, lr: float, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
                 **options: Any) -> None:
        self.betas, self.eps = betas, eps
        super().__init__(lr, **options)

    def check(self) -> None:
        super().check()
        if not all(0 <= each < 1 for each in _pair(self.betas)):
            raise Error(f"expected betas, two numbers from 0 to less than 1, got {self.betas!r}")

    def columns(self, dim: int) -> int:
        return 2 * dim

    def step(self, weights: Tensor, gradients: Tensor,
             state: Tensor | None) -> tuple[Tensor, Tensor | None]:
        assert state is not None
        dim, (_, beta) = weights.shape[1], self.betas
        first = self._moment(state[:, :dim], gradients)
        second = state[:, dim:] * beta + self._square(gradients) * (1 - beta)
        root = rounded_sqrt(second) / math.sqrt(1 - beta**self.steps) + self.eps
        rate = self.lr / (1 - self.betas[0]**self.steps)
        return weights - first / root * rate, torch.cat((first, second), dim=1)

    def _moment(self, before: Tensor, gradients: Tensor) -> Tensor:
        return before * self.betas[0] + gradients * (1 - self.betas[0])

    def _square(self, gradients: Tensor) -> Tensor:
        return gradients * gradients


class PartialRowwiseAdam(Adam):
    """Adam with one v per row, of mean(g * g), as FBGEMM's PARTIAL_ROWWISE_ADAM."""

    name = "partial_rowwise_adam"

    def columns(self, dim: int) -> int:
        return dim + 1

    def _square(self, gradients: Tensor) -> Tensor:
        return row_mean(gradients * gradients)[:, None]


OptimizerName = Literal["sgd", "rowwise_adagrad", "adagrad", "adam", "partial_rowwise_adam"]
OPTIMIZERS = {rule.name: rule for rule in (SGD, RowwiseAdagrad, Adagrad, Adam, PartialRowwiseAdam)}


def _check_number(what: str, value: Any) -> None:
    if not 0 <= (value if type(value) is float else _as_number(value)) <= _LARGEST:
        raise Error(f"expected {what} of at least 0, finite in fp32, got {value!r}")


def _as_number(value: Any) -> float:
    """A number, also of NumPy or in a tensor, as a float; NaN of what is none."""
    if isinstance(value, (str, bytes, bytearray, bool)):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return math.nan


def _pair(values: Any) -> tuple[float, float]:
    """Two numbers in a sequence, as floats; NaN of what is none."""
    try:
        if len(values) == 2:
            return _as_number(values[0]), _as_number(values[1])
    except (TypeError, LookupError):
        pass
    return math.nan, math.nan
