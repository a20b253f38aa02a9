"""`collection.optimizer`: the `torch.optim.Optimizer` of a collection's rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import Any

import torch

from ...contract.errors import Error
from ...system.interrupts import uninterrupted
from ..features.layout import FeatureLayout
from ..optim.on_host import on_host
from ..optim.rules import OPTIMIZERS, OptimizerName, Rule
from ..optim.staging import GradientStage
from ..store.base import Store
from .bag_calls import BagCalls
from .id_maps import IdMaps
from .saved_counts import SavedCounts
from .saved_state import SavedState
from .trained_batches import TrainedBatches

# Hyperparameters of the optimizers of torch.optim.
_HYPERPARAMETERS = frozenset((
    "alpha", "amsgrad", "betas", "centered", "dampening", "eps", "lambd", "lr_decay", "maximize",
    "momentum", "momentum_decay", "nesterov", "rho", "t0", "weight_decay"))


class RowOptimizer(torch.optim.Optimizer):
    """Applies staged gradients.

    Schedules set `param_groups[0]["lr"]` as usual, likewise `weight_decay`, and Adam's `betas` and
    `eps`. Clip with
    `torch.nn.utils.clip_grad_norm_([*model.parameters(), *collection.gradients()], norm)`.
    Its one parameter group has the tensors whose `grad` are the staged gradients.

    Parameters
    ----------
    rule : Rule
    layout : FeatureLayout
        Its ranks refuse a step together.
    store, staging, batches, calls, id_maps, saved
        Parts of the collection.
    """

    @on_host
    def __init__(self, rule: Rule, layout: FeatureLayout, store: Store,
                 staging: GradientStage, batches: TrainedBatches, calls: BagCalls,
                 id_maps: IdMaps | None, saved: SavedState) -> None:
        self.rule, self._layout, self._store, self._staging = copy(rule), layout, store, staging
        self._batches, self._calls, self._id_maps, self._saved = batches, calls, id_maps, saved
        self._counts = SavedCounts(saved.tables, saved.cache, store)
        self._complete = False
        self._without_effect = _HYPERPARAMETERS.difference(rule.tuned)
        tuned = {name: getattr(rule, name) for name in rule.tuned}
        counted = {"step": rule.steps} if rule.counts_steps else {}
        super().__init__(staging.tensors(), {**tuned, **counted})
        self._complete = True

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise Error("the optimizer of a collection is copied with it: copy the collection, whose "
                    "copy has an optimizer, and load its state_dict()")

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refused after the construction: this optimizer trains the rows of its collection only."""
        if self._complete:
            raise Error("the optimizer of a collection trains its rows only: give other parameters "
                        "to an optimizer of torch.optim")
        super().add_param_group(param_group)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Apply the staged gradients and clear them; an interrupt (Ctrl-C) waits for the end.

        Without a backward before it, it does nothing, and `step` of the parameter group, on which
        Adam and stochastic rounding depend, stays; of several processes that counts all the same.

        Raises
        ------
        Error
            A gradient is not a finite number; nothing is applied. Or an earlier step or load was
            left half done. What fails after a row has changed leaves such a step.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        group, counted = self.param_groups[0], self._staging.counted
        with uninterrupted():
            try:
                self._apply()
            finally:  # what fails after the step is no reason to forget it
                if "step" in group:
                    group["step"] += self._staging.counted - counted
        return loss

    @on_host
    def _apply(self) -> None:
        with self._staging.lock:
            self._layout.agree(self._check, "nothing was applied, because of the optimizer")
            self._calls.drop()
            self._staging.apply(self._store, self.rule, self._batches.count - 1)
            if self._id_maps is not None:
                self._id_maps.trained()
            self._store.finish()

    def _check(self) -> None:
        if self._staging.missed:
            raise Error("backward reached rows that were looked up in eval(), which gathers no "
                        "gradients of rows: call train() of the embeddings before the forward, or "
                        "zero_grad() after a backward that is not for training")
        if any(each.foreign for each in self._staging.rows):
            self._staging.clear()
            raise Error("a gradient was set that no backward staged, as get_state_dict() of "
                        "torch.distributed.checkpoint does: give it the model and the other "
                        "optimizers, and save state_dict() of collection.optimizer beside what it "
                        "returns. It leaves lr of the parameter group at 0: set lr again to train")
        rule, card = self.tuned_rule(), self._store.card
        if card is not None and card.pools_cold_rows and not rule.plain:
            raise Error("a card updates cold rows without weight decay: gather them "
                        "(cold='gathered')")
        rule.steps += 1

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the staged gradients."""
        self._staging.clear()

    def tuned_rule(self) -> Rule:
        """The rule with what the parameter group holds.

        Raises
        ------
        Error
            A value has no sense, or no effect.
        """
        return self._tune(self.rule, self.param_groups[0])

    def _tune(self, rule: Rule, group: Mapping[str, Any]) -> Rule:
        """The rule, with what a parameter group holds; errors as in `tuned_rule`."""
        ignored = {name: group[name] for name in self._without_effect.intersection(group)
                   if group[name]}
        if ignored:
            raise Error(f"{rule.name} of a collection takes {', '.join(rule.tuned)}: {ignored} in "
                        f"its parameter group would have no effect")
        for name in rule.tuned:
            setattr(rule, name, group.get(name, getattr(rule, name)))
        rule.check()
        rule.steps = _steps(group.get("step", 0))
        return rule

    @on_host
    def state_dict(self) -> dict[str, Any]:
        """The state of every table by name, as state of parameter 0, and the parameter group.

        `access_counts` are the names of the tables, and int64[3, n] with places among these names,
        rows and counts of the device's access counters, on which policies and hot rows depend;
        n is 0 without a device, and after `close`. All is a plain dict of tensors, numbers and
        names, which `torch.distributed.checkpoint.save` takes, too. Its `load` takes a tuple as one
        object, so that the state it is given need not have as many counts. Its `get_state_dict`
        does not take this optimizer.
        """
        for before in self._optimizer_state_dict_pre_hooks.values():
            before(self)
        group, states = dict(self.param_groups[0]), self._saved.row_states()
        found: dict[str, Any] = {
            "optimizer": self.rule.name, "state": {0: states} if states else {},
            "param_groups": [{**group, "params": [0]}],
            "access_counts": self._counts.saved()}
        for after in self._optimizer_state_dict_post_hooks.values():
            found = after(self, found) or found
        return found

    @on_host
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what `state_dict` returned.

        The access counts of a device become those of the state, by the names of tables; a state
        without any sets them to zero.

        Raises
        ------
        Error
            It is no such state, or not of these tables; nothing was loaded.
        """
        for before in self._optimizer_load_state_dict_pre_hooks.values():
            state_dict = before(self, state_dict) or state_dict
        tuned, states, counts = self._layout.agree(
            lambda: self._given(state_dict), "nothing was loaded, because of the optimizer's state")
        with uninterrupted():
            self._saved.load_row_states(states)
            self.param_groups[0] |= tuned
            self._counts.load(counts)
        for after in self._optimizer_load_state_dict_post_hooks.values():
            after(self)

    def _given(self, state_dict: Any) -> tuple[dict[str, Any], Mapping[str, Any], Any]:
        """The parts of a state dict: what its parameter group has for this one, the state of each
        table, and the access counts as `SavedCounts.given`.

        Raises
        ------
        Error
            One is missing, of another kind, of another optimizer, or has no sense.
        """
        expected = "expected the dict that state_dict() of this optimizer returned, got"
        if not isinstance(state_dict, Mapping):
            raise Error(f"{expected} {type(state_dict).__name__}")
        name = state_dict.get("optimizer", self.rule.name)
        if name != self.rule.name:
            raise Error(f"this is the state of {name!r}, and the tables train with "
                        f"{self.rule.name!r}")
        groups, states = state_dict.get("param_groups"), state_dict.get("state")
        if not isinstance(groups, (list, tuple)) or not (
                len(groups) == 1 and isinstance(groups[0], Mapping)):
            raise Error(f"{expected} one whose param_groups are no list of one dict")
        states = states.get(0, {}) if isinstance(states, Mapping) else None
        if not isinstance(states, Mapping):
            raise Error(f"{expected} one whose state is no dict with the tables' states by name as "
                        f"that of parameter 0")
        tuned = {name: groups[0][name] for name in groups[0] if name != "params"}
        self._tune(copy(self.rule), {**self.param_groups[0], **tuned})
        return tuned, states, self._counts.given(state_dict.get("access_counts"))


def _steps(value: Any) -> int:
    """The number of steps in a parameter group, if it is one."""
    try:
        if int(value) == value >= 0:
            return int(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        pass
    raise Error(f"expected step, the number of steps, of at least 0, got {value!r}")


def rule_of(optimizer: OptimizerName | Rule, lr: float) -> Rule:
    """The rule of an optimizer by its name, or the rule itself.

    Raises
    ------
    Error
        There is no such optimizer; the rate is not a number of at least 0.
    """
    if isinstance(optimizer, Rule):
        optimizer.check()
        return optimizer
    if not isinstance(optimizer, str) or optimizer not in OPTIMIZERS:
        raise Error(f"optimizer is {', '.join(map(repr, OPTIMIZERS))}, or one of hotrow.torch's "
                    f"{', '.join(each.__name__ for each in OPTIMIZERS.values())}, not "
                    f"{optimizer!r}")
    return OPTIMIZERS[optimizer](lr)
