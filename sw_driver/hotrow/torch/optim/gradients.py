"""Gradients of embedding rows: staged by backward, applied once by the optimizer's step."""

from collections import deque

import torch

from ...errors import Error
from ..memory.slot_memory import carried
from .arithmetic import sum_duplicates


class StagedGradients:
    """Gradients of the rows of some tables, until they are applied.

    Duplicates of a row in one backward are summed in lookup order; what several backwards stage is
    added in their order.

    Parameters
    ----------
    dim : int
    device : torch device
        Of the gradients; which rows they belong to is always the host's.

    Members
    -------
    rows : int64[u]
        Flat rows, ascending.
    tensor : Tensor
        Its `grad` is float32[u, D], or None with nothing staged: what clipping, a gradient scaler
        and `zero_grad` work on. It has no values, and is no parameter that anyone else could train,
        broadcast or average.
    """

    def __init__(self, dim, device="cpu"):
        self.tensor = torch.zeros(0, dim, requires_grad=True, device=device)
        self.rows = torch.empty(0, dtype=torch.int64)

    @property
    def values(self):
        return self.tensor.grad

    def add(self, rows, bags, gradients, weights=None):
        """Stage a backward; arguments as of `sum_duplicates`, rows by flat row."""
        if not len(rows):
            return
        rows, sums = sum_duplicates(rows, bags, gradients, weights)
        if self.values is not None:
            before, rows_before = self.values, self.rows
            union = torch.unique(torch.cat((rows_before, rows)))
            total = before.new_zeros(len(union), before.shape[1])
            total[carried(torch.searchsorted(union, rows_before), sums.device)] = before
            total[carried(torch.searchsorted(union, rows), sums.device)] += sums
            rows, sums = union, total
        self.stage(rows, sums)

    def stage(self, rows, sums):
        """Stage these and nothing else: rows int64[u] ascending, sums float32[u, D]."""
        self.tensor.grad = None
        # A tensor's gradient has its shape; one number, seen as many, costs nothing.
        self.tensor.data = sums.new_zeros(1, 1).expand(sums.shape)
        self.rows, self.tensor.grad = rows, sums

    def clear(self):
        self.tensor.grad = None


class StepsInDoubt:
    """Steps whose gradients the host does not know yet to be finite, since it would have to wait.

    A step that was not applied is told of by a later call.

    Parameters
    ----------
    memory : SlotMemory
        Of the gradients.
    """

    def __init__(self, memory):
        self._memory, self._steps = memory, deque()

    def add(self, batch, values):
        """A step on these gradients, list of Tensor: whether all are finite, bool[], for `stepped`.
        """
        sound = torch.stack([torch.isfinite(each).all() for each in values]).all()
        told = torch.empty((), dtype=torch.bool, pin_memory=sound.device.type == "cuda")
        told.copy_(sound, non_blocking=True)
        self._steps.append((batch, told, self._memory.mark()))
        return sound

    def settle(self, wait=False):
        """Look at the steps that are known of, or `wait` for all.

        Raises
        ------
        Error
            One of them was not applied.
        """
        while self._steps and (wait or self._memory.reached(self._steps[0][2])):
            batch, told, mark = self._steps.popleft()
            self._memory.wait(mark)
            if not bool(told):
                raise Error(f"batch {batch}: a gradient was not finite, and its step was not "
                            f"applied to any row: lower the rate, clip, or train with "
                            f"torch.amp.GradScaler, which skips such steps")


class RowOptimizer(torch.optim.Optimizer):
    """Applies staged gradients: `collection.optimizer`.

    Learning-rate schedules set `param_groups[0]["lr"]` as ever. Clip with
    `torch.nn.utils.clip_grad_norm_([*model.parameters(), *collection.gradients()], norm)`.

    Parameters
    ----------
    collection : HotEmbeddingBagCollection
    rule : SGD, RowwiseAdagrad or Adagrad
    """

    def __init__(self, collection, rule):
        self._collection, self.rule = collection, rule
        super().__init__(list(collection.gradients()), {"lr": rule.lr})

    @torch.no_grad()
    def step(self, closure=None):
        """Apply what is staged, and let it go.

        Raises
        ------
        Error
            A gradient that is no finite number; nothing is applied then.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.rule.lr = self.param_groups[0]["lr"]
        self._collection.apply_gradients()
        return loss

    def set_learning_rate(self, lr):
        """As FBGEMM's embeddings call it."""
        self.param_groups[0]["lr"] = lr

    def state_dict(self):
        """The rate, and every table's state by name."""
        return {"optimizer": self.rule.name, "lr": self.param_groups[0]["lr"],
                "state": self._collection.row_states()}

    def load_state_dict(self, state_dict):
        if state_dict["optimizer"] != self.rule.name:
            raise Error(f"this is the state of {state_dict['optimizer']!r}, and the tables train "
                        f"with {self.rule.name!r}")
        self.param_groups[0]["lr"] = state_dict["lr"]
        self._collection.load_row_states(state_dict["state"])


class PooledLookup(torch.autograd.Function):
    """Pools bags of rows; backward stages the rows' gradients."""

    @staticmethod
    def forward(ctx, anchor, weights, lookup):
        """
        Parameters
        ----------
        anchor : Tensor
            Any that requires a gradient, so that backward is run; it gets none.
        weights : float32[n] or None
        lookup : Lookup
        """
        ctx.lookup = lookup
        ctx.set_materialize_grads(False)
        pooled, rows = lookup.pool(weights)
        ctx.save_for_backward(weights, rows)
        return pooled

    @staticmethod
    def backward(ctx, gradients):
        weights, rows = ctx.saved_tensors
        if gradients is None:
            ctx.lookup.staged_none()
            return None, None, None
        return None, ctx.lookup.stage(gradients.contiguous(), weights, rows), None
