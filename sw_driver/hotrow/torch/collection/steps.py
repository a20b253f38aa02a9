"""Steps of the optimizer on the rows of a collection."""

from __future__ import annotations

from collections.abc import Callable

from ...contract.errors import Error
from ..features.layout import FeatureLayout
from ..optim.rules import Rule
from ..optim.staging import GradientStage
from ..store.base import Store
from .bag_calls import BagCalls
from .id_maps import IdMaps
from .trained_batches import TrainedBatches


class RowSteps:
    """Applies staged gradients.

    Parameters
    ----------
    layout : FeatureLayout
        Its ranks refuse a step together.
    store : Store
    staging : GradientStage
    batches : TrainedBatches
    calls : BagCalls
    id_maps : IdMaps, optional
    """

    def __init__(self, layout: FeatureLayout, store: Store, staging: GradientStage,
                 batches: TrainedBatches, calls: BagCalls, id_maps: IdMaps | None) -> None:
        self._layout, self._store, self._staging = layout, store, staging
        self._batches, self._calls, self._id_maps = batches, calls, id_maps

    def apply(self, tuned_rule: Callable[[], Rule]) -> None:
        """Apply the staged gradients by a rule, and clear them.

        Raises
        ------
        Error
            The gradients, or what the rule is to do, do not fit; nothing is applied.
        """
        with self._staging.lock:
            rule = self._layout.agree(lambda: self._checked(tuned_rule()),
                                      "nothing was applied, because of the optimizer")
            self._calls.drop()
            self._staging.apply(self._store, rule, self._batches.count - 1)
            if self._id_maps is not None:
                self._id_maps.trained()
            self._store.finish()

    def _checked(self, rule: Rule) -> Rule:
        self._staging.check_scaled()
        if self._staging.missed:
            raise Error("backward reached rows that were looked up in eval(), which gathers no "
                        "gradients of rows: call train() of the embeddings before the forward, or "
                        "zero_grad() after a backward that is not for training")
        if self._store.pools_cold_rows and not rule.plain:
            raise Error("a card updates cold rows without weight decay: gather them "
                        "(cold='gathered')")
        rule.steps += 1
        return rule
