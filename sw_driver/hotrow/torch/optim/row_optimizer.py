"""`collection.optimizer`: the `torch.optim.Optimizer` of a collection's rows."""

import math
from copy import copy
from typing import Any

import torch
from torch import nn

from ...contract.errors import Error
from .interrupts import uninterrupted
from .rules import OPTIMIZERS, Rule

# Hyperparameters of the optimizers of torch.optim.
_HYPERPARAMETERS = frozenset((
    "alpha", "amsgrad", "betas", "centered", "dampening", "eps", "lambd", "lr_decay", "maximize",
    "momentum", "momentum_decay", "nesterov", "rho", "t0", "weight_decay"))


class RowOptimizer(torch.optim.Optimizer):
    """Applies staged gradients.

    Schedules set `param_groups[0]["lr"]` as usual, likewise `weight_decay`, and Adam's `betas` and
    `eps`. Clip with
    `torch.nn.utils.clip_grad_norm_([*model.parameters(), *collection.gradients()], norm)`.
    Its one parameter group has the `rows` of the modules, and the tensors whose `grad` are the
    staged gradients.

    Parameters
    ----------
    collection : HotEmbeddingBagCollection
    rule : Rule
    """

    def __init__(self, collection, rule):
        self._collection, self.rule, self._complete = collection, copy(rule), False
        self._without_effect = _HYPERPARAMETERS.difference(rule.tuned)
        self._shown = [collection.rows]
        check_rate(rule.lr)
        tuned = {name: getattr(rule, name) for name in rule.tuned}
        steps = {"step": rule.steps} if rule.counts_steps else {}
        self._guard = torch.zeros(0, dtype=torch.float32).as_subclass(_Guard).requires_grad_()
        super().__init__(self._parameters(), {**tuned, **steps})
        self._complete = True

    def show(self, rows):
        """Let a module's RowsParameter be among the parameters, instead of the collection's."""
        if self._shown[0] is self._collection.rows:
            self._shown.clear()
        self._shown.append(rows)
        self.param_groups[0]["params"] = self._parameters()

    def _parameters(self):
        return [self._guard, *self._shown, *self._collection.gradients()]

    def add_param_group(self, param_group):
        """Refused after the construction: this optimizer trains the rows of its collection only."""
        if self._complete:
            raise Error("the optimizer of a collection trains its rows only: give other parameters "
                        "to an optimizer of torch.optim")
        super().add_param_group(param_group)

    @torch.no_grad()
    def step(self, closure=None):
        """Apply the staged gradients and clear them; an interrupt (Ctrl-C) waits for the end.

        Raises
        ------
        Error
            A gradient is not a finite number; nothing is applied. Or the step failed after it
            reached some of the tables, which the error names: the gradients of the others stay.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        group = self.param_groups[0]
        with uninterrupted():
            self._collection.apply_gradients()
            if "step" in group:
                group["step"] += 1
        return loss

    def zero_grad(self, set_to_none=True):
        self._collection.zero_grad(set_to_none)

    def tuned_rule(self):
        """The rule with what the parameter group holds.

        Raises
        ------
        Error
            A value has no sense, or no effect.
        """
        group, rule = self.param_groups[0], self.rule
        ignored = {name: group[name] for name in self._without_effect.intersection(group)
                   if group[name]}
        if ignored:
            raise Error(f"{rule.name} of a collection takes {', '.join(rule.tuned)}: {ignored} in "
                        f"its parameter group would have no effect")
        check_rate(group["lr"])
        for name in rule.tuned:
            setattr(rule, name, group.get(name, getattr(rule, name)))
        rule.check()
        if self._collection.store.pools_cold_rows and not rule.plain:
            raise Error("a card updates cold rows without weight decay: gather them "
                        "(cold='gathered')")
        rule.steps = int(group.get("step", 0))
        return rule

    def set_learning_rate(self, lr):
        """Set the rate, by the name of FBGEMM's embeddings."""
        self.param_groups[0]["lr"] = lr

    def state_dict(self):
        """The state of every table by name, as state of parameter 0, and the parameter group.

        `access_counts` int64[3, n] are tables, rows and counts of the device's access counters, if
        it counts: policies and hot rows depend on them. There is a column per counter, so that the
        shape is always the same. It is a plain dict of tensors and numbers, which
        `torch.distributed.checkpoint.save` takes, too; its `get_state_dict` does not take this
        optimizer.
        """
        for before in self._optimizer_state_dict_pre_hooks.values():
            before(self)
        group, states = dict(self.param_groups[0]), self._collection.row_states()
        found = {"optimizer": self.rule.name, "state": {0: states} if states else {},
                 "param_groups": [{**group, "params": list(range(len(self._shown)))}]}
        counts = self._collection.access_counts()
        if counts is not None:
            missing = self._collection.counters - counts.shape[1]
            found["access_counts"] = nn.functional.pad(counts, (0, max(0, missing)))
        for after in self._optimizer_state_dict_post_hooks.values():
            found = after(self, found) or found
        return found

    def load_state_dict(self, state_dict):
        for before in self._optimizer_load_state_dict_pre_hooks.values():
            state_dict = before(self, state_dict) or state_dict
        given = state_dict.get("optimizer", self.rule.name)
        if given != self.rule.name:
            raise Error(f"this is the state of {given!r}, and the tables train with "
                        f"{self.rule.name!r}")
        self._collection.load_row_states(state_dict["state"].get(0, {}))
        group = state_dict["param_groups"][0]
        self.param_groups[0] |= {name: group[name] for name in group if name != "params"}
        counts = state_dict.get("access_counts")
        if counts is not None:
            self._collection.set_access_counts(counts[:, counts[2] > 0])
        for after in self._optimizer_load_state_dict_post_hooks.values():
            after(self)


_TENSOR: Any = torch.Tensor
_SET_GRAD = _TENSOR.grad.__set__


class _Guard(torch.Tensor):
    """A parameter for which nobody makes gradients, as generic code does that initialises state."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func == _SET_GRAD and args[1] is not None:
            raise Error("the optimizer of a collection takes the gradients that backward stages: "
                        "get_state_dict() of torch.distributed.checkpoint, which makes others, "
                        "does not take it. Give it the other optimizers, and save state_dict() of "
                        "this one beside them")
        return _TENSOR.__torch_function__(func, (), args, kwargs or {})


def rule_of(optimizer, lr):
    """The rule of an optimizer by its name, or the rule itself.

    Raises
    ------
    Error
        There is no such optimizer; the rate is not a number of at least 0.
    """
    if isinstance(optimizer, Rule):
        check_rate(optimizer.lr)
        return optimizer
    if not isinstance(optimizer, str) or optimizer not in OPTIMIZERS:
        raise Error(f"optimizer is {', '.join(map(repr, OPTIMIZERS))}, or one of hotrow.torch's "
                    f"{', '.join(each.__name__ for each in OPTIMIZERS.values())}, not "
                    f"{optimizer!r}")
    return OPTIMIZERS[optimizer](check_rate(lr))


def check_rate(lr):
    """The learning rate as it is.

    Raises
    ------
    Error
        It is not a finite number of at least 0.
    """
    if isinstance(lr, (str, bool)) or not 0 <= float(lr) < math.inf:
        raise Error(f"expected a learning rate of at least 0, got {lr!r}")
    return lr
